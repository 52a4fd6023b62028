"""Timing: turns, medians, and waiting for the result."""

import jax
import jax.numpy as jnp
import pytest

from spec_jax.experiments.clock import (
    Timing,
    time_alternately,
    time_call,
    time_in_turns,
)


class Ticks:
    """A clock that functions advance by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_functions_take_turns_and_each_has_its_own_times():
    clock, order = Ticks(), []
    steps = {"a": iter([1.0, 9.0, 2.0]), "b": iter([5.0, 4.0, 6.0])}

    def work(name):
        def call():
            order.append(name)
            clock.now += next(steps[name])
            return len(order)

        return call

    timings = time_alternately({"a": work("a"), "b": work("b")}, 3, clock)
    assert order == ["a", "b"] * 3
    assert timings["a"] == Timing((1.0, 9.0, 2.0), 5)
    assert timings["b"] == Timing((5.0, 4.0, 6.0), 6)
    assert timings["a"].median == 2.0
    assert (timings["b"].minimum, timings["b"].maximum) == (4.0, 6.0)


def test_no_repeat_is_an_error():
    with pytest.raises(ValueError, match="at least 1 repeat"):
        time_alternately({"a": lambda: 0}, 0)


def test_the_clock_stops_after_the_result_is_computed(monkeypatch):
    """The fault: timing the dispatch of an asynchronous call."""
    clock = Ticks()

    def wait(result):
        clock.now += 3.0
        return result

    monkeypatch.setattr(jax, "block_until_ready", wait)
    seconds, result = time_call(lambda: jnp.arange(3), clock)
    assert seconds == 3.0
    assert result.tolist() == [0, 1, 2]


def test_in_turns_every_function_warms_up_before_its_own_repeats():
    calls, ticks = [], iter(range(100))

    def work(name):
        return lambda: calls.append(name) or jnp.ones(1)

    timings = time_in_turns({"a": work("a"), "b": work("b")}, 2, lambda: next(ticks))
    assert calls == ["a"] * 3 + ["b"] * 3
    assert [timings[name].seconds for name in "ab"] == [(1, 1), (1, 1)]
    assert next(ticks) == 8  # the calls that warm up are not timed
