"""`spec-jax compare`: texts in, a table and JSON lines out."""

import json

from spec_jax.experiments.compare import CompareRecord


def test_it_compares_drafts_on_texts(run, pair_flags, tmp_path):
    path = tmp_path / "compare.jsonl"
    outcome = run(
        "compare",
        *pair_flags,
        "--gin.PLAIN_DTYPE=float32",
        "--drafts=model,lookup",
        "--max_new_tokens=6",
        "--gin.REPEATS=2",
        "--gamma=2",
        f"--output_file={path}",
        "Save the file.",
        "",
        "Close the window.",
    )
    assert outcome.status == 0, outcome
    for word in ("plain", "model", "lookup", "identical", "2 texts one at a time"):
        assert word in outcome.out
    records = [CompareRecord.from_json(line) for line in path.read_text().splitlines()]
    assert [record.draft for record in records] == ["plain", "model", "lookup"]
    plain, model, lookup = records
    assert (plain.num_examples, plain.tokens, plain.speedup) == (2, 12, 1.0)
    assert plain.tokens_per_run == 1.0 and plain.accepted_per_drafted is None
    assert plain.identical is None and plain.rule == ""
    for record in (model, lookup):
        assert record.identical == 1.0 and record.rule == "token"
        assert record.slowest <= record.tokens_per_second <= record.fastest
        speed = record.tokens_per_second / plain.tokens_per_second
        assert record.speedup == speed
        assert json.loads(record.to_json())["gamma"] == 2


def test_coupled_draws_are_compared_too(run, pair_flags, tmp_path):
    path = tmp_path / "compare.jsonl"
    outcome = run(
        "compare",
        *pair_flags,
        "--gin.PLAIN_DTYPE=float32",
        "--drafts=model",
        "--max_new_tokens=6",
        "--gin.REPEATS=1",
        "--temperature=1",
        "--rule=coupled",
        "-o",
        path,
        "Save the file.",
    )
    assert outcome.status == 0, outcome
    records = [CompareRecord.from_json(line) for line in path.read_text().splitlines()]
    assert records[1].identical == 1.0 and records[1].rule == "coupled"


def test_wrong_ones_are_said(fails, pair_flags):
    assert "no draft 'modl'" in fails("compare", *pair_flags, "--drafts=modl", "Hi")
    assert "no text" in fails("compare", *pair_flags, "--input_file=/dev/null")
