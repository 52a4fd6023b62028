"""Records as a Markdown table."""

import dataclasses

import pytest

from spec_jax.experiments.record import Difference, Record
from spec_jax.reports import tables
from spec_jax.reports.tables import HEADERS, markdown, notes, rows
from tests.reports import lines

RECORD = Record(
    task="ende",
    pair="tiny",
    draft="model",
    rule="token",
    temperature=0.0,
    gamma=4,
    batch=1,
    policy={"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    dtype="bfloat16",
    plain_dtype="float32",
    device="cpu: Example",
    cpu_threads=1,
    versions={"python": "3.12.1", "jax": "0.12.0"},
    seed=0,
    num_examples=64,
    inputs_cut=0,
    alpha=0.6543,
    alpha_stderr=0.0123,
    alpha_tokens=1000,
    c=0.098,
    verify_cost=1.2345,
    tokens_per_run=2.5,
    accepted_per_drafted=0.4,
    acceptance_by_position=(0.6, 0.4, 0.3, 0.2),
    tokens_plain=1000,
    tokens_speculative=1000,
    tokens_per_second_plain=600.4,
    tokens_per_second_speculative=900.6,
    speedup=1.5,
    speedup_formula=1.6,
    speedup_of_formula=1.5 / 1.6,
    identical=63 / 64,
    identical_across_dtypes=0.5,
    differences=(Difference(7, 3, 100, 200, 1.5e-5),),
    metrics={
        "plain": {"bleu": 31.04, "signature": "s"},
        "speculative": {"bleu": 30.96, "signature": "s"},
    },
    compile_seconds=2.0,
    repeats=3,
    date="2026-01-02T00:00:00+00:00",
)
SAMPLED = dataclasses.replace(
    RECORD,
    task="summarize",
    temperature=1.0,
    identical=None,
    identical_across_dtypes=None,
    differences=(),
    alpha_stderr=None,
    metrics={
        kind: {"rouge1": 1.26, "rouge2": 2.0, "rougeLsum": 3.0, "signature": "s"}
        for kind in ("plain", "speculative")
    },
    warnings=("the machine was busy",),
)


def test_cells_are_the_figures_of_the_record():
    cells = dict(zip(HEADERS, rows([RECORD])[0], strict=True))
    assert cells == {
        "task": "ende",
        "draft": "model",
        "T": "0",
        "gamma": "4",
        "alpha": "0.654 ± 0.012",
        "c": "0.098",
        "verify cost": "1.23",
        "tokens/run": "2.50",
        "tok/s plain": "600",
        "tok/s spec": "901",
        "speed": "1.50",
        "formula": "1.60",
        "identical": "63/64",
        "score plain": "BLEU 31.0",
        "score spec": "BLEU 31.0",
    }


def test_a_sampled_summary_has_no_identity_and_rouge():
    cells = dict(zip(HEADERS, rows([SAMPLED])[0], strict=True))
    assert cells["T"] == "1"
    assert cells["identical"] == "-"
    assert cells["alpha"] == "0.654"
    assert cells["score plain"] == "ROUGE 1.3/2.0/3.0"


def test_markdown_is_a_table_and_says_how_it_was_measured():
    lines = markdown([RECORD, SAMPLED]).splitlines()
    bars = {line.count("|") for line in lines[:4]}
    assert bars == {len(HEADERS) + 1}
    assert lines[4] == ""
    text = "\n".join(lines[5:])
    for part in (
        "cpu: Example (1 thread)",
        "speculative in bfloat16, plain in float32",
        "batch 1",
        "64 examples",
        "medians of 3 repeats",
        "python 3.12.1, jax 0.12.0",
        "2026-01-02",
    ):
        assert text.count(part) == 1, part
    assert "example 7 differs at token 3 (100 plain, 200 speculative)" in text
    assert "1.5e-05 apart" in text
    assert "Warning, summarize, T = 1: the machine was busy" in text


def test_runs_measured_differently_are_told_apart():
    other = dataclasses.replace(RECORD, batch=8, differences=())
    assert len(notes([RECORD, other])) == 3


def test_no_record_is_an_error():
    with pytest.raises(ValueError, match="at least one record"):
        markdown([])


def test_a_task_of_ones_own_shows_its_first_figure():
    scores = {"exact": 0.5, "other": 1.0, "signature": "s"}
    own = dataclasses.replace(
        RECORD, metrics={"plain": scores, "speculative": {"left_out": "scores"}}
    )
    cells = dict(zip(HEADERS, rows([own])[0], strict=True))
    assert (cells["score plain"], cells["score spec"]) == ("exact 0.5", "-")


def test_t5x_is_told_beside_our_own_baseline():
    baseline = {"tokens_per_second": 412.4, "speedup": 2.184, "identical": 1.0}
    told = dataclasses.replace(RECORD, baseline=baseline)
    (line,) = [note for note in notes([told]) if "t5x" in note]
    assert "412 tok/s in float32" in line and "2.18 times as fast" in line
    assert "100% of its outputs are ours" in line
    assert not [note for note in notes([RECORD]) if "t5x" in note]


def test_warnings_say_which_of_several_gammas_they_are_of():
    """The fault: two rows' warnings had one name, and the same warning stood once."""
    few, many = (
        lines.record(gamma=gamma, draft_name="", warnings=("busy",)) for gamma in (1, 3)
    )
    said = tables.notes([few, many])
    assert "- Warning, ende, T = 0, gamma 1: busy" in said
    assert "- Warning, ende, T = 0, gamma 3: busy" in said
    assert "- Warning, ende, T = 0: busy" in tables.notes([few])
    eight = lines.record(gamma=1, batch=8, draft_name="")
    assert tables.run_names([few, eight]) == [
        "ende, T = 0, batch 1",
        "ende, T = 0, batch 8",
    ]


def test_filters_are_said():
    """The fault: a table of top-k sampling looked like one of plain sampling."""
    policy = {"top_k": 40, "top_p": 1.0, "min_p": 0.0}
    assert "; batch 1; top_k 40; " in tables.method(lines.record(policy=policy))
    assert "top_p" not in tables.method(lines.record(policy=policy))
