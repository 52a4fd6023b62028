"""Writes how the committed notebooks look in a browser, without their code.

    pip install nbconvert pillow
    python -m tests.launch.pictures docs/notebooks

Formulas are set where MathJax can be reached; --mathjax=URL names another place of it.
"""

import argparse
import pathlib
import tempfile

from tests.reports.browser import Browser

COLAB = pathlib.Path(__file__).resolve().parents[2] / "launch" / "colab"
WIDTH = 960
SET_FORMULAS = """
window.MathJax && MathJax.Hub && new Promise(done => MathJax.Hub.Queue(
  ["setRenderer", MathJax.Hub, "NativeMML"], ["Rerender", MathJax.Hub], () => done(1)))
"""


def main():
    import nbconvert
    import PIL.Image

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mathjax", default=None)
    given = parser.parse_args()
    more = {"mathjax_url": given.mathjax} if given.mathjax else {}
    exporter = nbconvert.HTMLExporter(
        exclude_input=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
        **more,
    )
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        browser = Browser(pathlib.Path(scratch) / "profile")
        for notebook in sorted(COLAB.glob("*.ipynb")):
            html, _ = exporter.from_filename(notebook)
            page = pathlib.Path(scratch) / f"{notebook.stem}.html"
            page.write_text(html, "utf-8")
            browser.open(page, WIDTH)
            browser.evaluate(SET_FORMULAS)
            browser.evaluate("document.getElementById('MathJax_Message')?.remove()")
            # As a reader who has drawn some.
            browser.evaluate(
                "[...document.querySelectorAll('button')]"
                ".filter(b => b.textContent === 'Draw 10,000').forEach(b => b.click())"
            )
            path = given.folder / f"{notebook.stem}.png"
            browser.screenshot(path)
            # A third of the bytes, and every colour within 8 of 255 of what it was.
            image = PIL.Image.open(path).convert("RGB")
            image = image.quantize(
                255,
                method=PIL.Image.Quantize.MAXCOVERAGE,
                dither=PIL.Image.Dither.NONE,
            )
            image.save(path, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
