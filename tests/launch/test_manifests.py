"""The manifests: whole slices, restarts, and a command that there is."""

import math
import re
from pathlib import Path

import pytest

from spec_jax.cli.main import main

yaml = pytest.importorskip("yaml")
GKE = Path(__file__).resolve().parents[2] / "launch" / "gke"
MANIFESTS = sorted(GKE.glob("*.yaml"))
CHIPS_OF_MACHINE = {"ct4p-hightpu-4t": 4, "ct5lp-hightpu-4t": 4}


def read(path):
    (manifest,) = yaml.safe_load_all(path.read_text("utf-8"))
    (job,) = manifest["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    return manifest, spec, container


def test_there_are_some():
    names = {path.stem for path in MANIFESTS}
    assert names == {"v4-16", "v5e-8"}


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.stem)
def test_a_slice_is_asked_for_whole(path):
    manifest, spec, container = read(path)
    assert manifest["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert manifest["kind"] == "JobSet"
    chosen = spec["template"]["spec"]["nodeSelector"]
    assert chosen["cloud.google.com/gke-tpu-accelerator"] in (
        "tpu-v4-podslice",
        "tpu-v5-lite-podslice",
    )
    topology = chosen["cloud.google.com/gke-tpu-topology"]
    chips = math.prod(map(int, topology.split("x")))
    limits = container["resources"]["limits"]
    assert limits == container["resources"]["requests"]
    assert spec["parallelism"] == spec["completions"] > 1
    assert chips == spec["parallelism"] * limits["google.com/tpu"]
    (machine,) = re.findall(r"ct\w+-hightpu-\dt", path.read_text("utf-8"))
    assert limits["google.com/tpu"] == CHIPS_OF_MACHINE[machine]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.stem)
def test_a_preempted_slice_begins_again_where_it_was(path):
    manifest, spec, container = read(path)
    pod = spec["template"]["spec"]
    assert manifest["spec"]["failurePolicy"]["maxRestarts"] > 1
    assert spec["backoffLimit"] == 0 and pod["restartPolicy"] == "Never"
    # Spot nodes carry a taint by that name.
    assert pod["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    (taint,) = pod["tolerations"]
    assert (taint["key"], taint["value"]) == ("cloud.google.com/gke-spot", "true")
    (mount,) = container["volumeMounts"]
    (volume,) = pod["volumes"]
    assert mount["name"] == volume["name"]
    assert volume["csi"]["driver"] == "gcsfuse.csi.storage.gke.io"
    annotations = spec["template"]["metadata"]["annotations"]
    assert annotations["gke-gcsfuse/volumes"] == "true"
    (output,) = (a for a in container["args"] if "EVAL_OUTPUT_DIR" in a)
    assert output.split("=")[1].startswith(mount["mountPath"] + "/")


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.stem)
def test_the_command_is_one_that_the_program_takes(path, capsys):
    _, _, container = read(path)
    assert container["command"] == ["spec-jax"]
    assert "--multiprocess" in container["args"]
    assert main([*container["args"], "--dry_run"]) == 0
    said = capsys.readouterr().out
    assert f"EVAL_OUTPUT_DIR = '/results/{path.stem}'" in said
    assert "BATCH_SIZE = 8" in said
    # One chip holds a whole copy of the models.
    memory = float(re.search(r"Memory in all: ([\d.]+) GiB", said)[1])
    assert memory < {"v4-16": 32, "v5e-8": 16}[path.stem]


def test_a_command_that_is_wrong_is_seen(capsys):
    _, _, container = read(MANIFESTS[0])
    args = [a.replace("BATCH_SIZE", "BATCH") for a in container["args"]]
    assert main([*args, "--dry_run"]) == 2


def test_the_image_carries_what_the_package_needs():
    lines = (GKE / "Dockerfile").read_text("utf-8").splitlines()
    copied = " ".join(line for line in lines if line.startswith("COPY"))
    # setup.py reads the version from the changelog and the page from the README.
    for name in ("setup.py", "pyproject.toml", "CHANGELOG.md", "LICENSE"):
        assert name in copied
    assert "COPY spec_jax " in copied and "COPY gin_configs " in copied
    assert any("eval,report,tpu" in line for line in lines)
