"""The pictures of the notebooks that move, in a real browser."""

import re

import pytest

from spec_jax.core import theory
from spec_jax.experiments.trace import Part, PartTimes, Step, TraceRecord
from spec_jax.reports import interactive
from tests.reports.browser import WHAT_OVERFLOWS, Browser

WORDS = ("the", "a", "</script>", "ID")
P = (0.5, 0.25, 0.15, 0.1)
Q = (0.1, 0.1, 0.3, 0.5)


def trace(gamma, seconds, *steps):
    parts = [tuple(Part(*part) for part in step) for step in steps]
    return TraceRecord(
        task="ende", pair="p", draft="model", rule="token", gamma=gamma,
        temperature=0.0, dtype="float32", source="s", output="o",
        tokens=sum(Step(gamma, step).tokens for step in parts), runs=len(steps),
        steps=tuple(Step(gamma, step) for step in parts), seconds=seconds,
        times=PartTimes(0, 0, 0, 0), repeats=1, seed=0, device="d", cpu_threads=1,
        versions={}, date="2026-01-01", number=1,
    )  # fmt: skip


PLAIN = trace(0, 0.08, *([("target", f" w{i}", 1)] for i in range(4)))
FAST = trace(
    2,
    0.04,
    [("accepted", " w0", 1), ("rejected", " no", 1), ("correction", " w1", 1)],
    [("accepted", " w2", 1), ("bonus", " w3", 1)],
)


def test_without_scripts_a_sentence_stands_there():
    for made in (
        interactive.draws(P, Q, WORDS),
        interactive.race([PLAIN, FAST]),
        interactive.speeds(0.8, 0.1),
    ):
        assert f">{interactive.WITHOUT_SCRIPTS}</div>" in made
        assert made.count("</script>") == 1  # no text of the reader's ends it
        assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg)", made)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interactive")
    parts = [
        interactive.draws(P, Q, WORDS),
        interactive.race([PLAIN, FAST]),
        interactive.speeds(0.8, 0.1),
    ]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    path = folder / "page.html"
    path.write_text(head + "".join(f"<section>{part}</section>" for part in parts))
    browser = Browser(folder / "profile")
    asked = browser.open(path, 360)
    assert asked == [path.as_uri()]

    def run(script):
        """The value of JavaScript, with a few short words for what a hand does."""
        return browser.evaluate(
            "(() => {const all = (n, what) => [...document.querySelectorAll("
            "`section:nth-of-type(${n}) ${what}`)];"
            "const text = (n, what) => all(n, what)[0].textContent;"
            "const set = (n, i, v) => {const e = all(n, 'input')[i]; e.value = v;"
            f"e.dispatchEvent(new Event('input'))}}; {script}}})()"
        )

    yield run
    assert not [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"]
    browser.close()


@pytest.mark.needs_browser
def test_draws_come_to_the_target_s_law_for_every_draft(page):
    assert page("return text(1, '.said')") == "α = 0.45. "
    assert page("return all(1, 'svg text').map((e) => e.textContent).slice(-4)") == [
        *WORDS
    ]
    for changed, law in ((None, Q), ((3, 0), (0.2, 0.2, 0.6, 0))):
        if changed:
            page(f"set(1, {changed[0]}, {changed[1]})")
        said = page("all(1, 'button')[2].click(); return text(1, '.said')")
        alpha, kept = map(float, re.findall(r"[01]\.\d\d", said))
        assert "10,000 draws" in said
        assert alpha == pytest.approx(theory.acceptance_rate(P, law), abs=0.006)
        # Five standard deviations of a frequency of 10,000 draws.
        assert kept == pytest.approx(alpha, abs=0.035)
        heights = page("return all(1, 'circle').map((e) => +e.getAttribute('cy'))")
        drawn = [(190 - y) / 300 for y in heights]
        assert drawn == pytest.approx(P, abs=0.025)
    said = page("set(1, 0, 0.5); all(1, 'button')[0].click(); return text(1, '.said')")
    assert "Of 1 draws" in said and "The draft guesses" in said


@pytest.mark.needs_browser
def test_both_ways_begin_at_once(page):
    def shown():
        return page("return all(2, 'div > div:not(.row)').map((e) => e.textContent)")

    words = "w0 w1 w2 w3"
    assert shown() == [
        "plain: 4 tokens in 4 runs of the target, done in 80 ms", words,
        "speculative, γ = 2: 4 tokens in 2 runs of the target, done in 40 ms",
        "w0 no w1 w2 w3",
    ]  # fmt: skip
    page("set(2, 0, 20)")
    assert shown() == [
        "plain: 1 token in 1 run of the target", "w0",
        "speculative, γ = 2: 2 tokens in 1 run of the target", "w0 no w1",
    ]  # fmt: skip
    kinds = page("return all(2, 'span.rejected').map((e) => e.textContent)")
    assert kinds == ["no"]
    page("all(2, 'button')[0].click()")
    assert shown()[1] == "w0"  # until it begins anew


@pytest.mark.needs_browser
def test_the_best_gamma_is_that_of_the_theorem(page):
    for alpha, c in ((0.8, 0.1), (0.6, 0.05), (0.05, 0.2)):
        said = page(f"set(3, 0, {alpha}); set(3, 1, {c}); return text(3, '.said')")
        best = theory.optimal_gamma(alpha, c, max_gamma=16)
        if not best:
            assert said.startswith("No γ pays")
            continue
        speed = theory.speedup(alpha, best, c)
        assert said == f"Best γ: {best}, {speed:.2f} times plain decoding."
    assert "Best γ: 16" in page("set(3, 0, 1); set(3, 1, 0); return text(3, '.said')")


@pytest.mark.needs_browser
def test_nothing_sticks_out_on_a_phone(page):
    assert page(f"return {WHAT_OVERFLOWS.strip()}") == []
