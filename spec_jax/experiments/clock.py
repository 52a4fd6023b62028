"""Timing functions of device arrays side by side, so that drift hits all alike."""

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

Clock = Callable[[], float]
"""Seconds that never run backwards."""


@dataclasses.dataclass(frozen=True)
class Timing:
    """How long the calls of one function took.

    Attributes:
      seconds: of each timed call, in order.
      result: what the last call returned.
    """

    seconds: tuple[float, ...]
    result: Any = None

    @property
    def median(self) -> float:
        """Of the timed calls."""
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        """Of the timed calls."""
        return min(self.seconds)

    @property
    def maximum(self) -> float:
        """Of the timed calls."""
        return max(self.seconds)


def time_call(
    function: Callable[[], Any], clock: Clock = time.perf_counter
) -> tuple[float, Any]:
    """Seconds until the results of one call are computed, and the results.

    The first call with new shapes compiles: time it apart from the others.
    """
    began = clock()
    result = jax.block_until_ready(function())
    return clock() - began, result


def time_alternately(
    functions: Mapping[str, Callable[[], Any]],
    repeats: int,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Times functions in turn: A B A B ..., each `repeats` times.

    Args:
      functions: by name; each was called before, so that nothing compiles here.
      repeats: timed calls of each.
      clock: in seconds.

    Returns:
      A timing for each name.

    Raises:
      ValueError: if `repeats` is not positive.
    """
    if repeats < 1:
        raise ValueError(f"want at least 1 repeat, got {repeats}")
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    results = {}
    for _ in range(repeats):
        for name, function in functions.items():
            elapsed, results[name] = time_call(function, clock)
            seconds[name].append(elapsed)
    return {name: Timing(tuple(seconds[name]), results[name]) for name in functions}


def time_in_turns(
    functions: Mapping[str, Callable[[], Any]],
    repeats: int,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Times functions one after another, each `repeats` times after an untimed call.

    The untimed call brings a function's parameters back to where its calls in a row
    have them. Two large functions that take turns call by call each find the other's
    in the processor's caches, which costs the faster one the larger share of its time,
    and is nothing that someone who runs only one of them would see.

    Args:
      functions: by name; each was called before, so that nothing compiles here.
      repeats: timed calls of each.
      clock: in seconds.

    Returns:
      A timing for each name.

    Raises:
      ValueError: if `repeats` is not positive.
    """
    timings = {}
    for name, function in functions.items():
        jax.block_until_ready(function())
        timings |= time_alternately({name: function}, repeats, clock)
    return timings
