import json

import pytest

from spec_jax.data.samples import load_samples

SHORT = [
    "--gin_file=runs/evaluate.gin",
    "--gin.PLAIN_DTYPE=float32",
    "--gin.NUM_EXAMPLES=2",
    "--gin.REPEATS=1",
    # Random weights never end a text.
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 256, 'targets': 6}",
]


@pytest.mark.slow
def test_it_writes_records_a_table_and_the_configuration(run, pair_flags, tmp_path):
    folder = tmp_path / "eval"
    command = ["evaluate", *SHORT, *pair_flags, f"--gin.EVAL_OUTPUT_DIR={folder}"]
    command += ["--gin.MIXTURE_OR_TASK_NAME=ende", "--gin.TEMPERATURES=0"]
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

    # The same run again measures nothing.
    same = run(*command, "--gin.NUM_EXAMPLES=1")
    assert same.status == 0 and "1 of 1 examples are there" in same.err
    assert len(list((folder / "results.jsonl").open())) == 2

    # Predictions are in seqio's form, one file for each way of decoding.
    name = records[0]["run"]
    assert name.startswith("ende-T0-")
    for way in ("plain", "speculative"):
        lines = (folder / "inference_eval" / f"{name}-{way}.jsonl").open()
        rows = [json.loads(line) for line in lines]
        assert [row["target"] for row in rows] == [
            row["de"] for row in load_samples("translation")[:2]
        ]
        assert all(
            row["input"]["inputs_pretokenized"].startswith("translate English")
            and isinstance(row["prediction"], str)
            for row in rows
        )

    # What was written says all: the pair too.
    again = tmp_path / "again"
    config = [f"--gin_file={folder / 'config.gin'}", f"--gin.EVAL_OUTPUT_DIR={again}"]
    repeated = run("evaluate", *config)
    assert repeated.status == 0, repeated
    (record,) = [json.loads(x) for x in (again / "results.jsonl").open()]
    assert all(record[name] == records[-1][name] for name in ("pair", "alpha", "gamma"))


