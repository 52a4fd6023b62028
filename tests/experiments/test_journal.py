"""A file that a kill cannot harm."""

import json
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.experiments.journal import (
    Journal,
    digest,
    digest_of_parameters,
    digest_of_texts,
    json_line,
)

HEAD = {"settings": "gamma 4", "pair": "tiny"}
LINES = [{"index": i, "tokens": [i, i + 1]} for i in range(4)]


def reopened(path, head=HEAD):
    with Journal(path, head) as journal:
        return journal.lines


def test_lines_are_there_again(tmp_path):
    path = tmp_path / "new" / "journal.jsonl"
    with Journal(path, HEAD) as journal:
        assert not path.parent.exists()  # nothing is made before there is a line
        journal.append(LINES[:1])
        journal.append(LINES[1:3])
    assert reopened(path) == LINES[:3]
    with Journal(path, HEAD) as journal:
        journal.append(LINES[3:])
        assert journal.lines == LINES
    assert reopened(path) == LINES
    assert path.read_text() == "".join(map(json_line, [{"head": HEAD}, *LINES]))


def test_at_whatever_byte_it_is_cut_whole_lines_stay(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD) as journal:
        journal.append(LINES)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = max(sum(end <= cut for end in ends) - 1, 0)
        with Journal(path, HEAD) as journal:
            assert journal.lines == LINES[:kept]
            journal.append(LINES[kept:])
        assert path.read_bytes() == whole


def test_another_run_is_named(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD) as journal:
        journal.append(LINES)
    with pytest.raises(ValueError, match="run with other settings: remove it, or"):
        Journal(path, {**HEAD, "settings": "gamma 5"})
    assert reopened(path) == LINES


@pytest.mark.parametrize("content", ["{}\n", "no json\n", "[1]\n", '{"head": 1\n{}\n'])
def test_what_is_no_journal_is_left_alone(tmp_path, content):
    path = tmp_path / "journal.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match="damaged or no record of a run"):
        Journal(path, HEAD)
    assert path.read_text() == content


def test_two_runs_do_not_write_one_file(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD) as journal:
        journal.append(LINES[:1])
        with pytest.raises(ValueError, match="another run writes to"):
            Journal(path, HEAD)
    assert reopened(path) == LINES[:1]


def test_what_json_does_not_know_is_kept_as_it_is_written(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD) as journal:
        journal.append([{"array": np.array([1, 2]), "other": {3}}])
        kept = journal.lines
    assert kept == [{"array": [1, 2], "other": "{3}"}] == reopened(path)


def test_a_run_that_came_in_between_is_seen(tmp_path):
    """Both began before there was a file."""
    path = tmp_path / "journal.jsonl"
    late = Journal(path, HEAD)
    with Journal(path, HEAD) as journal:
        journal.append(LINES[:1])
    with pytest.raises(ValueError, match=r"another run has written .* meanwhile"):
        late.append(LINES[1:2])
    assert reopened(path) == LINES[:1]


def test_texts_may_hold_other_breaks_of_lines(tmp_path):
    path = tmp_path / "journal.jsonl"
    lines = [{"text": "a\u2028b\u2029c\x85d\x1ce"}, {"text": "f"}]
    with Journal(path, HEAD) as journal:
        journal.append(lines)
    assert reopened(path) == lines


def test_a_full_disk_leaves_whole_lines(tmp_path):
    """In a process that may write 200 bytes a file."""
    path = tmp_path / "journal.jsonl"
    program = f"""
import resource, signal
from spec_jax.experiments.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
journal = Journal({str(path)!r}, {HEAD!r})
for line in {LINES!r} * 9:
    journal.append([line])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert done.returncode == 1 and b"OSError" in done.stderr, done.stderr
    kept = reopened(path)
    assert 1 < len(kept) < 9 and kept == (LINES * 9)[: len(kept)]


def test_a_killed_writer_lets_go(tmp_path):
    path = tmp_path / "journal.jsonl"
    program = f"""
import os, signal
from spec_jax.experiments.journal import Journal
Journal({str(path)!r}, {HEAD!r}).append({LINES!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program])
    assert done.returncode == -signal.SIGKILL
    assert reopened(path) == LINES


def test_not_a_number_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD) as journal, pytest.raises(ValueError, match="JSON"):
        journal.append([{"x": float("nan")}])
    assert not path.exists()


def test_digests_tell_runs_apart():
    assert digest(HEAD) == digest(dict(reversed(HEAD.items())))
    assert digest(HEAD) != digest({**HEAD, "pair": "other"})
    assert digest_of_texts(["ab", "c"]) != digest_of_texts(["a", "bc"])
    params = {"a": jnp.ones((3, 4)), "b": jnp.zeros(2), "c": jnp.float32(1)}
    same = digest_of_parameters(jax.tree.map(jnp.array, params))
    assert digest_of_parameters(params) == same
    changed = [
        {**params, "b": jnp.zeros(3)},
        {**params, "a": params["a"].at[0, 1].set(2.0)},
        {**params, "c": jnp.float32(2)},
        {**params, "a": params["a"].at[2, 3].set(-1.5)},
        {**params, "a": params["a"].at[0, 1].set(3.0).at[2, 2].set(-1.0)},
        {"d": params["b"], "a": params["a"], "c": params["c"]},
        {**params, "b": params["b"].astype("bfloat16")},
    ]
    assert len({same, *map(digest_of_parameters, changed)}) == 8
    assert json.loads(json_line({"ä": 1})) == {"ä": 1}
    odd = {"target": {1}, "array": np.array([1, 2]), "number": np.int32(3)}
    assert json.loads(json_line(odd)) == {"target": "{1}", "array": [1, 2], "number": 3}
