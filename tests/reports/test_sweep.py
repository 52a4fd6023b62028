"""The tables of a sweep."""

import pytest

from spec_jax.experiments.rules import BlockGain, BranchGain
from spec_jax.experiments.sweep import SweepRecord
from spec_jax.reports.sweep import HEADERS, markdown


def record(**fields):
    fields = {
        "task": "ende",
        "draft": "model",
        "rule": "token",
        "lengths": "fixed",
        "temperature": 0.0,
        "gamma": 4,
        "lenience": None,
        "lossless": True,
        "alpha": 0.7604,
        "alpha_stderr": 0.0131,
        "c": 0.0912,
        "verify_cost": 1.114,
        "tokens_per_run": 2.824,
        "drafted_per_run": 3.91,
        "accepted_per_drafted": 0.46,
        "speedup": 1.614,
        "modelled": 1.9,
        "oracle": 2.375,
        "tokens": 800,
        "num_examples": 32,
        "device": "cpu: A Processor",
        "cpu_threads": 1,
        "dtype": "bfloat16",
        "plain_dtype": "float32",
        "versions": {"jax": "0.12.0"},
        "seed": 0,
        "repeats": 3,
        "date": "2026-11-29T00:00:00+00:00",
    } | fields
    return SweepRecord(**fields)


def test_the_fastest_comes_first_under_its_task_and_temperature():
    text = markdown(
        [record(), record(draft="bigram", speedup=1.7), record(temperature=1.0)]
    )
    assert text.index("## ende, T = 0\n") < text.index("## ende, T = 1\n")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [row.strip("| ").split(" | ") for row in rows]
    assert cells[0] == list(HEADERS)
    assert [row[0] for row in cells[2:4]] == ["bigram", "model"]
    assert cells[3] == [
        "model", "token", "fixed", "0.760 ± 0.013", "0.091", "1.11", "3.91", "2.82",
        "1.61", "1.90", "2.38", "25%",
    ]  # fmt: skip
    assert "32 texts of ende, batch 1" in text
    assert "cpu: A Processor, threads: 1" in text and "jax 0.12.0" in text
    assert "does not follow the target" not in text
    assert "Other rules are lossless; at T = 0 they are one." in text


def test_lossy_rules_are_named_with_their_bound():
    """BEHAVIOURS 11: every report says so."""
    lossy = record(rule="lenient", lenience=0.5, lossless=False, temperature=1.0)
    text = markdown([record(), lossy])
    assert "does not follow the target: no token is more probable than p / 0.5" in text
    greedy = record(rule="lenient", lenience=0.3, lossless=False)
    text = markdown([record(), greedy])
    assert "target: drafted tokens stand where p(x) >= 0.3 max p at T = 1" in text


def test_gains_follow():
    block = BlockGain(
        task="ende", temperature=1.0, gamma=4, steps=900, token=2.0, block=2.05,
        stderr=0.004, least=-0.5,
    )  # fmt: skip
    branch = BranchGain(
        task="ende", temperature=0.0, gamma=4, branches=2, steps=500, first=0.852,
        tokens=3.261, cost=2.0,
    )  # fmt: skip
    text = markdown([record()], [block], [branch])
    assert "| ende | 1 | 4 | 2.000 | 2.050 | 2.5% ± 0.2% | 900 |" in text
    assert "| ende | 0 | 2 | 0.852 | 3.26 | 2.00 | 1.63 | 500 |" in text


def test_no_record_raises():
    with pytest.raises(ValueError, match="at least one record"):
        markdown([])
