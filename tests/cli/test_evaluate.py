import gzip
import json

import pytest

from spec_jax.cli.errors import UsageError
from spec_jax.cli.evaluate import task_rows

SHORT = [
    "--gin_file=runs/evaluate.gin",
    "--gin.PLAIN_DTYPE=float32",
    "--gin.NUM_EXAMPLES=2",
    "--gin.REPEATS=1",
]


@pytest.fixture
def short_outputs(monkeypatch):
    """Random weights never end a text."""
    import dataclasses

    from spec_jax.data import examples

    shorter = {
        name: dataclasses.replace(task, max_target_length=6)
        for name, task in examples.TASKS.items()
    }
    monkeypatch.setattr(examples, "TASKS", shorter)


@pytest.mark.slow
def test_it_writes_records_a_table_and_the_configuration(
    run, pair_flags, short_outputs, tmp_path
):
    folder = tmp_path / "eval"
    command = ["evaluate", *SHORT, *pair_flags, f"--gin.EVAL_OUTPUT_DIR={folder}"]
    command += ["--gin.TASKS=ende", "--gin.TEMPERATURES=0"]
    outcome = run(*command)
    assert outcome.status == 0, outcome
    (record,) = [json.loads(x) for x in (folder / "results.jsonl").open()]
    assert (record["task"], record["temperature"], record["gamma"]) == ("ende", 0, 4)
    assert {"alpha", "c", "speedup", "speedup_formula", "metrics"} <= set(record)
    assert record["num_examples"] == 2 and record["identical"] is not None
    table = (folder / "table.md").read_text()
    assert table.startswith("| task |") and table in outcome.out
    assert "NUM_EXAMPLES = 2" in (folder / "config.gin").read_text()

    # Another run is added to the records, the table is its own.
    more = run(*command, "--gin.NUM_EXAMPLES=1")
    assert more.status == 0, more
    records = [json.loads(x) for x in (folder / "results.jsonl").open()]
    assert [record["num_examples"] for record in records] == [2, 1]
    assert (folder / "table.md").read_text().count("| ende |") == 1

    # What was written says all: the pair too.
    again = tmp_path / "again"
    config = [f"--gin_file={folder / 'config.gin'}", f"--gin.EVAL_OUTPUT_DIR={again}"]
    repeated = run("evaluate", *config)
    assert repeated.status == 0, repeated
    (record,) = [json.loads(x) for x in (again / "results.jsonl").open()]
    assert all(record[name] == records[-1][name] for name in ("pair", "alpha", "gamma"))


class Where:
    def __init__(self, data_dir, split="test"):
        self.data_dir, self.split = data_dir, split


def test_rows_come_from_the_samples_or_from_the_corpora(tmp_path):
    from spec_jax.data.examples import get_task

    assert len(task_rows(Where(None), get_task("ende"))) > 100
    with gzip.open(tmp_path / "ende.validation.jsonl.gz", "wt") as file:
        file.write('{"en": "a", "de": "b"}\n')
    rows = task_rows(Where(str(tmp_path), "validation"), get_task("ende"))
    assert rows == [{"en": "a", "de": "b"}]
    with pytest.raises(UsageError, match=r"there are the splits validation;"):
        task_rows(Where(str(tmp_path), "nope"), get_task("ende"))
    with gzip.open(tmp_path / "ende.test.jsonl.gz", "wt") as file:
        file.write('{"en": "a", "de": "b"}\n{"en": "a"}\n')
    with pytest.raises(ValueError, match=r"ende\.test\.jsonl\.gz, line 2.*'de'"):
        task_rows(Where(str(tmp_path)), get_task("ende"))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--gin.TASKS=ende,foo"], "unknown task 'foo'"),
        (["--gin.TASKS=()"], "at least one of the TASKS"),
        (
            ["--gin.TEMPERATURES=0,-1"],
            "temperature finite and >= 0 (0 is argmax), got -1",
        ),
        (["--gin.NUM_EXAMPLES=0"], "num_examples >= 1"),
        (["--gin.GAMMA=0"], "gamma >= 1"),
        (["--gin.DATA_DIR=/missing"], "spec-jax data debian --output_dir=/missing"),
        (["--gin.EVAL_OUTPUT_DIR=/dev/null/x"], "cannot write /dev/null/x"),
        (["--gin.EVAL_OUTPUT_DIR=gs://b/x"], "cannot write gs://b/x"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(fails, argv, said):
    assert said in fails("evaluate", *argv)
