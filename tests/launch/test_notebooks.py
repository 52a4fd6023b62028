"""The notebooks are their scripts, run from top to bottom, and say what is right."""

import base64
import contextlib
import importlib.metadata
import io
import os
import re
import shutil
import urllib.request
from pathlib import Path

import jax
import pytest

from spec_jax.cli.main import main

jupytext = pytest.importorskip("jupytext")
nbclient = pytest.importorskip("nbclient")
jupyter_client = pytest.importorskip("jupyter_client")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
COLAB = ROOT / "launch" / "colab"
NAMES = ("speculative_decoding_in_one_page", "choose_gamma", "t5_on_tpu")
LARGEST = 400_000
"""Bytes of a committed notebook, pictures included."""


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def committed(name):
    return nbformat.read(COLAB / f"{name}.ipynb", as_version=4)


def test_there_are_no_others():
    assert {path.stem for path in COLAB.glob("*.ipynb")} == set(NAMES)
    assert {path.stem for path in COLAB.glob("*.py")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_notebook_and_script_are_in_step(name):
    script = cells(jupytext.read(COLAB / f"{name}.py"))
    assert script == cells(committed(name))
    assert len(script) > 8


@pytest.mark.parametrize("name", NAMES)
def test_what_is_committed_has_run_and_is_small(name):
    notebook = committed(name)
    nbformat.validate(notebook)
    assert (COLAB / f"{name}.ipynb").stat().st_size < LARGEST
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert len(pictures(notebook)) >= 2
    # A page that was made in somebody's folder does not say which.
    assert not re.search(r"/(home|root|tmp|Users)/", text_of(notebook))


@pytest.mark.parametrize("name", NAMES)
def test_there_is_a_picture_of_each_that_is_small_and_linked(name):
    picture = ROOT / "docs" / "notebooks" / f"{name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 150_000
    readme = (ROOT / "launch" / "README.md").read_text("utf-8")
    assert f"](colab/{name}.ipynb)" in readme
    assert f"](../docs/notebooks/{name}.png)" in readme


@pytest.mark.parametrize("name", NAMES)
def test_installing_does_nothing_where_the_package_is(name, monkeypatch):
    """And elsewhere asks pip for the address that is given."""
    source = cell_with(name, "SOURCE =")
    asked = []
    monkeypatch.setattr("subprocess.run", lambda words, **_: asked.append(words))
    exec(compile(source, name, "exec"), {})
    assert not asked
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    given = source.replace('SOURCE = ""', 'SOURCE = "git+https://a.b/c"')
    assert given != source
    exec(compile(given, name, "exec"), {})
    (words,) = asked
    assert re.fullmatch(r"spec_jax\[report(,tpu)?\] @ git\+https://a\.b/c", words[-1])


def cell_with(name, words):
    """The one cell of a script that has these words."""
    (source,) = (s for _, s in cells(committed(name)) if words in s)
    return source


@pytest.mark.parametrize(
    ("platform", "stats", "said"),
    [
        ("cpu", None, "2 x some kind\n"),
        ("tpu", {"bytes_limit": 32 * 2**30}, "2 x some kind, 32 GiB of memory each\n"),
        ("gpu", {}, "2 x some kind\n"),
    ],
)
def test_the_runtime_is_looked_at(platform, stats, said, capsys, monkeypatch):
    class Device:
        device_kind = "some kind"

        def memory_stats(self):
            return stats

    Device.platform = platform
    monkeypatch.setattr("jax.devices", lambda: [Device()] * 2)
    seen = {"jax": jax}
    exec(cell_with("t5_on_tpu", "memory_stats"), seen)
    assert capsys.readouterr().out == said
    assert seen["on_chip"] == (platform != "cpu")
    assert seen["memory"] == (stats or {}).get("bytes_limit", 0) / 2**30


class Answer(io.BytesIO):
    status = 200


LARGEST_THAT_FITS = '"the largest that fits"'


@pytest.mark.parametrize(
    ("pair", "memory", "on_chip", "answer", "said"),
    [
        (LARGEST_THAT_FITS, 31.2, True, Answer, "flan_t5_xxl"),
        (LARGEST_THAT_FITS, 15.7, True, Answer, "flan_t5_xl"),
        (LARGEST_THAT_FITS, 7.5, True, Answer, "flan_t5_large"),
        (LARGEST_THAT_FITS, 2.0, True, Answer, "shipped; the public models want"),
        (LARGEST_THAT_FITS, 0, False, Answer, "shipped; the public models want"),
        (LARGEST_THAT_FITS, 31.2, True, OSError, "shipped; the bucket of flan_t5_xxl"),
        ('"flan_t5_large"', 0, False, Answer, "flan_t5_large"),
        ('"flan_t5_xxl"', 31.2, True, TimeoutError, "shipped; the bucket of"),
        ('"shipped"', 31.2, True, Answer, "shipped\n"),
    ],
)
def test_models_follow_from_the_runtime(
    pair, memory, on_chip, answer, said, capsys, monkeypatch
):
    def urlopen(request, timeout):
        assert request.full_url.startswith("https://storage.googleapis.com/t5-data/")
        if answer is Answer:
            return Answer()
        raise answer

    monkeypatch.setattr("urllib.request.urlopen", urlopen)
    source = cell_with("t5_on_tpu", "fitting = ")
    given = source.replace(f"PAIR = {LARGEST_THAT_FITS}", f"PAIR = {pair}")
    chosen = {"urllib": urllib, "memory": memory, "on_chip": on_chip}
    exec(given, chosen)
    assert capsys.readouterr().out.startswith(f"models: {said}")
    gin = " ".join(chosen["models"])
    if said.startswith("shipped"):
        assert gin == "--gin_file=pairs/shipped.gin"
    else:
        assert f"TARGET_CHECKPOINT=gs://t5-data/pretrained_models/t5x/{said}/" in gin


def test_public_checkpoints_are_decoded(tmp_path, capsys):
    """A shipped model in t5x's form, in the place of the public ones."""
    models = tmp_path / "pretrained_models" / "t5x"
    pretrained = ROOT / "spec_jax" / "pretrained"
    words = [str(pretrained / "draft"), str(models / "flan_t5_small"), "--to=t5x"]
    assert main(["convert", *words, "--step=1198000"]) == 0
    shutil.copytree(
        models / "flan_t5_small" / "checkpoint_1198000",
        models / "flan_t5_large" / "checkpoint_1164000",
    )
    vocabulary = tmp_path / "vocabs" / "cc_all.32000.100extra"
    vocabulary.mkdir(parents=True)
    shutil.copy(pretrained / "vocabulary.model", vocabulary / "sentencepiece.model")
    chosen = {"urllib": urllib, "memory": 4, "on_chip": True}
    source = cell_with("t5_on_tpu", "fitting = ")
    source = source.replace("not reachable()", "False").replace(
        "gs://{BUCKET}/", f"{tmp_path}/"
    )
    exec(source, chosen)
    assert chosen["chosen"] == "flan_t5_large"
    chosen["device"] = jax.devices()[0]
    chosen |= {"main": lambda words: main([*words, "--dry_run"])}
    chosen["capture_output"] = contextlib.nullcontext
    capsys.readouterr()
    exec(cell_with("t5_on_tpu", '"table2",'), chosen)
    assert chosen["status"] == 0
    said = capsys.readouterr().out
    assert str(models / "flan_t5_large" / "checkpoint_1164000") in said
    assert "PLAIN_DTYPE = 'bfloat16'" in said


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Runs a notebook; all share compiled programs, also those of other runs.

    Forms are changed as a reader changes them, from one line to another. One kernel
    runs all, which imports JAX once; that no script needs another's names ruff sees.
    """
    folder = tmp_path_factory.mktemp("notebooks")
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "XLA_FLAGS": "",  # one device, as in Colab
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "IPYTHONDIR": str(folder),
    }
    env.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder / "programs"))

    kernel = jupyter_client.KernelManager(kernel_name="python3")
    kernel.start_kernel(env=env, cwd=str(folder))

    def run(name, forms=()):
        notebook = jupytext.read(COLAB / f"{name}.py")
        for ours, chosen in dict(forms).items():
            (cell,) = (c for c in notebook.cells if f"\n{ours}  # @param" in c.source)
            cell.source = cell.source.replace(f"\n{ours} ", f"\n{chosen} ")
        nbclient.NotebookClient(notebook, km=kernel, timeout=600).execute()
        return notebook

    yield run
    kernel.shutdown_kernel(now=True)


def outputs(notebook):
    return [o for cell in notebook.cells for o in cell.get("outputs", ())]


def text_of(notebook):
    """All that its cells say."""
    found = []
    for output in outputs(notebook):
        data = output.get("data", {})
        for kind in ("text/markdown", "text/html"):
            found.append(data.get(kind, ""))
        found.append(output.get("text", ""))
    return "\n".join(found)


def pictures(notebook):
    data = (output.get("data", {}) for output in outputs(notebook))
    found = [base64.b64decode(d["image/png"]) for d in data if "image/png" in d]
    assert all(png.startswith(b"\x89PNG") for png in found)
    return found


def number(pattern, text):
    """The one number that a pattern finds."""
    (found,) = re.findall(pattern, text)
    return float(found)


@pytest.mark.slow
def test_one_page(executed):
    notebook = executed("speculative_decoding_in_one_page", {"GAMMA = 4": "GAMMA = 2"})
    said = text_of(notebook)
    assert "identical tokens: True" in said
    plain, speculative = re.findall(r"^(?:plain|speculative) +(\S.*)$", said, re.M)
    assert plain == speculative and "Farbe" in plain
    alpha = number(r"min\(p, q\) = \*\*([\d.]+)\*\*", said)
    assert alpha == pytest.approx(0.76, abs=0.006)
    assert number(r"kept in the draws: \*\*([\d.]+)\*\*", said) == pytest.approx(
        alpha, abs=0.011
    )
    # Five standard deviations of a frequency of 100,000 draws.
    assert number(r"circle from p: (0\.\d+)\.", said) < 0.008
    runs = number(r"plain \| (\d+) \|", said)
    fewer = number(r"speculative, γ = \d+ \| (\d+) \|", said)
    assert 1 <= fewer < runs
    assert number(r"Speed: ([\d.]+) times", said) > 0
    assert len(pictures(notebook)) == 3
    assert text_of(notebook).count("<script>") == 3  # what moves


@pytest.mark.slow
def test_choose_gamma(executed):
    smaller = {"LARGEST_GAMMA = 6": "LARGEST_GAMMA = 2"}
    notebook = executed("choose_gamma", smaller)
    said = text_of(notebook)
    assert "The gamma that pays" in said
    assert re.search(r"<td class=.text.>model</td>", said)
    assert number(r"Measured: ([\d.]+) times", said) > 0
    assert number(r"expected were (\d+\.\d+)\.", said) > 0
    alike, texts = map(int, re.search(r"here (\d+) of (\d+) are", said).groups())
    # The two ways compute in two dtypes, whose near ties may fall apart.
    assert texts == 6 and alike >= 3
    assert len(pictures(notebook)) == 2


@pytest.mark.slow
def test_t5_on_tpu(executed):
    notebook = executed("t5_on_tpu", {"GAMMA = 5": "GAMMA = 2"})
    said = text_of(notebook)
    assert "models: shipped" in said and "cpu" in said
    assert "2/2" in said  # outputs that are those of plain decoding
    assert number(r"γ = 2: ([\d.]+) times plain decoding", said) > 0
    assert 1 <= number(r"([\d.]+) tokens a run, on", said) <= 3
    assert len(pictures(notebook)) == 2


def test_what_the_notebooks_want_is_in_the_extra():
    setup = (ROOT / "setup.py").read_text("utf-8")
    for name in ("jupytext", "nbclient", "ipykernel", "nbformat"):
        assert f'"{name}>=' in setup
        assert importlib.metadata.version(name)
