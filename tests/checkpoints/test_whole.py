"""Folders that are whole or not there, and what kills leave of them."""

import os
import signal
import subprocess
import sys

import pytest

from spec_jax.checkpoints import CheckpointError
from spec_jax.checkpoints.whole import partial, remove_left, whole_folder

KILLED = """
import os, signal
from spec_jax.checkpoints.whole import whole_folder
with whole_folder({path!r}) as folder:
    (folder / "half").write_text("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_nothing_that_stays(tmp_path):
    path = tmp_path / "model"
    done = subprocess.run([sys.executable, "-c", KILLED.format(path=str(path))])
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".model.") and not path.exists()
    with whole_folder(path) as folder:
        (folder / "whole").write_text("x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]
    assert [entry.name for entry in path.iterdir()] == ["whole"]


def test_what_another_process_writes_now_is_left_alone(tmp_path):
    final = tmp_path / "a*b"  # a name that is a pattern too
    alive, dead = (tmp_path / f".a*b.{pid}.tmp" for pid in (os.getppid(), 2**22 + 1))
    others = [tmp_path / f".aXb.{2**22 + 1}.tmp", tmp_path / ".a*b.mine.tmp"]
    for path in (alive, dead, *others):
        path.write_text("x")
    remove_left(final)
    assert {*tmp_path.iterdir()} == {alive, *others}
    assert partial(final).name == f".a*b.{os.getpid()}.tmp"


def test_a_failure_takes_away_what_was_made(tmp_path):
    path = tmp_path / "new" / "model"
    with pytest.raises(CheckpointError, match="no space"), whole_folder(path):
        raise OSError(28, "no space")
    assert not list(tmp_path.iterdir())
