import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from spec_jax.base import Rule
from spec_jax.cli import configuration
from spec_jax.cli.settings import checked, coerce, positive
from spec_jax.core.rules import TokenRule


@dataclasses.dataclass(frozen=True)
class Example:
    count: int
    rate: float = 0.5
    names: tuple[str, ...] = ("a",)
    limit: int | None = None


make = checked(Example, "example")


def test_a_checked_dataclass_makes_the_same_object_and_shows_the_same_signature():
    assert make(3, limit=4) == Example(3, limit=4)
    assert type(make(3)) is Example
    assert inspect.signature(make) == inspect.signature(Example)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, 3),
        (3, float, 3.0),
        (None, int | None, None),
        (3, int | None, 3),
        ("a, b", tuple[str, ...], ("a", "b")),
        ([1, 2.5], tuple[float, ...], (1.0, 2.5)),
        (1, tuple[float, ...], (1.0,)),
        (print, "anything", print),
        (print, Callable[..., None], print),
        (Example(1), Example, Example(1)),
        (TokenRule(), Rule | None, TokenRule()),
        (print, Any, print),
    ],
)
def test_values_come_to_their_types(value, hint, expected):
    result = coerce(value, hint, "x")
    assert result == expected and type(result) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("3", int),
        (3.0, int),
        (True, int),
        (True, float),
        (1, bool),
        (None, int),
        ("x", int | None),
        ((1, "x"), tuple[float, ...]),
        (2**31, int),
        (10**400, float),
        ("x", Callable[..., int]),
        (Example(1), Callable),
        ("x", Example),
        (Example, Example | None),
        ("block", Rule | None),
    ],
)
def test_other_values_are_an_error_with_the_name(value, hint):
    with pytest.raises(ValueError, match="the_name wants"):
        coerce(value, hint, "the_name")


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"example\.rate wants a number, got 'x'"):
        make(3, rate="x")


def test_positive_passes_over_none_and_names_the_first_fault():
    positive(Example(1), "count", "limit")
    with pytest.raises(ValueError, match="want limit >= 1, got 0"):
        positive(Example(1, limit=0), "count", "limit")


def test_of_an_object_a_message_says_only_what_it_is():
    with pytest.raises(ValueError, match=r"wants a function, @NAME, got a Example$"):
        coerce(Example(1), Callable[..., int], "x")
    with pytest.raises(ValueError, match=r"wants a Example, @NAME\(\), got @Example$"):
        coerce(Example, Example, "x")


def test_home_is_expanded_in_paths_alone(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Paths:
        model_dir: str
        prefix: str
        data_dir: str | None = None

    monkeypatch.setenv("HOME", "/home/me")
    made = checked(Paths, "paths")("~/m", "~/m")
    assert made == Paths("/home/me/m", "~/m", None)
    assert checked(Paths, "paths")("gs://b/~", "").model_dir == "gs://b/~"


@pytest.mark.parametrize(
    ("command", "binding", "field", "values"),
    [
        ("evaluate", "TEMPERATURES = (0, 1, 0)", "temperatures", (0.0, 1.0)),
        ("evaluate", "GAMMAS = (3, 3)", "gammas", (3,)),
        ("alpha", "TEMPERATURES = (0, 0.0)", "temperatures", (0.0,)),
        ("lenience", "LENIENCES = (1, 1.0, 0.5)", "leniences", (1.0, 0.5)),
        ("table2", "BATCH_SIZES = (4, 2, 4)", "batch_sizes", (4, 2)),
        ("choose-gamma", "DRAFTS = ('lookup', 'lookup')", "drafts", ("lookup",)),
    ],
)
def test_what_is_named_twice_is_measured_once(command, binding, field, values):
    """The fault: rows and lines that were there twice."""
    file = f"runs/{command.replace('-', '_')}.gin"
    configuration.configure(command, [file], [binding])
    assert getattr(configuration.build(command), field) == values
