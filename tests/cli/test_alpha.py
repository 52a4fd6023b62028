"""`spec-jax alpha` and `lenience` from end to end; killed runs go on."""

import dataclasses
import json
import pathlib

import pytest

from spec_jax.cli import evaluate, lenience
from spec_jax.cli.configuration import build, configure
from spec_jax.core.rules import LenientRule
from spec_jax.experiments.alpha_record import AlphaRecord
from spec_jax.experiments.record import read_records

ROOT = pathlib.Path(__file__).parents[2]
TOKENS = 20
SHORT = (
    "--gin.MIXTURE_OR_TASK_NAME=ende",
    "--gin.DRAFTS=lookup",
    "--gin.BATCH_SIZE=2",
    "--gin.INPUT_LENGTHS=256",
    # Random weights never end a text.
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 256, 'targets': 6}",
)


def read(folder):
    return read_records(folder / "alpha.jsonl", AlphaRecord)


def without_date(records):
    return [{**json.loads(r.to_json()), "date": ""} for r in records]


@pytest.mark.slow
def test_alpha_goes_on_where_it_was(run, fails, pair_flags, tmp_path):
    """Two pairs by name, a copy as a draft; every figure again after a kill."""
    both = "--gin.PAIRS={'small': @load_pair, 'large': @load_pair}"
    command = ["alpha", *SHORT, *pair_flags, both, "--gin.TEMPERATURES=0"]
    command += [f"--gin.NUM_TOKENS={TOKENS}", f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    outcome = run(*command)
    assert outcome.status == 0, outcome
    records = read(tmp_path)
    assert [r.draft_name for r in records] == ["small", "lookup", "large"]
    assert {(r.task, r.temperature, r.lenience) for r in records} == {("ende", 0, 1)}
    # Four texts of six tokens, the last one cut.
    assert {(r.tokens, r.num_examples) for r in records} == {(TOKENS, 4)}
    small, lookup, large = records
    assert small.alpha == large.alpha and lookup.run != small.run
    table = (tmp_path / "table.md").read_text()
    assert table in outcome.out
    head, _, *rows = table.splitlines()
    assert head == "| task | draft | T = 0 | paper |"
    assert [row.split(" | ")[1] for row in rows[:3]] == ["small", "large", "lookup"]
    assert [row.split(" | ")[3] for row in rows[:3]] == ["0.75 |", "0.82 |", " |"]
    assert f"NUM_TOKENS = {TOKENS}" in (tmp_path / "config.gin").read_text()

    # As if it had been killed: in the lines, and in the outputs.
    path = tmp_path / "alpha.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1][:30])
    (outputs,) = (tmp_path / "outputs").iterdir()
    whole = outputs.read_text()
    assert len(whole.splitlines()) == 1 + 4
    outputs.write_text("".join(whole.splitlines(keepends=True)[:2]) + '{"ind')
    assert run(*command).status == 0
    assert outputs.read_text() == whole
    kept = [line for line in path.read_text().splitlines() if line.endswith("}")]
    again = [AlphaRecord.from_json(line) for line in kept]
    assert again[0] == small
    assert without_date(again) == without_date(records)
    assert (tmp_path / "table.md").read_text() == table

    # More tokens go on from the outputs that are there.
    assert run(*command, f"--gin.NUM_TOKENS={TOKENS + 5}").status == 0
    assert outputs.read_text().startswith(whole)
    assert len(outputs.read_text().splitlines()) == 1 + 6

    outputs.write_text(whole.splitlines(keepends=True)[0] + '{"index": 0}\n')
    assert f"{outputs}, line 2: no output of an example" in fails(*command)


@pytest.mark.slow
def test_lenience_measures_all_from_one_pass(run, pair_flags, tmp_path):
    command = ["lenience", *SHORT, *pair_flags, f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    command += ["--gin.TEMPERATURES=1", "--gin.NUM_TOKENS=12", "--gin.DRAFTS=()"]
    command.append("--cpu_threads=1")
    outcome = run(*command, "--gin.LENIENCES=1,.5")
    assert outcome.status == 0, outcome
    records = read(tmp_path)
    assert [(r.draft_name, r.lenience) for r in records] == [
        ("model", 1),
        ("model", 0.5),
    ]
    assert records[0].alpha < records[1].alpha
    assert records[0].run == records[1].run
    table = (tmp_path / "table.md").read_text()
    assert table.startswith("| task | T | draft | l = 1 | l = 0.5 |")

    # Alone, the missing one is measured again, and is the same; timed besides.
    path = tmp_path / "alpha.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0])
    timed = ["--gin.SPEED_EXAMPLES=1", "--gin.REPEATS=1", "--gin.GAMMA=2"]
    timed.append("--gin.PLAIN_DTYPE=float32")
    assert run(*command, *timed, "--gin.LENIENCES=.5").status == 0
    assert without_date(read(tmp_path)) == without_date(records)
    (speed,) = [json.loads(line) for line in (tmp_path / "results.jsonl").open()]
    assert (speed["rule"], speed["lenience"], speed["gamma"]) == ("lenient", 0.5, 2)
    assert speed["draft_name"] == "model" and speed["temperature"] == 0
    assert speed["num_examples"] == 1
    said = "Speed at T = 0 over plain decoding, gamma 2"
    assert said in (tmp_path / "table.md").read_text()


@pytest.fixture
def not_measured(monkeypatch):
    """What would be measured, in order; nothing is."""
    asked = []
    (known, *_) = read_records(ROOT / "docs" / "results" / "jax_0.12.jsonl")

    def measure_one(pairs, data, settings, *rest):
        asked.append(settings)
        return dataclasses.replace(known, gamma=settings.gamma)

    monkeypatch.setattr(evaluate, "measure_one", measure_one)
    return asked


def test_evaluate_over_gammas(run, fails, pair_flags, not_measured, tmp_path):
    """Figures 2 and 4: records that differ in gamma."""
    command = ["evaluate", *pair_flags, f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]
    command += ["--gin.MIXTURE_OR_TASK_NAME=ende", "--gin.PLAIN_DTYPE=float32"]
    outcome = run(*command, "--gin.GAMMAS=1,3")
    assert outcome.status == 0, outcome
    asked = [(one.temperature, one.gamma) for one in not_measured]
    assert asked == [(0, 1), (0, 3), (1, 1), (1, 3)]
    assert "ende, T = 0, gamma 3: " in outcome.err
    assert run(*command).status == 0
    assert [one.gamma for one in not_measured[4:]] == [4, 4]
    assert "gamma >= 1" in fails(*command, "--gin.GAMMAS=2,0")
    assert "want at least one of GAMMAS" in fails(*command, "--gin.GAMMAS=()")


def test_speed_without_lenience_is_that_of_the_token_rule(
    pair_flags, not_measured, tmp_path
):
    files, bindings = ["runs/lenience.gin"], []
    for flag in [*pair_flags, f"--gin.EVAL_OUTPUT_DIR={tmp_path}"]:
        name, _, value = flag.removeprefix("--").partition("=")
        if name == "gin_file":
            files.append(value)
        else:
            name = name.removeprefix("gin.")
            bindings.append(f"{name} = {value!r}")
    bindings += ["MIXTURE_OR_TASK_NAME = 'ende'", "SPEED_EXAMPLES = 1"]
    bindings += ["LENIENCES = (1.0, 0.3)", "TOP_K = 5"]
    configure("lenience", files, bindings)
    speeds = lenience.measure_speeds(build("lenience"), "")
    assert [name for name, _ in speeds] == ["model", "model"]
    assert [one.rule for one in not_measured] == [None, LenientRule(0.3)]
    assert {(one.temperature, one.top_k, one.batch) for one in not_measured} == {
        (0, 5, 1)
    }


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["alpha", "--gin.DRAFTS=model"], "want DRAFTS of unigram, bigram"),
        (["alpha", "--gin.DRAFTS=trigram"], "got 'trigram'"),
        (["alpha", "--gin.PAIRS={}"], "want PAIRS as {'NAME': @load_pair}"),
        (["alpha", "--gin.PAIRS={'small': 3}"], "want PAIRS as {'NAME': @load_pair}"),
        (["alpha", "--gin.PAIRS=3"], "alpha.pairs wants a dict"),
        (["alpha", "--gin.PAIRS={'lookup': %PAIR}"], "want each draft once"),
        (["alpha", "--gin.TEMPERATURES=()"], "want at least one of TEMPERATURES"),
        (["alpha", "--gin.TEMPERATURES=-1"], "temperature finite and >= 0"),
        (["alpha", "--gin.NUM_TOKENS=0"], "want num_tokens >= 1"),
        (["alpha", "--gin.EVAL_OUTPUT_DIR="], "want a folder in EVAL_OUTPUT_DIR"),
        (["alpha", "--gin.EVAL_OUTPUT_DIR=/dev/null/x"], "cannot write /dev/null/x"),
        (["alpha", "--gin.DATA_DIR=/missing"], "spec-jax data debian"),
        (["lenience", "--gin.LENIENCES=1,0"], "want lenience in (0, 1], got 0"),
        (["lenience", "--gin.LENIENCES=()"], "want at least one lenience"),
        (["lenience", "--gin.SPEED_EXAMPLES=-1"], "want SPEED_EXAMPLES >= 0"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(fails, argv, said):
    assert said in fails(*argv)
