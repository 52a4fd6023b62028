"""multihost_local.sh: what each process is told, and how all of them end."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "launch" / "multihost_local.sh"
FAKE = """\
#!/bin/bash
# Stands for an interpreter: the port, or a process that writes down what it is told.
if [ "$1" = -c ]; then echo 4567; exit; fi
index="${@: -1}"; index="${index#*=}"
printf '%s\\n' "$JAX_PLATFORMS" "$XLA_FLAGS" "$@" >"$FOLDER/words$index"
echo "output of $index"
if [ -n "$DEAF" ]; then trap "" TERM; fi
case "$index" in 1) sleep "$SLEEP"; exit "$STATUS" ;; *) exec sleep "$OTHERS" ;; esac
"""


@pytest.fixture
def run(tmp_path):
    python = tmp_path / "python"
    python.write_text(FAKE)
    python.chmod(0o755)

    def call(*words, status=0, sleep=0, others=0, **more):
        env = {"SPEC_JAX_PYTHON": str(python), "FOLDER": str(tmp_path), "XLA_FLAGS": ""}
        env |= {"STATUS": str(status), "SLEEP": str(sleep), "OTHERS": str(others)}
        env |= {"TMPDIR": str(tmp_path), "DEAF": ""}
        return subprocess.run(
            ["bash", str(SCRIPT), *words],
            env=os.environ | env | more,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return call


def test_each_process_is_told_its_place(run, tmp_path):
    ended = run("--processes=3", "--devices=2", "evaluate", "--gin.X='a b'")
    assert ended.returncode == 0, ended.stderr
    for index in range(3):
        lines = (tmp_path / f"words{index}").read_text().splitlines()
        assert lines[0] == "cpu"
        assert lines[1].split() == ["--xla_force_host_platform_device_count=2"]
        assert lines[2:] == [
            "-m",
            "spec_jax.cli",
            "evaluate",
            "--gin.X='a b'",
            "--coordinator_address=localhost:4567",
            "--process_count=3",
            f"--process_index={index}",
        ]


def test_the_first_prints_and_the_others_write(run, tmp_path):
    ended = run(f"--log_dir={tmp_path}/logs", "demo")
    assert "output of 0\n" in ended.stdout and "output of 1" not in ended.stdout
    assert (tmp_path / "logs" / "process1.log").read_text() == "output of 1\n"


def test_a_failed_process_is_named_and_its_status_kept(run):
    ended = run("demo", status=9, others=1)
    assert ended.returncode == 9
    assert "process 1 ended with status 9\noutput of 1\n" in ended.stderr
    assert "stopped" not in ended.stderr


def test_processes_that_wait_for_a_lost_one_are_stopped(run):
    ended = run("--grace=1", "demo", status=9, others=50)
    assert ended.returncode == 9
    assert "did not end within 1 s" in ended.stderr


def test_a_process_that_takes_term_for_news_is_killed(run):
    """As JAX's do once they know of each other."""
    ended = run("--grace=0", "demo", status=9, others=50, DEAF="1")
    assert ended.returncode == 9
    assert "process 0 ended with status 137" in ended.stderr


def test_a_python_that_is_none_is_told_in_a_line(run):
    ended = run("demo", SPEC_JAX_PYTHON="/no/python")
    assert ended.returncode == 2 and "'/no/python'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_dry_run_starts_nothing(run, tmp_path):
    ended = run("--dry_run", "demo")
    assert ended.returncode == 0
    assert (
        len(re.findall(r"^\+ .* demo .*--process_index=\d $", ended.stdout, re.M)) == 2
    )
    assert not list(tmp_path.glob("words*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "want a command"),
        (("--processes=0", "demo"), "--processes >= 1"),
        (("--devices=two", "demo"), "'two'"),
        (("--hosts=2", "demo"), "--hosts=2"),
        (("--log_dir=/proc/x", "demo"), "--log_dir=/proc/x"),
    ],
)
def test_wrong_words_are_told_in_a_line(run, words, said):
    ended = run(*words)
    assert ended.returncode == 2 and said in ended.stderr
    assert ended.stderr.count("\n") == 1
