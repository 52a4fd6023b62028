"""`spec-jax sweep` from end to end; a second run adds only what is missing."""

import pytest

from spec_jax.experiments.record import read_records
from spec_jax.experiments.sweep import SweepRecord

SHORT = (
    "--gin_file=runs/sweep.gin",
    "--gin.PLAIN_DTYPE=float32",
    "--gin.NUM_EXAMPLES=1",
    "--gin.REPEATS=1",
    "--gin.TEMPERATURES=1.0",
    "--gin.DRAFTS=lookup",
    "--gin.LENGTHS=fixed",
    "--gin.INPUT_LENGTH=96",
    # Random weights never end a text.
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 256, 'targets': 6}",
)


@pytest.mark.slow
def test_it_goes_on_where_it_was(run, fails, pair_flags, tmp_path):
    command = ["sweep", *SHORT, *pair_flags, f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    command.append("--gin.RULES=token,lenient")
    outcome = run(*command)
    assert outcome.status == 0, outcome
    path = tmp_path / "sweep.jsonl"
    records = read_records(path, SweepRecord)
    assert [record.rule for record in records] == ["token", "lenient"]
    assert "p / 0.5" in (tmp_path / "sweep.md").read_text()
    assert len((tmp_path / "branches.jsonl").read_text().splitlines()) == 4

    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0])  # as if it had been killed
    assert run(*command).status == 0
    again = read_records(path, SweepRecord)
    assert again[0] == records[0] and again[1].cell == records[1].cell
    assert len((tmp_path / "branches.jsonl").read_text().splitlines()) == 4

    assert "records of another configuration" in fails(*command, "--gin.GAMMA=2")
    assert read_records(path, SweepRecord) == again
