"""tpu_vm.sh by its dry run, and against a gcloud that writes down what it is told."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "launch" / "tpu_vm.sh"
BASH = shutil.which("bash")
FAKE = """\
#!{python}
import json, os, subprocess, sys
with open(os.environ["GCLOUD_LOG"], "a") as log:
    log.write(json.dumps(sys.argv[1:]) + "\\n")
lines = [w.split("=", 1)[1] for w in sys.argv if w.startswith("--command=")]
status = 0
for line in lines:  # the worker is this machine
    status = subprocess.run(["bash", "-c", line], cwd=os.environ["WORKER"]).returncode
sys.exit(status or int(os.environ.get("GCLOUD_STATUS", "0")))
"""


def tpu_vm(*words, **env):
    return subprocess.run(
        [BASH, str(SCRIPT), *words],
        env={k: v for k, v in os.environ.items() if k not in ("ZONE", "PROJECT")} | env,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def fake(tmp_path):
    """A gcloud on the path; returns its environment and a reader of its log."""
    import json

    folder = tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "worker").mkdir()
    program = folder / "gcloud"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    log = tmp_path / "log"
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "GCLOUD_LOG": str(log),
        "WORKER": str(tmp_path / "worker"),
    }

    def calls():
        return [json.loads(line) for line in log.read_text().splitlines()]

    return env, calls


def printed(run):
    """The printed commands as words."""
    text = run.stdout
    assert text.startswith("+ ")
    out = subprocess.run(
        [
            "bash",
            "-c",
            'say() { printf "%s\\0" "$@"; printf "\\n\\0"; }\n'
            + "".join(f"say {c}\n" for c in text[2:].rstrip("\n").split("\n+ ")),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [c.rstrip("\0").split("\0") for c in out.split("\n\0") if c]


VM = ["gcloud", "compute", "tpus", "tpu-vm"]


def test_a_slice_is_made_and_deleted():
    run = tpu_vm("create", "--zone=here", "--type=v5litepod-8", "--spot", "--dry_run")
    assert run.returncode == 0
    (made,) = printed(run)
    assert made == [
        *VM, "create", "spec-jax", "--accelerator-type=v5litepod-8",
        "--version=tpu-ubuntu2204-base", "--spot", "--zone=here",
    ]  # fmt: skip
    run = tpu_vm("delete", "--name=mine", "--dry_run", ZONE="here", PROJECT="us")
    (deleted,) = printed(run)
    assert deleted == [
        *VM, "delete", "mine", "--quiet", "--zone=here", "--project=us"
    ]  # fmt: skip


def test_every_worker_is_installed(fake):
    env, _ = fake
    run = tpu_vm("install", "--zone=here", "--dry_run", **env)
    archive, copy, install = printed(run)
    assert archive[:3] == ["git", "-C", str(ROOT)]
    assert copy[:5] == [*VM, "scp"] and "--worker=all" in copy
    assert copy[5] == archive[-2].removeprefix("--output=")
    assert "--worker=all" in install
    (line,) = (w for w in install if w.startswith("--command="))
    assert "spec_jax[eval,report,tpu]" in line
    assert not Path(copy[5]).exists()
    assert not os.path.exists(env["GCLOUD_LOG"])  # nothing ran


def test_a_run_reaches_the_workers_word_by_word(fake, tmp_path):
    env, calls = fake
    python = tmp_path / "worker" / "spec_jax_env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        '#!/bin/bash\nprintf "%s\\n" "$@" >words; mkdir results; exit 3\n'
    )
    python.chmod(0o755)
    words = ["evaluate", "--gin.EVAL_OUTPUT_DIR='results'", "--gin.TASKS={'a': (1, 2)}"]
    run = tpu_vm("run", "--zone=here", *words, **env)
    assert run.returncode == 3  # the worker's status is the script's
    written = (tmp_path / "worker" / "spec_jax_run" / "words").read_text()
    assert written.splitlines() == ["-m", "spec_jax.cli", *words]
    (call,) = calls()
    assert call[:5] == ["compute", "tpus", "tpu-vm", "ssh", "spec-jax"]
    assert "--worker=all" in call
    assert "+ gcloud compute tpus tpu-vm ssh" in run.stdout


def test_results_go_to_the_bucket_and_come_from_it(fake, tmp_path):
    """From the first worker alone, also when the run fails; from there on to all."""
    env, calls = fake
    python = tmp_path / "worker" / "spec_jax_env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/bash\nexit 3\n")
    python.chmod(0o755)
    host = tmp_path / "bin" / "hostname"
    for name, copies in (("t1v-n-0abc-w-0", 2), ("t1v-n-0abc-w-1", 1)):
        Path(env["GCLOUD_LOG"]).unlink(missing_ok=True)
        host.write_text(f"#!/bin/bash\necho {name}\n")
        host.chmod(0o755)
        run = tpu_vm("run", "--zone=here", "--bucket=gs://b/x", "evaluate", **env)
        assert run.returncode == 3
        storage = [call for call in calls() if call[0] == "storage"]
        assert len(storage) == copies
        assert storage[0][-2:] == ["gs://b/x", "results"]
        assert storage[1:] in ([], [[*storage[0][:-2], "results", "gs://b/x"]])


def test_results_are_fetched(fake, tmp_path):
    env, calls = fake
    to = tmp_path / "here"
    run = tpu_vm("fetch", "--zone=z", "--results=out", f"--to={to}", **env)
    assert run.returncode == 0 and to.is_dir()
    (call,) = calls()
    assert call[3:7] == ["scp", "--recurse", "spec-jax:spec_jax_run/out", str(to)]
    assert "--worker=0" in call


def test_a_run_is_stopped_and_nothing_else():
    """The command by which it goes matches it, and not the shell that it runs in."""
    run = tpu_vm("stop", "--zone=here", "--dry_run")
    ((*_, line, _),) = printed(run)
    pattern = shlex.split(line.removeprefix("--command="))[3]
    words = "../spec_jax_env/bin/python -m spec_jax.cli evaluate"
    assert re.search(pattern, words)
    for other in (f"bash -c {words}", "python -m pip", f"vi {words}"):
        assert not re.search(pattern, other)


def test_without_gcloud_nothing_begins(tmp_path):
    run = tpu_vm("create", "--zone=z", PATH="/nowhere")
    assert run.returncode == 2 and run.stdout == ""
    assert "gcloud is not on the path" in run.stderr


def test_a_failure_of_gcloud_is_the_script_s(fake):
    env, _ = fake
    run = tpu_vm("create", "--zone=here", GCLOUD_STATUS="7", **env)
    assert run.returncode == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "got ''"),
        (("rebuild",), "got 'rebuild'"),
        (("create", "--dry_run"), "zone"),
        (("create", "--zone=z", "--tpye=v4-8"), "--tpye"),
        (("run", "--zone=z"), "want a command"),
        (("run", "--zone=z", "--bucket=b", "evaluate"), "gs://"),
        (("fetch", "--zone=z", "--results=../x"), "--results"),
        (("fetch", "--zone=z", "--results=-x"), "--results"),
        (("create", "--zone=z", "--name=my slice", "--dry_run"), "'my slice'"),
        (("create", "--zone=z", "--name=--help", "--dry_run"), "--name to begin"),
        (("create", "--zone=z", "--type=", "--dry_run"), "--type to begin"),
        (("delete", "--zone=z", "everything"), "'everything'"),
    ],
)
def test_wrong_words_are_told_in_a_line(words, said):
    run = tpu_vm(*words)
    assert run.returncode == 2 and said in run.stderr
    assert run.stderr.count("\n") == 1 and run.stdout == ""


def test_words_with_blanks_survive_printing():
    run = tpu_vm("run", "--zone=z", "--dry_run", "evaluate", "--gin.X='a b'")
    ((*_, line, _),) = printed(run)
    assert shlex.split(line.removeprefix("--command=").splitlines()[-1])[-1] == (
        "--gin.X='a b'"
    )
