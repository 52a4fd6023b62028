"""Costs of a step: what is divided by what, and that the loops do the work."""

import dataclasses

import jax
import numpy as np
import pytest

from spec_jax import Autoregressive, ModelDraft, SamplingPolicy, Speculative
from spec_jax.experiments import costs
from spec_jax.experiments.clock import Timing
from spec_jax.experiments.costs import StartCosts, StepCosts, start_costs, step_costs
from spec_jax.testing.tables import TableDecoder

V = 5
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(3), (2, V, V, V))
PARAMS = {"target": TABLES[0], "draft": TABLES[1]}
PROMPT = np.array([[2, 4], [1, 3]])


def measure(monkeypatch, policy, gamma=3, run=True):
    """The costs where loops of 8 iterations take 8, 6 and 10 seconds."""
    seen = {}

    def timed(functions, repeats):
        if run:
            seen.update({name: function() for name, function in functions.items()})
        seconds = {"plain": 8.0, "draft": 6.0, "verify": 10.0}
        return {name: Timing((seconds[name],) * repeats) for name in functions}

    monkeypatch.setattr(costs, "time_alternately", timed)
    found = step_costs(
        Autoregressive(DECODER, policy),
        PARAMS,
        Speculative(DECODER, ModelDraft(DECODER, policy, gamma), policy),
        PARAMS,
        None,
        PROMPT,
        jax.random.key(0),
        max_new_tokens=12,
        iterations=8,
        repeats=3,
    )
    return found, seen


def test_costs_are_ratios_to_a_plain_step():
    costs = StepCosts(plain=2.0, draft=0.5, verify=3.0)
    assert (costs.c, costs.verify_cost) == (0.25, 1.5)


@pytest.mark.parametrize(
    "policy", [SamplingPolicy(temperature=0.0), SamplingPolicy(temperature=1.0)]
)
def test_times_are_divided_by_iterations_and_gamma(monkeypatch, policy):
    found, seen = measure(monkeypatch, policy)
    assert found == StepCosts(plain=1.0, draft=0.25, verify=1.25)
    # Every iteration was a step of running rows, filling up included.
    for name, gamma in (("plain", 0), ("verify", 3)):
        stats = seen[name].stats
        assert stats.steps == 2 * (8 + 12)
        assert stats.drafted <= gamma * stats.steps
    assert seen["verify"].stats.drafted > 0
    assert np.isfinite(seen["verify"].target_cache[:, :7]).all()
    proposal, state = seen["draft"]
    assert proposal.tokens.shape == (2, 3)
    assert np.isfinite(state.cache[:, :7]).all()
    if policy.temperature:
        np.testing.assert_allclose(proposal.probs.sum(-1), 1.0, rtol=1e-5)


def test_real_times_are_positive():
    policy = SamplingPolicy(temperature=0.0)
    found = step_costs(
        Autoregressive(DECODER, policy),
        PARAMS,
        Speculative(DECODER, ModelDraft(DECODER, policy, 2), policy),
        PARAMS,
        None,
        PROMPT,
        jax.random.key(0),
        max_new_tokens=12,
        iterations=4,
        repeats=1,
    )
    assert min(dataclasses.astuple(found)) > 0


def test_starts_are_medians_of_what_begins_a_text(monkeypatch):
    began = {}

    def timed(functions, repeats):
        began.update({name: function() for name, function in functions.items()})
        seconds = {"plain": 3.0, "target": 2.0, "draft": 1.0}
        return {name: Timing((seconds[name],) * repeats) for name in functions}

    monkeypatch.setattr(costs, "time_alternately", timed)
    policy = SamplingPolicy(temperature=0.0)
    found = start_costs(
        Autoregressive(DECODER, policy),
        PARAMS,
        Speculative(DECODER, ModelDraft(DECODER, policy, 2), policy),
        PARAMS,
        None,
        PROMPT,
        jax.random.key(0),
        max_new_tokens=12,
        repeats=2,
    )
    assert found == StartCosts(plain=3.0, target=2.0, draft=1.0)
    # States as decoding begins with: no token is there but the prompt's.
    for name in ("plain", "target"):
        assert began[name].length.tolist() == [2, 2]
    assert not hasattr(began["draft"], "length")
