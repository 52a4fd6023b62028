"""Choosing gamma: runs from acceptances, speeds from costs, and what is measured."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from spec_jax.core import theory
from spec_jax.decoding import loop
from spec_jax.experiments import choice as choosing
from spec_jax.experiments.choice import (
    Choice,
    between,
    choice_of,
    choose,
    decode_plainly,
    expected_runs,
    one_token_calls,
    ratio_interval,
    timed_gammas,
)
from spec_jax.experiments.clock import Timing
from spec_jax.experiments.costs import StepCosts
from spec_jax.experiments.evaluate import EvaluateSettings
from spec_jax.experiments.outputs import decode
from tests.experiments.test_evaluate import data, first, pair  # noqa: F401

FIELDS = {
    "task": "ende",
    "pair": "tiny",
    "draft": "model",
    "draft_name": "small",
    "temperature": 0.0,
    "batch": 1,
    "policy": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "dtype": "float32",
    "plain_dtype": "float32",
    "num_examples": 2,
    "alpha": 0.5,
    "alpha_stderr": 0.1,
    "alpha_tokens": 8,
    "device": "cpu: none",
    "cpu_threads": 1,
    "versions": {},
    "seed": 0,
    "date": "2026-01-01",
}
CALLS = 6.0, 10.6
"""Of one step each: 2 and 0.2 + 2.4, so that starts take 4 and 8."""


def step(draft=0.2, verify=2.4):
    return StepCosts(plain=2.0, draft=draft, verify=verify)


def made(betas, costs=None, gammas=(1, 2, 3), **fields):
    costs = costs or {1: step(), 3: step()}
    return choice_of(betas, costs, CALLS, gammas, **FIELDS | fields)


@pytest.mark.parametrize("gamma", [1, 2, 3, 7])
def test_runs_of_sure_acceptances(gamma):
    assert expected_runs([1.0] * 12, gamma) == math.ceil(12 / (gamma + 1))
    assert expected_runs([0.0] * 12, gamma) == 12
    assert expected_runs([], gamma) == 0
    # A rejected token is the target's own: 1 1 0 | 1 1 with gamma 3.
    assert expected_runs([1, 1, 0, 1, 1], 3) == 2


@pytest.mark.parametrize("gamma", [1, 2, 4])
def test_runs_are_the_mean_over_every_pattern_of_acceptances(gamma):
    betas = [0.3, 0.9, 0.5, 1.1, 0.2, 0.7]  # sums of probabilities round upwards
    likely = np.minimum(betas, 1)
    mean = 0.0
    for pattern in itertools.product((0, 1), repeat=len(betas)):
        chance = np.prod(np.where(pattern, likely, 1 - likely))
        mean += chance * expected_runs(pattern, gamma)
    assert expected_runs(betas, gamma) == pytest.approx(mean)


def test_independent_acceptances_give_the_papers_tokens():
    runs = expected_runs([0.8] * 4000, 5)
    assert 4000 / runs == pytest.approx(theory.expected_tokens(0.8, 5), rel=2e-3)


def test_at_temperature_zero_runs_are_those_of_decoding(monkeypatch, pair, data):  # noqa: F811
    kept, gamma = {}, 2
    monkeypatch.setattr(choosing, "step_costs", lambda *a, **k: step())
    monkeypatch.setattr(choosing, "one_token_calls", lambda *a, **k: CALLS)
    monkeypatch.setattr(
        choosing, "choice_of", lambda betas, *a, **k: kept.update(betas=betas)
    )
    settings = EvaluateSettings(input_lengths=(128,))
    outputs = decode_plainly(pair, data, settings)
    choose(pair, None, data, settings, gammas=[gamma], outputs=outputs)
    algorithm = pair.speculative(gamma, pair.policy())
    want = [
        int(decode(algorithm, pair.params, batch).stats.steps)
        for batch in outputs.batches
    ]
    assert [expected_runs(rows[0], gamma) for rows in kept["betas"]] == want
    assert len(want) == 4 and min(want) < 9  # something was accepted


def test_a_speed_counts_starts_steps_and_ends():
    found = made([[[1, 1, 1, 1]], [[0, 1, 1]]])
    # c 0.1, verification 1.2, starts 2 and 4, all in plain steps.
    assert found.start_plain == 2
    assert found.start_speculative == pytest.approx(4)
    plain = (2 + 4) + (2 + 3)
    runs = {1: (2, 2), 2: (2, 2), 3: (1, 2)}  # 0 | 1 1
    for gamma, (one, two) in runs.items():
        cost = 0.1 * gamma + 1.2
        want = plain / (4 + one * cost + 4 + two * cost)
        assert found.speeds[gamma] == pytest.approx(want)
        assert found.tokens_per_run[gamma] == 7 / (one + two)
        want = theory.speedup(0.5, gamma, 0.1, 1.2)
        assert found.formula[gamma] == pytest.approx(want)
    assert found.best == 3 and found.gamma == 0 and found.speed == 1.0  # 0.88


def test_the_gamma_that_pays_most_is_chosen():
    found = made([[[1] * 30], [[1] * 8]] * 3)
    assert found.gamma == found.best == 3 and found.c == pytest.approx(0.1)
    assert found.speed == found.speeds[3] == max(found.speeds.values()) > 1
    assert found.speed_low < found.speed < found.speed_high
    few = made([[[1] * 30]] * 4)  # alike, but too few to be certain
    assert few.speed_low is None and few.speed_high is None


def test_a_draft_that_never_agrees_is_not_chosen_for_a_faster_start():
    """The fault: alpha 0 was advised where plain decoding's call was slow by chance."""
    costs = {1: step(0.02, 2.0), 3: step(0.02, 2.0)}
    calls = 60.0, 2.02
    found = choice_of([[[0] * 5]], costs, calls, (1, 2, 3), **FIELDS | {"alpha": 0.0})
    assert found.speeds[1] > 1
    assert (found.gamma, found.speed) == (0, 1.0)
    # Of gammas whose steps pay the fastest is taken, and all figures are its own.
    costs = {1: step(0.02, 2.2), 2: step(0.02, 8.0)}
    found = choice_of([[[1] * 6]] * 5, costs, calls, (1, 2), **FIELDS)
    assert found.gamma == found.best == 1 and found.c == pytest.approx(0.01)
    assert found.speed_low == pytest.approx(found.speeds[1])


