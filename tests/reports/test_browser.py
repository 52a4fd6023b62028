"""The page in a real browser: nothing sticks out, nothing is asked of a network."""

import pytest

from spec_jax.reports.page import report
from spec_jax.reports.results import read_results
from tests.reports import lines
from tests.reports.browser import WHAT_OVERFLOWS, Browser

pytestmark = pytest.mark.needs_browser
PHONE, DESKTOP = 360, 1280


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """With the longest names there may be, too."""
    folder = tmp_path_factory.mktemp("page")
    long = "a_task_with_a_name_that_is_very_long_" * 3
    more = [
        lines.record(task=long, rule="block", pair="path/" * 30),
        lines.record(task=long, rule="block", dtype="float32"),
        lines.record(task=long, lengths="confidence 0.4", batch=8),
    ]
    path = lines.write(folder / "full.jsonl", [*lines.every_form(), *more])
    (folder / "report.html").write_text(report(read_results([path])).html, "utf-8")
    return folder / "report.html"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_nothing_sticks_out_and_nothing_is_asked_for(browser, page, width, dark):
    asked = browser.open(page, width, dark=dark)
    assert asked == [page.as_uri()]
    assert browser.evaluate(WHAT_OVERFLOWS) == []
    assert browser.evaluate("document.querySelectorAll('svg').length") > 20
    # The colours follow what the reader prefers, in the pictures too.
    ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(21, 25, 29)" if dark else "rgb(255, 255, 255)")
    ink = browser.evaluate("getComputedStyle(document.querySelector('.f-ink')).fill")
    assert ink == ("rgb(233, 237, 240)" if dark else "rgb(28, 32, 36)")
    problems = [e for e in browser.events if e["method"] == "Log.entryAdded"]
    assert not problems


def test_wide_tables_scroll_by_themselves(browser, page):
    browser.open(page, PHONE)
    assert browser.evaluate(
        "[...document.querySelectorAll('.scroll')]"
        ".some(e => e.scrollWidth > e.clientWidth)"
    )


def test_pictures_alone_are_whole(browser, page, tmp_path):
    from spec_jax.reports.drawing import svg

    for picture in report(read_results([page.parent / "full.jsonl"])).pictures[::5]:
        path = tmp_path / f"{picture.name}.svg"
        path.write_text(svg(picture.alone, alone=True), "utf-8")
        assert browser.open(path, DESKTOP) == [path.as_uri()]
        inside = """
            (() => {
              const all = document.documentElement.getBoundingClientRect();
              return [...document.querySelectorAll("text")].filter(e => {
                const box = e.getBoundingClientRect();
                return box.right > all.right + 1 || box.bottom > all.bottom + 1;
              }).map(e => e.textContent);
            })()
        """
        assert browser.evaluate(inside) == [], picture.name


def test_the_test_sees_what_it_looks_for(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(
        '<!doctype html><meta name="viewport" content="width=device-width">'
        '<body><p style="width:2000px">wide</p>'
        '<svg viewBox="0 0 100 20" width="100"><text x="90" y="15">long text</text>'
        '</svg><img src="https://spec-jax.invalid/x.png">'
    )
    asked = browser.open(path, PHONE)
    assert "https://spec-jax.invalid/x.png" in asked
    found = browser.evaluate(WHAT_OVERFLOWS)
    assert "P." in found and "in a picture: long text" in found


def test_the_policy_lets_nothing_in(browser, page, tmp_path):
    text = page.read_text("utf-8")
    path = tmp_path / "planted.html"
    planted = '<img src="https://spec-jax.invalid/x.png"><script>var ran = 1</script>'
    path.write_text(text.replace("<main>", f"<main>{planted}"), "utf-8")
    browser.open(path, PHONE)
    assert browser.evaluate("typeof ran") == "undefined"
    refused = [e for e in browser.events if e["method"] == "Network.loadingFailed"]
    assert [e["params"].get("blockedReason") for e in refused] == ["csp"]