@pytest.mark.needs_t5x
@pytest.mark.slow
def test_t5x_is_timed_where_it_is_installed(run, pair_flags, tmp_path):
    """Its greedy outputs are ours, at batch 2 with a row of padding."""
    command = ["evaluate", *SHORT, *pair_flags, f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    command += ["--gin.MIXTURE_OR_TASK_NAME=ende", "--gin.TEMPERATURES=0,1"]
    outcome = run(*command, "--gin.NUM_EXAMPLES=3", "--gin.BATCH_SIZE=2")
    assert outcome.status == 0, outcome
    greedy, drawn = [json.loads(x) for x in (tmp_path / "results.jsonl").open()]
    assert greedy["baseline"]["identical"] == 1.0
    assert drawn["baseline"]["identical"] is None
    assert drawn["baseline"]["speedup"] > 0
    assert "t5x's own sampling gives" in (tmp_path / "table.md").read_text()


@pytest.fixture
def tsv(tmp_path):
    """Two examples of one's own, and the flags that choose them."""
    path = tmp_path / "mine.tsv"
    path.write_text("\ufeffSave.\tSpeichern.\nOpen\u2028it.\tÖffnen.\n", "utf-8")
    return path, [f"--gin.TASK_FILE={path}", "--gin.TEMPERATURES=0"]


def test_other_metrics_are_taken_from_the_kept_tokens(run, pair_flags, tsv, tmp_path):
    """The file names its task; a mark at its begin and odd breaks are no trouble."""
    _, flags = tsv
    folder = tmp_path / "out"
    command = ["evaluate", *SHORT, *pair_flags, *flags]
    command.append(f"--gin.EVAL_OUTPUT_DIR={folder}")
    assert run(*command).status == 0
    other = run(*command, "--gin.METRICS=('chrf','rouge')")
    assert other.status == 0, other
    records = [json.loads(line) for line in (folder / "results.jsonl").open()]
    assert [record["task"] for record in records] == ["mine", "mine"]
    assert records[0]["run"] == records[1]["run"]
    first, second = (set(record["metrics"]["plain"]) for record in records)
    assert first == {"bleu", "signature"}
    assert {"chrf", "rouge1", "rougeLsum"} <= second and "bleu" not in second
    times = ("tokens_per_second_plain", "c", "compile_seconds")
    assert all(records[0][name] == records[1][name] for name in times)
    (plain,) = (folder / "inference_eval").glob("*-plain.jsonl")
    rows = [json.loads(line) for line in plain.read_text("utf-8").split("\n")[:-1]]
    texts = [row["input"]["inputs_pretokenized"] for row in rows]
    assert texts == ["Save.", "Open\u2028it."]


def test_half_a_record_and_a_wrong_value_harm_nothing(
    run, fails, pair_flags, tsv, tmp_path
):
    _, flags = tsv
    folder = tmp_path / "out"
    command = ["evaluate", *SHORT, *pair_flags, *flags]
    command.append(f"--gin.EVAL_OUTPUT_DIR={folder}")
    assert run(*command).status == 0
    config = (folder / "config.gin").read_text()
    fails(*command, "--gin.TOP_K=-1")
    assert (folder / "config.gin").read_text() == config
    results = folder / "results.jsonl"
    results.write_text(results.read_text() + '{"task": "mi')
    more = run(*command, "--gin.GAMMA=2")
    assert more.status == 0, more
    assert len(results.read_text().splitlines()) == 3
    results.write_text('{"task": 1}\n')
    assert "results.jsonl, line 1: a record lacks" in fails(*command, "--gin.GAMMA=1")
    assert "GAMMA = 1\n" not in (folder / "config.gin").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[1]",
        '{"difference": null}',
        '{"index": 0, "batch": 0, "tokens": null, "betas": [], "histogram": [[1]], '
        '"residual_fallbacks": 0, "difference": null, "seconds": {}}',
    ],
)
def test_a_line_that_is_no_result_is_named(fails, run, pair_flags, tsv, tmp_path, line):
    _, flags = tsv
    folder = tmp_path / "out"
    command = ["evaluate", *SHORT, *pair_flags, *flags]
    command.append(f"--gin.EVAL_OUTPUT_DIR={folder}")
    folder_of = folder / "examples"
    if not folder_of.exists():
        assert run(*command, "--gin.NUM_EXAMPLES=1").status == 0
    (journal,) = folder_of.iterdir()
    head = journal.read_text().splitlines(keepends=True)[0]
    journal.write_text(head + line + "\n")
    said = fails(*command, "--gin.NUM_EXAMPLES=1")
    assert f"{journal}, line 2: no result of an example" in said


def test_a_damaged_journal_is_left_alone(fails, run, pair_flags, tmp_path):
    command = ["evaluate", *SHORT, *pair_flags, f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    command += ["--gin.MIXTURE_OR_TASK_NAME=ende", "--gin.TEMPERATURES=0"]
    assert run(*command).status == 0
    (journal,) = (tmp_path / "examples").iterdir()
    journal.write_text("nothing of ours\n")
    assert "is damaged or no record of a run" in fails(*command)
    assert journal.read_text() == "nothing of ours\n"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--gin.MIXTURE_OR_TASK_NAME=()"], "want a task in MIXTURE_OR_TASK_NAME"),
        (["--gin.MIXTURE_OR_TASK_NAME=a/b"], "TASK_FILE takes a file"),
        (["--gin.SPLIT=train"], "give DATA_DIR for the others"),
        (["--gin.TASK_FILE=x.txt", "--gin.MIXTURE_OR_TASK_NAME=x"], "want a .tsv or"),
        (
            ["--gin.TASK_FILE=x.tsv", "--gin.MIXTURE_OR_TASK_NAME=x,y"],
            "want one name for TASK_FILE",
        ),
        (["--gin.TASK_FIELDS=('a','a')"], "want two TASK_FIELDS"),
        (["--gin.TOP_P=2"], "top_p"),
        (["--gin.EVAL_OUTPUT_DIR="], "EVAL_OUTPUT_DIR"),
        (
            ["--gin.TASK_FILE=/missing.tsv", "--gin.MIXTURE_OR_TASK_NAME=x"],
            "cannot read /missing.tsv",
        ),
        (
            ["--gin.TASK_FEATURE_LENGTHS={'input': 3}"],
            "want TASK_FEATURE_LENGTHS as {'inputs'",
        ),
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
