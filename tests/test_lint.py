"""Linters as tests, so that one command says whether a change is ready."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run_module(*command):
    run = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True
    )
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "--no-cache", "."),
        ("ruff", "format", "--check", "--no-cache", "."),
        ("codespell_lib", "."),
    ],
    ids=["ruff-lint", "ruff-format", "codespell"],
)
def test_clean(command):
    status, output = run_module(*command)
    assert status == 0, output


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("ruff", "check", "--no-cache"), "import os\n"),
        (("ruff", "format", "--check", "--no-cache"), "x = [1,2]\n"),
        (("codespell_lib",), "# the reci" + "eved token\n"),
    ],
    ids=["ruff-lint", "ruff-format", "codespell"],
)
def test_the_linters_see_a_fault(command, text, tmp_path):
    (tmp_path / "faulty.py").write_text(text)
    status, _ = run_module(*command, str(tmp_path))
    assert status != 0
