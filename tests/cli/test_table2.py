"""`spec-jax table2` from end to end; the kill test is in test_kill.py."""

import json

import pytest

from spec_jax.experiments.choice import Choice
from spec_jax.experiments.record import read_records

SHORT = (
    "--gin.MIXTURE_OR_TASK_NAME=ende",
    "--gin.NUM_EXAMPLES=2",
    "--gin.REPEATS=1",
    "--gin.INPUT_LENGTHS=128",
    "--gin.PLAIN_DTYPE=float32",
    # Random weights never end a text.
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 6}",
)
LARGE = "--gin.PAIRS={'large': @load_pair}"


def lines(path):
    return [json.loads(line) for line in path.open()]


def cells(records):
    return [(r["draft_name"], r["temperature"], r["batch"]) for r in records]


@pytest.mark.slow
def test_rows_and_the_batches_of_the_fastest(run, fails, pair_flags, tmp_path):
    """A row that was lost comes again. test_kill.py has several drafts."""
    command = ["table2", *SHORT, *pair_flags, LARGE, "--gin.GAMMA=paper"]
    command += ["--gin.TEMPERATURES=1", "--gin.BATCH_SIZES=2"]
    command += [f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    assert "lookup, T = 1" in fails(*command, "--gin.DRAFTS=lookup")
    assert not list(tmp_path.iterdir())
    outcome = run(*command)
    assert outcome.status == 0, outcome
    records = lines(tmp_path / "results.jsonl")
    rows = [("large", 1, 1), ("large", 1, 2)]
    assert cells(records) == rows
    assert {r["gamma"] for r in records} == {3}
    table = (tmp_path / "table.md").read_text()
    assert table in outcome.out
    large, pairs = table.splitlines()[2:4]
    assert "| ende | large | 1 | 1 | 3 (3) |" in large
    assert all(figure in large for figure in ("(0.71)", "(0.11)", "(1.4)", "(2.0)"))
    assert "| large | 1 | 2 | 3 |" in pairs and "(" not in pairs
    assert "GAMMA = 'paper'" in (tmp_path / "config.gin").read_text()
    assert len(list((tmp_path / "inference_eval").iterdir())) == 2 * 2

    # As if it had been killed before its last row was there.
    kept = (tmp_path / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "results.jsonl").write_text(kept[0] + kept[1][:40])
    again = run(*command)
    assert again.status == 0, again
    assert again.err.count("2 of 2 examples are there") == 2
    whole = [x for x in (tmp_path / "results.jsonl").open() if x.endswith("}\n")]
    assert whole[0] == kept[0]
    assert cells(map(json.loads, whole)) == rows


@pytest.mark.slow
def test_the_best_gamma_is_chosen_once(run, pair_flags, tmp_path):
    command = ["table2", *SHORT, *pair_flags, "--gin.PAIRS={'small': @load_pair}"]
    command += ["--gin.TEMPERATURES=0", "--gin.GAMMAS=1,3", "--gin.BATCH_SIZES=()"]
    command += ["--gin.CHOICE_EXAMPLES=1", f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    outcome = run(*command)
    assert outcome.status == 0, outcome
    (record,) = lines(tmp_path / "results.jsonl")
    (choice,) = read_records(tmp_path / "choices.jsonl", Choice)
    assert (choice.kind, choice.draft_name, choice.num_examples) == (
        "choice",
        "small",
        1,
    )
    assert record["gamma"] == choice.best in (1, 3)

    # The choice decides, not what it would be now.
    path = tmp_path / "choices.jsonl"
    line = json.loads(path.read_text())
    other = 4 - choice.best
    line["speeds"] = {str(choice.best): 1.0, str(other): 2.0}
    path.write_text(json.dumps(line) + "\n")
    assert run(*command).status == 0
    assert [r["gamma"] for r in lines(tmp_path / "results.jsonl")] == [
        choice.best,
        other,
    ]
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        ("GAMMA=worst", "want GAMMA 'paper', 'best' or a number >= 1, got 'worst'"),
        ("GAMMA=0", "want GAMMA 'paper', 'best' or a number >= 1, got 0"),
        ("GAMMAS=0", "want GAMMAS of 1 or more"),
        ("BATCH_SIZES=1", "want BATCH_SIZES of 2 or more beside batch 1"),
        ("BATCH_DRAFT=base", "want BATCH_DRAFT of model, got 'base'"),
        ("DRAFTS=bigam", "did you mean bigram?"),
        ("DRAFTS=model", "want DRAFTS beside those of PAIRS"),
        ("PAIRS={'xsum/small': @load_pair}", "want PAIRS of the tasks ende"),
        ("PAIRS={}", "want PAIRS as {'NAME': @load_pair}"),
        ("CHOICE_EXAMPLES=0", "want CHOICE_EXAMPLES >= 1"),
    ],
)
def test_wrong_values_are_named(fails, binding, said, tmp_path):
    flags = [*SHORT[:1], f"--gin.EVAL_OUTPUT_DIR={tmp_path / 'out'}"]
    assert said in fails("table2", *flags, f"--gin.{binding}")
    assert not (tmp_path / "out").exists()
