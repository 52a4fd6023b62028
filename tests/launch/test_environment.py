"""Which interpreter the scripts take, and what of an environment they trust."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "launch" / "environment.sh"
BASH = shutil.which("bash")
SH = shutil.which("sh")


def program(path, body):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{SH}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def interpreter(path, version):
    """A program that answers the version question and nothing else."""
    return program(path, f"echo {version}")


def broken_shim(path):
    return program(path, "echo 'pyenv: command not found' >&2; exit 127")


@pytest.fixture
def place(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path


def choose(place, **variables):
    """Runs choose_python with nothing on the path but place/bin."""
    run = subprocess.run(
        [BASH, "-c", f"set -euo pipefail; . '{SCRIPT}'; choose_python"],
        env={"PATH": str(place / "bin"), "HOME": str(place / "home"), **variables},
        cwd=place,
        capture_output=True,
        text=True,
    )
    return run.returncode, run.stdout.strip(), run.stderr


def test_newest_tested_version_first(place):
    for version in ("3.11", "3.12", "3.13"):
        interpreter(place / "bin" / f"python{version}", version)
    status, chosen, _ = choose(place)
    assert (status, chosen) == (0, str(place / "bin" / "python3.12"))


def test_a_shim_that_does_not_run_is_passed_over(place):
    broken_shim(place / "bin" / "python3.12")
    good = interpreter(place / "bin" / "python3.11", "3.11")
    status, chosen, _ = choose(place)
    assert (status, chosen) == (0, str(good))


def test_a_second_program_of_the_same_name_is_found_behind_a_shim(place):
    broken_shim(place / "bin" / "python3.12")
    good = interpreter(place / "other" / "python3.12", "3.12")
    path = f"{place / 'bin'}:{place / 'other'}"
    status, chosen, _ = choose(place, PATH=path)
    assert (status, chosen) == (0, str(good))


@pytest.mark.parametrize("variable", ["default", "PYENV_ROOT"])
def test_pyenv_holds_one(place, variable):
    root = place / ("home/.pyenv" if variable == "default" else "elsewhere")
    broken_shim(place / "bin" / "python3.12")
    interpreter(place / "bin" / "python3.11", "3.11")
    good = interpreter(root / "versions" / "3.12.1" / "bin" / "python", "3.12")
    settings = {} if variable == "default" else {"PYENV_ROOT": str(root)}
    status, chosen, _ = choose(place, **settings)
    assert (status, chosen) == (0, str(good))


def test_plain_python3_of_a_tested_version(place):
    good = interpreter(place / "bin" / "python3", "3.11")
    status, chosen, _ = choose(place)
    assert (status, chosen) == (0, str(good))


def test_a_newer_python_is_taken_with_a_note(place):
    good = interpreter(place / "bin" / "python3", "3.13")
    status, chosen, said = choose(place)
    assert (status, chosen) == (0, str(good))
    assert "tested with Python 3.12 3.11" in said


def test_a_program_that_prints_nothing_is_no_interpreter(place):
    program(place / "bin" / "python3", "exit 0")
    status, _, said = choose(place)
    assert status != 0
    assert "no Python 3.11 or newer" in said


@pytest.mark.parametrize("version", ["2.7", "3.9", "3.10"])
def test_too_old_is_not_taken_and_is_named_when_asked_for(place, version):
    old = interpreter(place / "bin" / "python3", version)
    status, chosen, _ = choose(place)
    assert (status, chosen) == (1, "")
    status, chosen, said = choose(place, PYTHON=str(old))
    assert (status, chosen) == (1, "")
    assert f"is Python {version}" in said
    assert "3.11 or newer" in said


def test_the_named_one_wins(place):
    interpreter(place / "bin" / "python3.12", "3.12")
    named = interpreter(place / "bin" / "mine", "3.11")
    for spelling in (str(named), "mine", "bin/mine"):
        status, chosen, _ = choose(place, PYTHON=spelling)
        assert status == 0
        assert (place / chosen).samefile(named)


def test_the_named_one_must_run(place):
    interpreter(place / "bin" / "python3.12", "3.12")
    named = broken_shim(place / "bin" / "mine")
    for spelling in (str(named), str(place / "absent")):
        status, chosen, said = choose(place, PYTHON=spelling)
        assert (status, chosen) == (1, "")
        assert f"PYTHON={spelling} does not run" in said


PIP_LOG = "pip.log"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the script with a Python whose venvs hold a recording pip."""
    (tmp_path / "launch").mkdir()
    shutil.copy(SCRIPT, tmp_path / "launch")
    (tmp_path / "setup.py").write_text("first")
    (tmp_path / "pyproject.toml").write_text("")
    # Everything but venv and pip is asked of a real Python.
    program(
        tmp_path / "python",
        f"""case "$*" in
          "-m venv --without-pip "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
          "-m venv "*) [ ! -e {tmp_path / "no_ensurepip"} ] || exit 1
             mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
          "-m pip "*) echo "$*" >> {tmp_path / PIP_LOG}
             [ ! -e {tmp_path / "fail"} ] ;;
          *"import spec_jax"*) : ;;
          *) exec {sys.executable} "$@" ;;
        esac""",
    )
    return tmp_path


