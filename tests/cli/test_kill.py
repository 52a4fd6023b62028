"""kill -9 during `evaluate`, `table2`, `distill` and `generate`: nothing is lost, or
comes twice.

`KILL_SHIPPED=1` takes the shipped pair and 200 whole examples, not a tiny pair;
`ALL_KILLS=1` kills `table2` and `distill` ten times, not twice.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from spec_jax.checkpoints import load_params
from spec_jax.cli.evaluate import RESULTS
from spec_jax.data.samples import load_samples

SHIPPED = os.environ.get("KILL_SHIPPED") == "1"
KILLS, EXAMPLES = 10, 200
SOME_KILLS = KILLS if os.environ.get("ALL_KILLS") == "1" else 2
MOST_SECONDS = 3000 if SHIPPED else 200
# What may differ between two runs: times, and when they were.
TIMES = {
    "seconds",
    "compile_seconds",
    "c",
    "verify_cost",
    "tokens_per_second_plain",
    "tokens_per_second_speculative",
    "speedup",
    "speedup_formula",
    "speedup_of_formula",
    "baseline",
    "target_tokens_per_second",
    "date",
    "warnings",
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Programs are compiled once for all processes."""
    cache = tmp_path_factory.mktemp("programs")
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": os.getcwd(),
    }


def command(name, *flags):
    return [sys.executable, "-m", "spec_jax.cli", name, *map(str, flags)]


def written(folder):
    """Bytes of all that grows, hidden files too."""
    files = [path for path in folder.rglob("*.*") if path.is_file()]
    return sum(path.stat().st_size for path in files if path.exists())


def seconds_to_begin(argv, environment, folder):
    """Runs a command to its end; gives the seconds until it wrote something."""
    process = subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    began = time.monotonic()
    while process.poll() is None and not written(folder):
        time.sleep(0.002)
    seconds = time.monotonic() - began
    out = process.communicate()[0].decode()
    assert process.returncode == 0, out
    return seconds


