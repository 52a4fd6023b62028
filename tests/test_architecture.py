"""The rooms and arrows of the design, checked over the imports themselves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "spec_jax"
FILES = sorted(PACKAGE.rglob("*.py"))

# What import-linter cannot name: a submodule, and the rooms that may import it.
SUBMODULES = {
    "flax.linen": {"models"},
    "absl.flags": {"cli"},
    "absl.app": {"cli"},
    "jax.distributed": {"cli", "partitioning"},
}
# The mathematics is pure.
PURE_ROOMS = {"base", "core"}
PURE_IMPORTS = {"jax", "jaxtyping", "numpy", "spec_jax"}

UNWANTED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}
FOREIGN = ["tensorflow", "seqio", "t5x", "matplotlib", "torch", "transformers", "gin"]
MAX_LINES = {"core": 300}
MAX_LINES_ELSEWHERE = 500
MAX_PUBLIC_NAMES = 24


def room(path):
    """The first part of a file's path in the package: a folder or a module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def dotted(node):
    """The name a.b.c that an expression spells, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (prefix := dotted(node.value)):
        return f"{prefix}.{node.attr}"
    return None


def uses(source):
    """Every module or attribute of one that a file imports or spells in full."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and (name := dotted(node)):
            names.add(name)
    return names


def imports(source):
    """The top packages that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def submodule_violations(source, room_name):
    return {
        submodule
        for submodule, rooms in SUBMODULES.items()
        if room_name not in rooms
        and any(n == submodule or n.startswith(submodule + ".") for n in uses(source))
    }


def python_in(path):
    return path.read_text(encoding="utf-8")


def fresh_python(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )


def test_import_contracts_hold():
    # The script beside the interpreter may be missing where it was not installed
    # with scripts; the module is always there.
    # No cache: a stale one reports arrows that are gone.
    code = (
        "from importlinter.cli import lint_imports_command as lint; "
        "lint(['--no-cache'])"
    )
    run = fresh_python(code)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_submodules_stay_in_their_rooms(path):
    assert not submodule_violations(python_in(path), room(path))


@pytest.mark.parametrize(
    ("source", "violates"),
    [
        ("import flax.linen as nn", "flax.linen"),
        ("from flax import linen as nn", "flax.linen"),
        ("from flax.linen import partitioning", "flax.linen"),
        ("import flax\nflax.linen.Dense(3)", "flax.linen"),
        ("from absl import flags", "absl.flags"),
        ("import jax\njax.distributed.initialize()", "jax.distributed"),
    ],
)
def test_the_submodule_check_sees_every_spelling(source, violates):
    assert submodule_violations(source, "drafts") == {violates}


def test_the_submodule_check_lets_the_owner_pass():
    assert not submodule_violations("from flax import linen", "models")
    assert not submodule_violations("import jax\nimport flax.struct", "core")


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if room(path) in PURE_ROOMS],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_the_mathematics_needs_jax_only(path):
    foreign = imports(python_in(path)) - PURE_IMPORTS - sys.stdlib_module_names
    assert not foreign, f"{path.name} imports {sorted(foreign)}"


def test_importing_the_package_is_light():
    code = (
        "import sys, spec_jax\n"
        f"loaded = [name for name in {FOREIGN!r} if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    run = fresh_python(code)
    assert run.returncode == 0, run.stderr


def test_public_names_are_few_and_exist():
    import spec_jax

    assert 0 < len(spec_jax.__all__) <= MAX_PUBLIC_NAMES
    assert len(set(spec_jax.__all__)) == len(spec_jax.__all__)
    missing = [name for name in spec_jax.__all__ if not hasattr(spec_jax, name)]
    assert not missing


def test_modules_are_named_after_what_they_hold():
    named = [p for p in ROOT.rglob("*.py") if p.stem in UNWANTED_NAMES]
    ours = [p for p in named if not p.relative_to(ROOT).parts[0].startswith(".")]
    assert not ours, [str(p.relative_to(ROOT)) for p in ours]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short(path):
    lines = len(python_in(path).splitlines())
    limit = MAX_LINES.get(room(path), MAX_LINES_ELSEWHERE)
    assert lines < limit, f"{lines} lines, want fewer than {limit}: split it"


def test_every_room_is_a_package():
    missing = [
        folder.name
        for folder in {path.parent for path in FILES}
        if not (folder / "__init__.py").exists()
    ]
    assert not missing, f"no __init__.py in {missing}: a wheel would leave them out"
