"""Lines of alpha: as many tokens as asked for, kept, and from a journal."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest

from spec_jax.experiments.alpha_record import (
    AlphaRecord,
    AlphaSettings,
    _is_output,
)
from spec_jax.experiments.record import read_records

RECORD = AlphaRecord(
    task="ende",
    pair="shipped+small",
    draft_name="small",
    temperature=1.0,
    lenience=0.5,
    policy={"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    alpha=0.71,
    alpha_stderr=None,
    tokens=10_000,
    num_examples=400,
    dtype="bfloat16",
    device="cpu: x",
    versions={"jax": "0.12"},
    seed=0,
    date="2026-01-01T00:00:00+00:00",
)


def test_a_line_is_read_as_it_was_written():
    line = json.loads(RECORD.to_json())
    assert line["kind"] == "alpha"
    assert AlphaRecord.from_json(RECORD.to_json()) == RECORD
    assert RECORD.cell == ("ende", "small", 1.0, 0.5)


def test_every_field_is_defined_in_the_docs():
    page = pathlib.Path(__file__).parents[2] / "docs" / "alpha.md"
    rows = re.findall(r"^\| (`[a-z].*?) \|", page.read_text("utf-8"), re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(named) == sorted(f.name for f in dataclasses.fields(AlphaRecord))


@pytest.mark.parametrize("kind", ["choice", None])
def test_a_line_of_another_kind_is_none(kind, tmp_path):
    path = tmp_path / "alpha.jsonl"
    line = {**json.loads(RECORD.to_json()), "kind": kind}
    path.write_text(json.dumps(line) + "\n")
    with pytest.raises(ValueError, match=r"alpha.jsonl, line 1: want kind 'alpha'"):
        read_records(path, AlphaRecord)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_tokens": 0}, "num_tokens >= 1, got 0"),
        ({"batch": 0}, "batch >= 1, got 0"),
        ({"input_lengths": (1,)}, "at least 2 tokens"),
        ({"top_p": 2.0}, "top_p"),
    ],
)
def test_values_out_of_range_raise(fields, said):
    with pytest.raises(ValueError, match=said):
        AlphaSettings(**fields)


def test_lengths_are_sorted_and_filters_have_no_temperature():
    settings = AlphaSettings(input_lengths=(64, 32), top_k=3)
    assert settings.input_lengths == (32, 64)
    assert settings.filters == {"top_k": 3, "top_p": 1.0, "min_p": 0.0}
    assert dataclasses.replace(settings, num_tokens=5).num_tokens == 5


def test_what_is_an_output():
    assert _is_output({"index": 0, "tokens": [4, 1]})
    for line in ({}, [], {"index": 0, "tokens": []}, {"index": 0, "tokens": ["a"]}):
        assert not _is_output(line)
    assert not _is_output({"index": 0, "tokens": [1], "more": np.nan})
