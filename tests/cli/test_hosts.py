"""Two real processes with four devices each, which talk over the network."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from spec_jax.cli import main as cli

ROOT = pathlib.Path(__file__).parents[2]
TEXTS = [
    f"{verb} the {noun}."
    for verb in ("Save", "Print")
    for noun in ("file", "page", "menu", "text", "list", "key", "name", "image")
]


def start(index, port, folder, *more):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    command = [
        *(sys.executable, "-m", "spec_jax.cli", "generate"),
        f"--input_file={folder / 'texts'}",
        f"--output_file={folder / 'out.jsonl'}",
        *("--gin.DTYPE=float32", "--batch_size=4", "--max_new_tokens=8"),
        f"--coordinator_address=localhost:{port}",
        *("--process_count=2", f"--process_index={index}", *more),
    ]
    log = open(folder / f"log{index}", "w")  # noqa: SIM115
    return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def free_port():
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_a_lost_host_ends_the_run_and_the_same_command_goes_on(tmp_path, capsys):
    (tmp_path / "texts").write_text("\n".join(TEXTS) + "\n")
    options = ("--num_partitions=2",)
    port = free_port()
    first, second = (start(i, port, tmp_path, *options) for i in (0, 1))
    part = None
    while not part or part.stat().st_size < 400:  # some outputs are there
        time.sleep(0.05)
        assert first.poll() is None, (tmp_path / "log0").read_text()
        part = next(tmp_path.glob(".out.jsonl.*.partial"), None)
    second.send_signal(signal.SIGKILL)
    assert first.wait(timeout=600) == 3
    said = (tmp_path / "log0").read_text()
    assert "error: another host was lost" in said
    assert "Traceback" not in said
    assert not (tmp_path / "out.jsonl").exists()

    port = free_port()
    both = [start(i, port, tmp_path, *options) for i in (0, 1)]
    assert [one.wait(timeout=900) for one in both] == [0, 0]
    assert (
        f"of {len(TEXTS)} outputs are there already" in (tmp_path / "log0").read_text()
    )

    alone = [
        "generate",
        f"--input_file={tmp_path / 'texts'}",
        f"--output_file={tmp_path / 'alone.jsonl'}",
        *("--gin.DTYPE=float32", "--batch_size=4", "--max_new_tokens=8"),
    ]
    assert cli.main(alone) == 0
    assert lines(tmp_path / "out.jsonl") == lines(tmp_path / "alone.jsonl")


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
