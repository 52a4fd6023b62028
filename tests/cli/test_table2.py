"""`spec-jax table2` from end to end; the kill test is in test_kill.py."""

import json

import pytest

SHORT = (
    "--gin.MIXTURE_OR_TASK_NAME=ende",
    "--gin.NUM_EXAMPLES=2",
    "--gin.REPEATS=1",
    "--gin.INPUT_LENGTHS=128",
    "--gin.PLAIN_DTYPE=float32",
    # Random weights never end a text.
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 6}",
)


def lines(path):
    return [json.loads(line) for line in path.open()]


@pytest.mark.slow
def test_the_best_gamma_is_chosen_once(run, fails, pair_flags, tmp_path):
    """A row that was lost comes again, with the gamma that it had."""
    command = ["table2", *SHORT, *pair_flags, "--gin.PAIRS={'large': @load_pair}"]
    command += ["--gin.TEMPERATURES=0", "--gin.GAMMAS=1,3", "--gin.BATCH_SIZES=()"]
    command += ["--gin.CHOICE_EXAMPLES=1", f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    said = fails(*command, "--gin.GAMMA=paper", "--gin.DRAFTS=lookup")
    assert "got ende, lookup, T = 0; give GAMMA='best' or a number" in said
    assert not list(tmp_path.iterdir())
    outcome = run(*command)
    assert outcome.status == 0, outcome
    (record,) = lines(tmp_path / "results.jsonl")
    (choice,) = lines(tmp_path / "choices.jsonl")
    assert (choice["kind"], choice["draft_name"]) == ("choice", "large")
    assert (choice["num_examples"], record["num_examples"]) == (1, 2)
    assert (record["draft_name"], record["batch"]) == ("large", 1)
    gamma = record["gamma"]
    assert str(gamma) == max(choice["speeds"], key=choice["speeds"].get)
    table = (tmp_path / "table.md").read_text()
    assert table in outcome.out
    row = table.splitlines()[2]
    assert row.startswith(f"| ende | large | 0 | 1 | {gamma} (7) |")
    assert "GAMMAS = (1, 3)" in (tmp_path / "config.gin").read_text()
    assert len(list((tmp_path / "inference_eval").iterdir())) == 2

    # As if it had been killed before its row was there.
    results, chosen = tmp_path / "results.jsonl", tmp_path / "choices.jsonl"
    kept = results.read_text(), chosen.read_text()
    results.write_text(kept[0][:40])
    again = run(*command)
    assert again.status == 0 and "2 of 2 examples are there" in again.err, again
    assert chosen.read_text() == kept[1]
    again = json.loads(results.read_text().splitlines()[-1])
    assert (again["run"], again["gamma"]) == (record["run"], gamma)


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


def test_missing_tables_are_said_before_anything_is_measured(
    fails, pair_flags, tmp_path
):
    """The fault: it was said after the rows of all other drafts."""
    flags = [
        "--gin.DRAFTS=bigram",
        "--gin.GAMMA=1",
        f"--gin.EVAL_OUTPUT_DIR={tmp_path}",
    ]
    said = fails("table2", *SHORT, *pair_flags, *flags)
    assert "the draft 'bigram' wants tables" in said.splitlines()[-1]
    assert not list(tmp_path.iterdir())
