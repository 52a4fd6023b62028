"""Records: a round trip through JSON, appending, and errors that name the line."""

import dataclasses
import json
import math
import os
import pathlib
import re

import jax
import pytest

from spec_jax.experiments import record as records
from spec_jax.experiments.record import (
    Difference,
    Record,
    append_record,
    read_records,
)

RECORD = Record(
    task="ende",
    pair="tiny",
    draft="model",
    rule="token",
    temperature=0.0,
    gamma=2,
    batch=1,
    policy={"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    dtype="bfloat16",
    plain_dtype="float32",
    device="cpu: Example",
    cpu_threads=1,
    versions={"python": "3.12.1", "jax": "0.12.0"},
    seed=0,
    num_examples=2,
    inputs_cut=1,
    alpha=0.1 + 0.2,
    alpha_stderr=None,
    alpha_tokens=10,
    c=0.1,
    verify_cost=1.2,
    tokens_per_run=1.5,
    accepted_per_drafted=0.25,
    acceptance_by_position=(0.5, None),
    tokens_plain=10,
    tokens_speculative=10,
    tokens_per_second_plain=100.0,
    tokens_per_second_speculative=150.0,
    speedup=1.5,
    speedup_formula=1.6,
    speedup_of_formula=1.5 / 1.6,
    identical=0.5,
    identical_across_dtypes=0.5,
    differences=(Difference(1, 3, 7, None, 1e-5),),
    metrics={"plain": {"bleu": 1.0, "signature": "ü"}, "speculative": {"bleu": 1.0}},
    compile_seconds=2.0,
    repeats=3,
    date="2026-01-01T00:00:00+00:00",
    warnings=("one",),
)


def test_json_gives_the_same_record_back():
    line = RECORD.to_json()
    assert "\n" not in line
    assert Record.from_json(line) == RECORD


def test_every_field_survives_a_change():
    """The fault: a field that is written but not read, or the other way."""
    fields = json.loads(RECORD.to_json())
    assert set(fields) == {field.name for field in dataclasses.fields(Record)}
    for name, value in fields.items():
        if isinstance(value, int | float):
            other = not value if isinstance(value, bool) else value + 1
            changed = Record.from_json(json.dumps(fields | {name: other}))
            assert getattr(changed, name) == other


def test_every_field_is_defined_in_the_docs():
    """BEHAVIOURS 35, last sentence: a row of a table, and no row without a field."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "measurements.md"
    rows = re.findall(
        r"^\| (`[^|]+) \| .{8,} \|$", page.read_text("utf-8"), re.MULTILINE
    )
    defined = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(defined) == sorted(field.name for field in dataclasses.fields(Record))


def test_appended_lines_come_back_in_order(tmp_path):
    path = tmp_path / "new" / "records.jsonl"
    second = dataclasses.replace(RECORD, temperature=1.0, identical=None)
    append_record(path, RECORD)
    append_record(path, second)
    assert read_records(path) == [RECORD, second]


def test_a_line_is_appended_in_one_write(tmp_path, monkeypatch):
    sizes, write = [], os.write

    def counted(file, data):
        sizes.append(len(data))
        return write(file, data)

    monkeypatch.setattr(records.os, "write", counted)
    append_record(tmp_path / "r.jsonl", RECORD)
    assert sizes == [len(RECORD.to_json().encode()) + 1]


def test_a_short_write_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    path, write = tmp_path / "r.jsonl", os.write
    append_record(path, RECORD)
    with monkeypatch.context() as patch:
        patch.setattr(records.os, "write", lambda file, data: write(file, data[:-9]))
        with pytest.raises(OSError, match="disk full"):
            append_record(path, RECORD)
    append_record(path, RECORD)
    assert read_records(path) == [RECORD, RECORD]


def test_half_a_line_of_another_program_stays_alone(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"task": ')
    append_record(path, RECORD)
    append_record(path, RECORD)
    half, *lines = path.read_text("utf-8").splitlines()
    assert half == '{"task": '
    assert [Record.from_json(line) for line in lines] == [RECORD, RECORD]


def test_nan_is_refused():
    with pytest.raises(ValueError):
        dataclasses.replace(RECORD, c=math.nan).to_json()


def test_fields_of_later_versions_are_passed_over():
    fields = json.loads(RECORD.to_json()) | {"from_the_future": 1}
    assert Record.from_json(json.dumps(fields)) == RECORD


@pytest.mark.parametrize(
    ("line", "says"),
    [("{}", "lacks the fields"), ("[1]", "JSON object"), ('{"task": ', "line 2")],
)
def test_a_bad_line_is_named(tmp_path, line, says):
    path = tmp_path / "r.jsonl"
    path.write_text(f"{RECORD.to_json()}\n{line}\n", "utf-8")
    with pytest.raises(ValueError, match=says) as error:
        read_records(path)
    assert f"{path}, line 2" in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*none\.jsonl"):
        read_records(tmp_path / "none.jsonl")


def test_versions_are_those_that_run():
    found = records.versions()
    assert found["jax"] == jax.__version__
    assert set(found) == {"python", "jax", "jaxlib", "flax", "spec_jax"}


def test_cpu_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("PJRT_NPROC", "3")
    assert records.cpu_threads() == 3
    monkeypatch.setenv("PJRT_NPROC", "")
    assert records.cpu_threads() == len(os.sched_getaffinity(0))


def test_the_device_is_described():
    platform, _, kind = records.describe_device().partition(": ")
    assert platform == "cpu"
    assert kind


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("alpha", math.nan),
        ("speedup", math.inf),
        ("speedup", "fast"),
        ("speedup", None),
        ("gamma", 4.5),
        ("gamma", "4"),
        ("lossless", 1),
        ("versions", []),
        ("versions", {"jax": 12}),
        ("date", None),
        ("warnings", "one"),
        ("acceptance_by_position", ["all"]),
        ("metrics", {"plain": 31.0}),
    ],
)
def test_a_value_of_another_type_is_named(tmp_path, field, value):
    """Else it would be said far from its line, or stand in a table."""
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(dataclasses.asdict(RECORD) | {field: value}) + "\n")
    with pytest.raises(ValueError, match=f"line 1: a record has ({field}|NaN|Inf)"):
        read_records(path)
