"""Programs are freed before a process runs out of memory mappings, and not sooner."""

import jax
import pytest

from spec_jax.experiments import programs


@pytest.fixture
def compiled():
    """A function with a program of its own."""
    function = jax.jit(lambda x: x * 3 + 1)
    function(2.0)
    assert function._cache_size() == 1
    return function


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Writes the numbers that the system gives."""
    paths = {"_MAPPINGS": tmp_path / "maps", "_MOST": tmp_path / "most"}
    for name, path in paths.items():
        monkeypatch.setattr(programs, name, path)

    def write(mappings, most):
        paths["_MAPPINGS"].write_text("a mapping\n" * mappings)
        paths["_MOST"].write_text(f"{most}\n")

    return write


@pytest.mark.parametrize(("mappings", "freed"), [(50, False), (51, True)])
def test_from_half_of_the_mappings_on_programs_are_freed(
    compiled, counted, mappings, freed
):
    counted(mappings, 100)
    assert programs.forget_programs() is freed
    assert compiled._cache_size() == (0 if freed else 1)
    assert compiled(2.0) == 7


def test_where_the_system_tells_no_numbers_nothing_is_freed(compiled, counted):
    assert programs.forget_programs(share=0.0) is False
    assert compiled._cache_size() == 1


def test_this_system_tells_them(compiled):
    if not programs._MAPPINGS.exists():
        pytest.skip("no /proc here")
    assert programs.forget_programs(share=0.0)
    assert compiled._cache_size() == 0
