"""What an installed copy holds: the package, the shipped pair, the gin files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BYTECODE = {".pyc"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The tree that a wheel would carry, made without touching the checkout."""
    pytest.importorskip("setuptools", "77")
    folder = tmp_path_factory.mktemp("built")
    command = ["setup.py", "-q", "egg_info", "--egg-base", str(folder)]
    command += ["build_py", "--build-lib", str(folder)]
    run = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return folder


def files_under(folder):
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in BYTECODE
    }


def test_gin_configs_lie_inside_the_package(built):
    wanted = files_under(ROOT / "gin_configs")
    assert any(path.suffix == ".gin" for path in wanted)
    gin = {path for path in wanted if path.suffix == ".gin"}
    carried = files_under(built / "spec_jax" / "gin_configs")
    assert gin <= carried
    assert Path("models/t5_1_1/xxl.gin") in carried


@pytest.mark.parametrize("folder", ["pretrained", "data/samples"])
def test_data_is_carried_whole(built, folder):
    wanted = files_under(ROOT / "spec_jax" / folder)
    assert wanted
    assert files_under(built / "spec_jax" / folder) == wanted


def test_every_module_is_carried(built):
    def modules(package):
        return {path.relative_to(package) for path in package.rglob("*.py")}

    assert modules(built / "spec_jax") == modules(ROOT / "spec_jax")


def test_the_built_copy_finds_its_gin_files(built, tmp_path):
    command = ["compare", "--gin_file=pairs/flan_t5_xxl_small.gin", "--help"]
    run = subprocess.run(
        [sys.executable, "-m", "spec_jax.cli", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(built), "COLUMNS": "300"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "t5x/flan_t5_xxl/checkpoint" in run.stdout


def test_the_built_copy_imports_by_itself(built):
    run = subprocess.run(
        [sys.executable, "-c", "import spec_jax; print(spec_jax.__file__)"],
        cwd=built,
        env=os.environ | {"PYTHONPATH": str(built)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_relative_to(built)
