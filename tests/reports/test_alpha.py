"""Tables of alpha with the paper's figures beside them."""

import dataclasses

import pytest

from spec_jax.experiments.alpha_record import AlphaRecord
from spec_jax.reports.alpha import lenience_markdown, markdown

ONE = AlphaRecord(
    task="ende",
    pair="shipped+small",
    draft_name="small",
    temperature=0.0,
    policy={"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    alpha=0.7512,
    alpha_stderr=0.0049,
    tokens=10_000,
    num_examples=412,
    dtype="bfloat16",
    device="cpu: x",
    cpu_threads=1,
    versions={"jax": "0.12"},
    seed=0,
    date="2026-01-01T00:00:00+00:00",
)


def make(**fields):
    return dataclasses.replace(ONE, **fields)


def test_temperatures_are_columns_and_the_paper_stands_beside():
    records = [
        ONE,
        make(temperature=1.0, alpha=0.6),
        make(temperature=0.5, alpha=0.7, alpha_stderr=None),
        make(draft_name="lookup", alpha=0.1),
        make(task="xsum", alpha=0.4),
    ]
    lines = markdown(records).splitlines()
    assert lines[:5] == [
        "| task | draft | T = 0 | paper | T = 0.5 | T = 1 | paper |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| ende | small | 0.751 ± 0.005 | 0.75 | 0.700 | 0.600 ± 0.005 | 0.62 |",
        "| ende | lookup | 0.100 ± 0.005 |  |  |  |  |",
        "| xsum | small | 0.400 ± 0.005 |  |  |  |  |",
    ]
    notes = "\n".join(lines[5:])
    assert "ende, T = 0: 10,000 tokens that the target generated for 412" in notes
    assert notes.count("in bfloat16 on cpu: x (threads: 1); jax 0.12; 2026-01-01") == 1


def test_leniences_are_columns():
    records = [
        make(temperature=1.0, lenience=lenience, alpha=alpha)
        for lenience, alpha in ((1.0, 0.6), (0.1, 0.9))
    ]
    lines = lenience_markdown(records).splitlines()
    assert lines[0] == "| task | T | draft | l = 1 | l = 0.1 |"
    row = "| ende | 1 | small | 0.600 ± 0.005 (0.62) | 0.900 ± 0.005 (0.84) |"
    assert lines[2] == row
    assert "does not follow the target" in "\n".join(lines)


def test_filters_and_several_pairs_are_named():
    records = [make(policy={"top_k": 40, "top_p": 1.0, "min_p": 0.0})]
    records.append(dataclasses.replace(records[0], pair="shipped+base"))
    text = markdown(records)
    assert "- shipped+small, shipped+base in bfloat16 on cpu: x" in text
    assert "top_k 40" in text and "top_p" not in text


@pytest.mark.parametrize("table", [markdown, lenience_markdown])
def test_no_line_is_an_error(table):
    with pytest.raises(ValueError, match="want at least one line of alpha"):
        table([])