def run_killed(argv, environment, folder, whole, begins, rng, count=KILLS):
    """Starts the command until it ends by itself, killing it `count` times.

    Half of the kills come when a random share of all bytes is written; the others
    while it starts, in imports or loading. No run ends before it has begun to write,
    so none of them comes too late.
    """
    marks = sorted(rng.uniform(0.02, 0.98) * whole for _ in range(count // 2))
    for kills in range(10 * count):
        process = subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        ends = time.monotonic() + MOST_SECONDS
        late = time.monotonic() + rng.uniform(0.05, 0.8) * begins
        by_size = kills % 2 == 1 and bool(marks)
        while process.poll() is None:
            assert time.monotonic() < ends
            now = written(folder) >= marks[0] if by_size else time.monotonic() > late
            if now and kills < count:
                process.send_signal(signal.SIGKILL)
                process.wait()
                marks = marks[1:] if by_size else marks
            time.sleep(0.002)
        out = process.communicate()[0].decode()
        if process.returncode != -signal.SIGKILL:
            assert process.returncode == 0, out
            return kills
    raise AssertionError("the command never ended by itself")


def undisturbed_and_killed(make_command, environment, folder, count=KILLS):
    """Runs a command to its end, and again in another folder with kills.

    Args:
      make_command: from the folder that it writes into.
      environment: of the processes.
      folder: for both.
      count: how many kills.

    Returns:
      The folders that the two wrote, and how many kills came before its end.
    """
    whole, other = folder / "whole", folder / "killed"
    begins = seconds_to_begin(make_command(whole), environment, whole)
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng, size = random.Random(seed), written(whole)
    killed = run_killed(
        make_command(other), environment, other, size, begins, rng, count
    )
    return whole, other, killed


def without_times(path):
    """The content of a file that two runs must share."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix != ".jsonl":
        return lines
    rows = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): without_times(path)
        for path in files
        if path.name != "table.md"
    }


@pytest.fixture(scope="module")
def shapes(pair_flags):
    if SHIPPED:
        return ["--gin_file=pairs/shipped.gin"]
    lengths = "{'inputs': 128, 'targets': 8}"
    return [*pair_flags, f"--gin.TASK_FEATURE_LENGTHS={lengths}"]


@pytest.mark.slow
def test_evaluate(shapes, environment, tmp_path):
    """Ten kills over T = 0 and T = 1."""
    flags = [
        "--gin_file=runs/evaluate.gin",
        *shapes,
        "--gin.MIXTURE_OR_TASK_NAME=ende",
        f"--gin.NUM_EXAMPLES={EXAMPLES}",
        "--gin.REPEATS=1",
        "--gin.PLAIN_DTYPE=float32",
        "--gin.INPUT_LENGTHS=128",
        "--gin.BATCH_SIZE=8",
        "--gin.GAMMA=3",
        "--cpu_threads=1",
    ]

    def evaluate(folder):
        return command("evaluate", *flags, f"--gin.EVAL_OUTPUT_DIR={folder}")

    whole, folder, killed = undisturbed_and_killed(evaluate, environment, tmp_path)
    assert killed == KILLS
    want, got = contents(whole), contents(folder)
    config = got.pop("config.gin")
    assert [x.replace(str(folder), str(whole)) for x in config] == want.pop(
        "config.gin"
    )
    assert got.keys() == want.keys() and len(want) == 1 + 2 * 3
    for name in want:
        assert got[name] == want[name], name
    for name in want:
        if name.startswith("examples"):
            indices = [row["index"] for row in want[name] if "index" in row]
            assert sorted(indices) == list(range(EXAMPLES))
    assert [row["num_examples"] for row in want[RESULTS]] == [EXAMPLES] * 2


@pytest.mark.slow
def test_table2(pair_flags, environment, tmp_path):
    """Kills over rows of two drafts, and of batches of 2."""
    examples = 24
    flags = [
        *pair_flags,
        "--gin.PAIRS={'small': @load_pair, 'large': @load_pair}",
        "--gin.MIXTURE_OR_TASK_NAME=ende",
        "--gin.TASK_FEATURE_LENGTHS={'inputs': 128, 'targets': 8}",
        "--gin.TEMPERATURES=1",
        f"--gin.NUM_EXAMPLES={examples}",
        "--gin.REPEATS=1",
        "--gin.PLAIN_DTYPE=float32",
        "--gin.INPUT_LENGTHS=128",
        "--gin.GAMMA=paper",
        "--gin.BATCH_SIZES=2",
        "--gin.BATCH_DRAFT=small",
        "--cpu_threads=1",
    ]

    def table2(folder):
        return command("table2", *flags, f"--gin.EVAL_OUTPUT_DIR={folder}")

    whole, folder, killed = undisturbed_and_killed(
        table2, environment, tmp_path, SOME_KILLS
    )
    assert killed == SOME_KILLS
    want, got = contents(whole), contents(folder)
    config = [x.replace(str(folder), str(whole)) for x in got.pop("config.gin")]
    assert config == want.pop("config.gin")
    assert got.keys() == want.keys() and len(want) == 1 + 3 * 3
    for name in want:
        assert got[name] == want[name], name
    rows = [(row["draft_name"], row["batch"], row["gamma"]) for row in got[RESULTS]]
    assert rows == [("small", 1, 7), ("large", 1, 3), ("small", 2, 7)]


@pytest.mark.slow
def test_distill(pair_flags, environment, tmp_path):
    """Kills while the target answers, between checkpoints and while one is written."""
    texts = tmp_path / "texts.tsv"
    texts.write_text("".join(f"Open file {i}.\tDatei {i}\n" for i in range(48)))
    flags = [
        *pair_flags,
        f"--gin.TASK_FILE={texts}",
        "--gin.TASK_FEATURE_LENGTHS={'inputs': 24, 'targets': 12}",
        "--gin.NUM_VALIDATION=8",
        "--gin.TRAIN_STEPS=60",
        "--gin.BATCH_TOKENS=64",
        # Lines far beyond a checkpoint: a kill leaves some that are written again.
        "--gin.CHECKPOINT_PERIOD=20",
        "--gin.EVAL_PERIOD=5",
        "--gin.ON_POLICY=0.3",
        "--cpu_threads=1",
    ]

    def distill(folder):
        return command("distill", *flags, f"--gin.MODEL_DIR={folder}")

    whole, folder, killed = undisturbed_and_killed(
        distill, environment, tmp_path, SOME_KILLS
    )
    assert killed == SOME_KILLS
    files = {
        str(path.relative_to(whole))
        for path in (
            *whole.iterdir(),
            *whole.glob("outputs/*"),
            *whole.glob("export/*"),
        )
        if path.is_file()
    }
    assert len(files) == 2 + 4 + 2  # of two temperatures, to learn from and held out
    for name in files - {"config.gin", "metrics.jsonl"}:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    lines = without_times(whole / "metrics.jsonl")
    assert without_times(folder / "metrics.jsonl") == lines
    assert [line["step"] for line in lines] == list(range(0, 61, 5))
    assert {path.name for path in folder.iterdir()} == {
        path.name for path in whole.iterdir()
    }
    jax.tree.map(np.testing.assert_array_equal, *map(load_params, (whole, folder)))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0])
def test_generate(shapes, environment, tmp_path, temperature):
    """The same, in batches of 8 with two outputs a text."""
    texts = tmp_path / "texts.txt"
    rows = load_samples("translation")[:100]
    texts.write_text("\n".join(row["en"] for row in rows), "utf-8")

    def generate(folder):
        return command(
            "generate",
            *shapes,
            f"--input_file={texts}",
            f"--temperature={temperature}",
            "--num_return_sequences=2",
            "--gin.DTYPE=float32",
            "--gin.MAX_NEW_TOKENS=8",
            "--cpu_threads=1",
            f"--gin.INFER_OUTPUT_DIR={folder}",
        )

    whole, folder, _ = undisturbed_and_killed(generate, environment, tmp_path)
    name = "ende-predict.jsonl-00000-of-00001"
    assert {path.name for path in folder.iterdir()} == {name, "config.gin"}
    assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert len((whole / name).read_text("utf-8").splitlines()) == 200


def test_the_check_sees_a_lost_and_a_repeated_example(tmp_path):
    """Planted faults in what is compared."""
    rows = [{"index": i, "tokens": [i], "seconds": i / 7} for i in range(3)]
    for name, kept in {
        "whole": rows,
        "late": [{**row, "seconds": 9} for row in rows],
        "lost": rows[:2],
        "twice": [*rows, rows[-1]],
        "changed": [*rows[:2], {**rows[2], "tokens": [5]}],
    }.items():
        path = pathlib.Path(tmp_path, name, "examples", "x.jsonl")
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    whole = contents(tmp_path / "whole")
    assert contents(tmp_path / "late") == whole
    for name in ("lost", "twice", "changed"):
        assert contents(tmp_path / name) != whole
