"""Two real processes with four devices each, which talk over the network."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from spec_jax.cli import hosts
from spec_jax.cli import main as cli
from spec_jax.cli.commands import COMMANDS
from spec_jax.experiments import bench
from spec_jax.experiments.costs import StepCosts

ROOT = pathlib.Path(__file__).parents[2]
TEXTS = [f"{verb} the {noun}." for verb in ("Save", "Print") for noun in ("file", "x")]
EXAMPLES = 3
SHAPES = [
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 64, 'targets': 6}",
    "--gin.BATCH_SIZE=2",  # fewer than the devices' rows: some are padding
]
EVALUATE = [
    *("--gin.MIXTURE_OR_TASK_NAME=ende", f"--gin.NUM_EXAMPLES={EXAMPLES}"),
    *("--gin.GAMMA=3", "--gin.REPEATS=1", "--gin.INPUT_LENGTHS=64"),
    *("--gin.PLAIN_DTYPE=float32", "--gin.T5X_BASELINE=False"),
    "--gin.EvaluateSettings.score_draft=False",  # saves compiling
]
# What may differ between two runs: times, when they were, and how sums were rounded.
TIMES = set(
    "seconds compile_seconds c verify_cost tokens_per_second_plain "
    "tokens_per_second_speculative speedup speedup_formula speedup_of_formula date "
    "warnings cpu_threads run".split()
)
ROUNDED = {"alpha", "alpha_stderr", "betas"}


# The command line, which takes few of the times that it would take: over a network
# of two processes on one machine a step is slow, and times are not compared.
FEW_TIMES = """
import sys
from spec_jax.cli.main import main
from spec_jax.experiments import costs
costs.step_costs.__kwdefaults__.update(iterations=2, repeats=1)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Compiling takes most of the time, and is not what is tested."""
    flags = (
        "--xla_force_host_platform_device_count=4 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_parallel_codegen_split_count=1"
    )
    return os.environ | {
        "XLA_FLAGS": flags,
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


@pytest.fixture
def start(environment, tmp_path):
    """Starts a command in two processes; their output goes to log0 and log1."""
    both = []

    def call(*words):
        with socket.socket() as one:
            one.bind(("localhost", 0))
            port = one.getsockname()[1]
        both.clear()
        for index in (0, 1):
            place = (f"--coordinator_address=localhost:{port}", "--process_count=2")
            command = [sys.executable, "-c", FEW_TIMES, *map(str, words), *place]
            with open(tmp_path / f"log{index}", "w") as log:
                both.append(
                    subprocess.Popen(
                        [*command, f"--process_index={index}", "--num_partitions=2"],
                        env=environment,
                        stdout=log,
                        stderr=log,
                    )
                )
        return both

    yield call
    for process in both:
        process.kill()


def said(folder, index=0):
    return (folder / f"log{index}").read_text()


def rows(file):
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def measured(folder):
    """All that an evaluation wrote, by name, and apart from it what is rounded."""
    kept, rounded = {}, []
    for file in sorted(folder.rglob("*.jsonl")):
        name = re.sub(r"-[0-9a-f]{12}", "", str(file.relative_to(folder)))
        lines = rows(file)
        if name.startswith("examples"):
            lines = sorted(lines[1:], key=lambda line: line["index"])
            assert [line["index"] for line in lines] == list(range(EXAMPLES))
        rounded += [line[x] for line in lines for x in sorted(ROUNDED) if x in line]
        kept[name] = [
            {k: v for k, v in line.items() if k not in TIMES | ROUNDED}
            for line in lines
        ]
    return kept, rounded


@pytest.mark.slow
def test_evaluate_is_that_of_one_process_also_after_a_kill(
    start, pair_flags, tmp_path, monkeypatch
):
    """One of two processes dies in the middle; all are started again."""
    folder, alone = tmp_path / "both", tmp_path / "alone"
    command = ["evaluate", *pair_flags, *SHAPES, *EVALUATE]
    at = f"--gin.EVAL_OUTPUT_DIR={folder}"
    first, second = start(*command, at)
    while not list(folder.glob("examples/*-T1-*")):  # one temperature is done
        time.sleep(0.05)
        assert first.poll() is None, said(tmp_path)
    second.send_signal(signal.SIGKILL)
    assert first.wait(timeout=600) == 3
    assert "error: another host was lost" in said(tmp_path)
    assert "Traceback" not in said(tmp_path)
    before = {file: file.read_bytes() for file in folder.rglob("*-T0-*")}
    assert len(before) == 3 and len(rows(folder / "results.jsonl")) == 1

    assert [one.wait(timeout=900) for one in start(*command, at)] == [0, 0]
    assert f"of {EXAMPLES} examples are there: " in said(tmp_path)
    for file, content in before.items():
        assert file.read_bytes() == content  # nothing is measured twice
    assert not list(folder.rglob("*.partial"))

    # Times are not compared, and to take them takes the longest.
    monkeypatch.setattr(bench, "measure_costs", lambda *_: StepCosts(1.0, 1.0, 1.0))
    assert cli.main([*command, f"--gin.EVAL_OUTPUT_DIR={alone}"]) == 0
    (kept, rounded), (wanted, exact) = measured(folder), measured(alone)
    assert len(wanted) == 2 * 3 + 1 and len(wanted["results.jsonl"]) == 2
    assert kept == wanted
    for ours, theirs in zip(rounded, exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.slow
def test_generate_draws_the_tokens_of_one_process(start, pair_flags, tmp_path):
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    command = [
        *("generate", *pair_flags, "--temperature=1", "--batch_size=3"),
        *(f"--input_file={tmp_path / 'texts'}", "--max_new_tokens=8"),
    ]
    out, alone = tmp_path / "out.jsonl", tmp_path / "alone.jsonl"
    both = start(*command, f"--output_file={out}")
    assert [one.wait(timeout=900) for one in both] == [0, 0], said(tmp_path)
    assert cli.main([*command, f"--output_file={alone}"]) == 0
    assert rows(out) == rows(alone)
    assert len({row["prediction"] for row in rows(out)}) == len(TEXTS)


@pytest.mark.slow
def test_a_host_that_is_told_to_end_ends(start, pair_flags, tmp_path):
    """As where a slice is about to be taken away: JAX would keep it as a notice."""
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    first, second = start(
        *("generate", *pair_flags, "--batch_size=2", "--max_new_tokens=8"),
        *(f"--input_file={tmp_path / 'texts'}", f"--output_file={tmp_path / 'out'}"),
    )
    while not list(tmp_path.glob(".out.*.partial")):
        time.sleep(0.05)
        assert first.poll() is None, said(tmp_path)
    second.terminate()
    assert second.wait(timeout=20) == 128 + signal.SIGTERM
    assert first.wait(timeout=600) == 3
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "flags, wanted",
    [
        (["--process_count=2"], "--process_index together, got None, 2, None"),
        (
            ["--coordinator_address=x:1", "--process_count=2", "--process_index=2"],
            "--process_index in 0 .. 1, got 2 of 2",
        ),
    ],
)
def test_flags_that_do_not_fit_are_named(flags, wanted, capsys):
    assert cli.main(["generate", "A text.", *flags]) == 2
    assert wanted in capsys.readouterr().err


def test_partitions_that_do_not_divide_are_named(capsys):
    assert cli.main(["generate", "A text.", "--num_partitions=3"]) == 2
    said = capsys.readouterr().err
    assert "want num_partitions that divides the" in said
    assert said.endswith("devices, got 3\n")


@pytest.mark.parametrize(
    "name", sorted({one.name for one in COMMANDS} - {"generate", "evaluate"})
)
def test_other_commands_are_of_one_process(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ["--coordinator_address=x:1", "--process_count=2", "--process_index=0"]
    for words in (flags, ["--multiprocess"]):
        assert cli.main([*name.split(), *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line == (
            f"error: {name} runs in one process, got {words[0].partition('=')[0]}; "
            "generate and evaluate run in several"
        )
    assert not list(tmp_path.iterdir())


def test_hosts_that_were_given_different_things_end(monkeypatch):
    head = {"texts": "abc", "seed": 0, "pair": "x"}
    theirs = [head]
    monkeypatch.setattr(hosts, "_joined", True)
    monkeypatch.setattr(
        hosts,
        "_of_all",
        lambda values: np.stack([values, *map(hosts._codes, theirs)]),
    )
    hosts.check_same(head)
    theirs.append(head | {"seed": 1})
    with pytest.raises(ValueError, match="on every host, got other seed: give all"):
        hosts.check_same(head)
