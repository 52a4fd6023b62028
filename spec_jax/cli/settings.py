"""Types of the values that come from gin files and from the shell."""

import collections.abc
import functools
import inspect
import os
import re
import types
import typing
from collections.abc import Callable
from typing import Any

SMALLEST, LARGEST = -(2**31), 2**31 - 1
"""Of whole numbers: JAX computes with 32 bits."""
PATHS = ("model_dir", "data_dir", "output_dir")
"""Parameters whose `~` is expanded; `resolve` does it for models and vocabularies."""


def checked(make: Callable, name: str) -> Callable:
    """`make`, a dataclass or a function, with its arguments brought to their types.

    Args:
      make: has annotations; an argument of another type than those of `coerce` is
        passed on as it is.
      name: for messages.

    Returns:
      A function with the same signature. It raises ValueError for a wrong type.
    """
    hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    signature = inspect.signature(make)

    @functools.wraps(make, assigned=("__doc__",), updated=())
    def call(*args, **kwargs):
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            missing = re.search("missing a required .*argument: (.+)", str(error))
            if missing is None:
                raise
            raise ValueError(f"{name} needs a value for {missing[1]}") from None
        for parameter, value in bound.arguments.items():
            if parameter in hints:
                wanted = f"{name}.{parameter}"
                value = coerce(value, hints[parameter], wanted)
                if parameter in PATHS and isinstance(value, str):
                    value = os.path.expanduser(value)
                bound.arguments[parameter] = value
        return make(*bound.args, **bound.kwargs)

    call.__name__ = call.__qualname__ = name
    call.__signature__ = signature
    return call


def coerce(value: Any, hint: Any, name: str) -> Any:
    """A value as its annotation wants it, or an error that says what that is.

    Numbers, texts, tuples of them, callables and objects of a class are looked at. An
    int serves as a float, one value as a tuple of one, and text with commas as a
    tuple of texts, so that they can be written in a shell without brackets.

    Raises:
      ValueError: if the value is of another type.

    Example:
      >>> coerce(0, tuple[float, ...], "temperatures")
      (0.0,)
      >>> coerce("ende,summarize", tuple[str, ...], "tasks")
      ('ende', 'summarize')
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if value is None and type(None) in options:
            return None
        options = tuple(o for o in options if o is not type(None))
        if len(options) > 1:
            classes = all(inspect.isclass(o) and o not in _ARTICLES for o in options)
            if classes and not isinstance(value, options):
                wanted = " or ".join(option.__name__ for option in options)
                raise ValueError(
                    f"{name} wants a {wanted}, @NAME(), got {_shown(value)}"
                )
            return value
        hint = options[0]
    if typing.get_origin(hint) is tuple:
        element = typing.get_args(hint)[0]
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        elif not isinstance(value, collections.abc.Iterable):
            value = [value]
        return tuple(coerce(one, element, name) for one in value)
    if hint in (int, float) and type(value) is int:
        if not SMALLEST <= value <= LARGEST:
            raise ValueError(f"{name} wants {_ARTICLES[int]} of 32 bits, got {value}")
        return hint(value)
    if hint in _ARTICLES and type(value) is not hint:
        raise ValueError(f"{name} wants {_ARTICLES[hint]}, got {value!r}")
    if typing.get_origin(hint) is collections.abc.Callable and not callable(value):
        raise ValueError(f"{name} wants a function, @NAME, got {_shown(value)}")
    if inspect.isclass(hint) and hint is not Any and not isinstance(value, hint):
        raise ValueError(
            f"{name} wants a {hint.__name__}, @NAME(), got {_shown(value)}"
        )
    return value


def _shown(value: Any) -> str:
    """A value in a message; of a whole model only what it is."""
    if callable(value) and hasattr(value, "__name__"):
        return f"@{value.__name__}"
    simple = value is None or type(value) in _ARTICLES
    return repr(value) if simple else f"a {type(value).__name__}"


_ARTICLES = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "True or False",
}


def require(condition: bool, message: str) -> None:
    """Raises ValueError with the message unless the condition holds."""
    if not condition:
        raise ValueError(message)


def positive(settings: Any, *names: str) -> None:
    """Checks that fields of a dataclass are at least 1, where they are not None.

    Raises:
      ValueError: naming the first that is not.
    """
    for name in names:
        value = getattr(settings, name)
        require(value is None or value >= 1, f"want {name} >= 1, got {value}")


def once(settings: Any, *names: str) -> None:
    """Takes from fields of a frozen dataclass what is given again.

    A row of a table is measured once, however often its value is named.
    """
    for name in names:
        values = getattr(settings, name)
        if values is not None:
            object.__setattr__(settings, name, tuple(dict.fromkeys(values)))


def check_pairs(pairs: Any) -> None:
    """Raises ValueError if PAIRS do not name functions that load a pair."""
    good = bool(pairs) and all(
        isinstance(name, str) and callable(load) for name, load in pairs.items()
    )
    require(good, f"want PAIRS as {{'NAME': @load_pair}}, got {pairs!r}")
