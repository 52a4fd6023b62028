"""The examples in docstrings run as they stand there."""

import doctest
import importlib
import pathlib

import pytest

import spec_jax

ROOT = pathlib.Path(spec_jax.__file__).parent
# Modules over a library that is an extra.
EXTRAS = {"lxml", "polib", "seqio"}
WITH_EXAMPLES = sorted(
    ".".join(("spec_jax", *path.relative_to(ROOT).with_suffix("").parts))
    for path in ROOT.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


def test_there_are_examples():
    assert len(WITH_EXAMPLES) >= 4
    assert "spec_jax.core.sampling" in WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        pytest.skip(f"{name} needs the extra with {error.name}")
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0 and result.failed == 0


def test_a_wrong_example_is_caught():
    def wrong():
        """
        >>> 1 + 1
        3
        """

    runner = doctest.DocTestRunner(verbose=False)
    (example,) = doctest.DocTestFinder().find(wrong, globs={})
    assert runner.run(example, out=lambda text: None).failed == 1