def test_a_batch_lasts_as_long_as_its_longest_row():
    found = made([[[1] * 8, [0] * 8]], {3: step()}, batch=2, gammas=(3,))
    assert found.start_speculative == pytest.approx(5.3 - 0.3 - 1.2)
    assert found.speeds[3] == pytest.approx((2 + 8) / (3.8 + 8 * 1.5))


def test_costs_are_linear_between_those_that_were_timed():
    assert timed_gammas(range(1, 9)) == (1, 4, 8)
    assert timed_gammas((5,)) == (5,) and timed_gammas((2, 1)) == (1, 2)
    assert between({1: 1.0, 3: 3.0, 4: 3.5}, (1, 2, 3, 4)) == {1: 1, 2: 2, 3: 3, 4: 3.5}
    # A table's proposal costs the same whatever its length.
    costs = {1: step(draft=0.2), 4: step(draft=0.05)}
    found = made([[[1] * 8]], costs, gammas=(1, 2, 3, 4))
    np.testing.assert_allclose([*found.draft_costs.values()], 0.1)
    assert found.c == pytest.approx(0.1 / found.best)


def test_calls_of_one_token_are_the_programs_of_decoding(monkeypatch, pair, data):  # noqa: F811
    seen = {}

    def timed(calls, repeats):
        seen.update({name: call() for name, call in calls.items()})
        return {"plain": Timing((3.0,) * repeats), "speculative": Timing((5.0,))}

    monkeypatch.setattr(choosing, "time_in_turns", timed)
    settings = EvaluateSettings(input_lengths=(128,))
    batch = decode_plainly(pair, first(data, 1), settings).batches[0]
    both = pair.autoregressive(pair.policy()), pair.speculative(2, pair.policy())
    traces = loop._jitted_generate._cache_size()
    calls = one_token_calls(both[0], pair.params, both[1], pair.params, batch)
    assert calls == (3.0, 5.0)
    assert [int(out.stats.steps) for out in seen.values()] == [1, 1]
    decode(both[1], pair.params, batch)
    assert loop._jitted_generate._cache_size() <= traces + 1  # plain's was there


def test_an_interval_of_a_ratio():
    assert ratio_interval(np.full(4, 2.0), np.ones(4)) == (None, None)
    terms = np.arange(1.0, 6.0)
    same = ratio_interval(2 * terms, terms)
    assert same == (2.0, 2.0)  # terms are drawn together
    over = np.random.default_rng(1).normal(1.5, 0.3, 400)
    low, high = ratio_interval(over, np.ones(400))
    assert low == pytest.approx(over.mean() - 1.96 * 0.3 / 20, abs=0.01)
    assert high == pytest.approx(over.mean() + 1.96 * 0.3 / 20, abs=0.01)


def test_a_choice_is_a_line():
    found = made([[[1] * 30], [[1] * 8]])
    assert Choice.from_json(found.to_json()) == found
    assert found.kind == "choice" and '"kind": "choice"' in found.to_json()


def test_what_is_measured(monkeypatch, pair, data):  # noqa: F811
    timed, said = [], []

    def costs(plain, plain_params, speculative, params, inputs, *rest, **fields):
        timed.append((speculative.draft.gamma, inputs.shape, fields["max_new_tokens"]))
        return step()

    monkeypatch.setattr(choosing, "step_costs", costs)
    monkeypatch.setattr(choosing, "one_token_calls", lambda *a, **k: CALLS)
    settings = EvaluateSettings(temperature=1.0, draft="lookup", input_lengths=(64,))
    found = choose(
        pair,
        None,
        first(data, 2),
        settings,
        gammas=(3, 2, 1, 5, 4),
        draft_name="copies",
        begin=said.append,
    )
    assert [gamma for gamma, *_ in timed] == [1, 3, 5]
    assert {shape[0] for _, shape, _ in timed} == {1}
    assert {new for *_, new in timed} == {9}
    assert list(found.speeds) == [1, 2, 3, 4, 5]
    assert (found.draft, found.draft_name) == ("lookup", "copies")
    assert (found.num_examples, found.alpha_tokens) == (2, 18)
    assert 0 <= found.alpha < 1 and found.temperature == 1
    assert said[0] == "plain decoding" and said[-1] == "costs of a step with gamma 5"
    for wrong in ((), (0, 1)):
        with pytest.raises(ValueError, match="at least one gamma, and each >= 1"):
            choose(pair, None, data, settings, gammas=wrong)
    with pytest.raises(ValueError, match="at least one row"):
        choose(pair, None, dataclasses.replace(data, examples=()), settings)