def prepare(checkout, extra=""):
    """Runs prepare_environment and returns its status and new pip calls."""
    log = checkout / PIP_LOG
    log.write_text("")
    run = subprocess.run(
        [
            BASH,
            "-c",
            f"set -euo pipefail; . launch/environment.sh; prepare_environment {extra}"
            ' && echo "python=$SPEC_JAX_PYTHON"',
        ],
        env=os.environ | {"PYTHON": str(checkout / "python")},
        cwd=checkout,
        capture_output=True,
        text=True,
    )
    calls = log.read_text().splitlines()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if run.returncode == 0:
        assert f"python={checkout}/.venv/{version}/bin/python" in run.stdout
    elif not calls or "--python" in calls[-1]:
        assert f"sudo apt-get install python{version}-venv" in run.stderr
    return run.returncode, calls


def marker_in_venv(checkout):
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return checkout / ".venv" / version / "marker"


def test_the_second_run_installs_nothing(checkout):
    status, calls = prepare(checkout)
    assert status == 0
    assert calls == [f"-m pip install --quiet --editable {checkout}"]
    assert prepare(checkout) == (0, [])


def test_an_extra_is_added_in_place_and_covers_the_bare_package(checkout):
    prepare(checkout)
    marker_in_venv(checkout).touch()
    status, calls = prepare(checkout, "test")
    assert (status, len(calls)) == (0, 1)
    assert calls[0].endswith("[test]")
    assert marker_in_venv(checkout).exists()
    assert prepare(checkout) == (0, [])
    assert prepare(checkout, "test") == (0, [])


@pytest.mark.parametrize("name", ["setup.py", "pyproject.toml"])
def test_a_changed_requirement_installs_again_in_place(checkout, name):
    prepare(checkout)
    marker_in_venv(checkout).touch()
    (checkout / name).write_text("second")
    status, calls = prepare(checkout)
    assert (status, len(calls)) == (0, 1)
    assert marker_in_venv(checkout).exists()
    assert prepare(checkout) == (0, [])


def test_a_failed_first_install_is_not_trusted(checkout):
    (checkout / "fail").touch()
    status, calls = prepare(checkout)
    assert (status, len(calls)) == (1, 1)
    marker_in_venv(checkout).touch()
    (checkout / "fail").unlink()
    status, calls = prepare(checkout)
    assert (status, len(calls)) == (0, 1)
    assert not marker_in_venv(checkout).exists(), "the broken folder was kept"


def test_a_failed_update_is_not_trusted(checkout):
    prepare(checkout)
    (checkout / "setup.py").write_text("second")
    (checkout / "fail").touch()
    assert prepare(checkout)[0] == 1
    (checkout / "setup.py").write_text("first")
    (checkout / "fail").unlink()
    assert len(prepare(checkout)[1]) == 1


def test_a_moved_checkout_gets_its_own_environment(checkout, tmp_path_factory):
    prepare(checkout)
    marker_in_venv(checkout).touch()
    moved = tmp_path_factory.mktemp("moved") / "checkout"
    shutil.copytree(checkout, moved)
    status, _ = prepare(moved)
    assert status == 0
    assert not marker_in_venv(moved).exists()


def test_an_outer_pip_stands_in_where_ensurepip_is_split_off(checkout):
    (checkout / "no_ensurepip").touch()
    status, calls = prepare(checkout)
    assert status == 0
    assert calls[0].startswith("-m pip --python ")
    assert calls[1] == f"-m pip install --quiet --editable {checkout}"
    assert prepare(checkout) == (0, [])


def test_the_package_to_install_is_named_where_no_pip_stands_in(checkout):
    (checkout / "no_ensurepip").touch()
    (checkout / "fail").touch()
    status, calls = prepare(checkout)
    assert (status, len(calls)) == (1, 1)
    assert not marker_in_venv(checkout).parent.exists()


def browser(place, user="0", **variables):
    """Runs prepare_browser with apt-get as a program that notes what it is told."""
    log = place / "apt.log"
    program(
        place / "bin" / "apt-get",
        f'echo "$*" >>{log}; [ "$1" != install ] || [ -e {place / "lists"} ]',
    )
    program(place / "bin" / "id", f"echo {user}")
    run = subprocess.run(
        [BASH, "-c", f"set -euo pipefail; . '{SCRIPT}'; prepare_browser; echo end"],
        env={"PATH": str(place / "bin"), "HOME": str(place / "home"), **variables},
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and run.stdout.endswith("end\n"), run.stderr
    calls = log.read_text().splitlines() if log.exists() else []
    return [" ".join(call.split()[:1]) for call in calls], run.stderr


def test_a_browser_comes_from_apt_once(place):
    (place / "lists").touch()
    assert browser(place) == (["install"], "")
    assert "chromium fonts-dejavu-core" in (place / "apt.log").read_text()


def test_lists_of_packages_are_fetched_where_there_are_none(place):
    calls, said = browser(place)
    assert calls == ["install", "update", "install"]
    assert "not opened in one" in said


@pytest.mark.parametrize("name", ["chromium", "google-chrome"])
def test_a_browser_that_is_there_is_taken(place, name):
    program(place / "bin" / name, "exit 0")
    assert browser(place) == ([], "")


def test_no_browser_without_root_or_where_it_is_not_wanted(place):
    assert browser(place, user="1000") == ([], "")
    assert browser(place, BROWSER="none") == ([], "")
