"""Planted faults in keys, noise, filters and rules; each must be seen.

Beside test_mutants.py, whose law and honest parts are used again.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    BlockRule,
    CoupledRule,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    TokenRule,
    generate,
)
from spec_jax.core import draws
from spec_jax.core.draws import DRAFT, block_keys, step_keys
from spec_jax.core.filters import keep_top_p
from spec_jax.core.rules import residual
from spec_jax.decoding import speculative
from spec_jax.testing.enumeration import chain_law, emitted_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law

V, ROWS = 3, 50_000
DECODER = TableDecoder(V)
TARGET, DRAFT_TABLE = jax.random.normal(jax.random.key(20221130), (2, V, V, V)) * 1.5
PARAMS = {"target": TARGET, "draft": DRAFT_TABLE}
PROMPT = (2, 1)
CERTAIN = 1e-12
POLICY = SamplingPolicy()


@dataclasses.dataclass(frozen=True)
class Planted(Speculative):
    """The honest algorithm under another name, so that a patch is compiled in."""

    fault: str = "none"


def decode(fault, rule, gamma=2, policy=POLICY, target_policy=None, rows=ROWS, n=4):
    """Tokens of many rows; `fault` only keeps programs apart."""
    noise = "gumbel" if isinstance(rule, CoupledRule) else "uniform"
    draft = ModelDraft(DECODER, policy, gamma, noise=noise)
    algorithm = Planted(
        DECODER, draft, target_policy or policy, rule, eos_id=None, fault=fault
    )
    return generate(
        algorithm,
        PARAMS,
        None,
        np.tile(PROMPT, (rows, 1)),
        jax.random.key(9),
        max_new_tokens=n,
    ).tokens


def pvalue(fault, rule, policy=POLICY, **options):
    """Of the joint law of four tokens."""
    law = chain_law(table_law(TARGET, policy), PROMPT, 4)
    return chi_square_pvalue(decode(fault, rule, policy=policy, **options), law)


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
@pytest.mark.parametrize("gamma", [2, 3])
def test_without_a_fault(rule, gamma):
    assert pvalue("none", rule, gamma=gamma) > 1e-6


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
def test_one_key_for_all_drafted_tokens(monkeypatch, rule):
    def reused(draft, keys, length):
        key = step_keys(keys, length, DRAFT, 1)
        return jnp.broadcast_to(key, (*length.shape, draft.gamma))

    monkeypatch.setattr(speculative, "draft_keys", reused)
    assert pvalue("one key a step", rule) < CERTAIN


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
def test_the_same_keys_in_every_step(monkeypatch, rule):
    def without_length(keys, length, role, count):
        return step_keys(keys, jnp.zeros_like(length), role, count)

    monkeypatch.setattr(speculative, "step_keys", without_length)
    monkeypatch.setattr(draws, "step_keys", without_length)
    assert pvalue("keys of a step reused", rule) < CERTAIN


def test_one_key_for_all_rows(monkeypatch):
    """Each row alone is right; together they are no sample of the law."""

    def shared(draft, keys, length):
        return step_keys(keys.at[:].set(keys[0]), length, DRAFT, draft.gamma)

    monkeypatch.setattr(speculative, "draft_keys", shared)
    assert pvalue("rows share a key", TokenRule()) < CERTAIN


def test_noise_of_positions_under_block_rule(monkeypatch):
    """It is used again after a rejection that depended on it."""

    def of_positions(draft, keys, length):
        return block_keys(keys, length, draft.gamma)

    monkeypatch.setattr(speculative, "draft_keys", of_positions)
    assert pvalue("keyed by position", BlockRule(), gamma=3) < CERTAIN


class RoundsQ(TokenRule):
    """Sees q in bfloat16, though the tokens were drawn from float32."""

    def accept_law(self, tokens, q, p):
        return super().accept_law(tokens, rounded(q), p)

    def excess(self, tokens, q, p, accepted):
        return super().excess(tokens, rounded(q), p, accepted)


def rounded(q):
    return q.astype(jnp.bfloat16).astype(jnp.float32)


class UnclippedWeights(BlockRule):
    """Lets P_i grow beyond 1."""

    def weights(self, tokens, q, p):
        slot = jnp.arange(tokens.shape[0])
        return jnp.append(1.0, jnp.cumprod(p[slot, tokens] / q[slot, tokens]))


class UnweightedResidual(BlockRule):
    """Takes the token rule's residual after a block."""

    def next_law(self, tokens, q, p, accepted):
        q = jnp.concatenate([q, jnp.zeros_like(q[:1])])
        return residual(p[accepted], q[accepted])


class WeightOneOff(BlockRule):
    """Takes the weight of the position before."""

    def excess(self, tokens, q, p, accepted):
        weight = self.weights(tokens, q, p)[jnp.maximum(accepted - 1, 0)]
        q = jnp.concatenate([q, jnp.zeros_like(q[:1])])
        return jnp.maximum(weight * p[accepted] - q[accepted], 0.0)


class FirstThatFails(BlockRule):
    """Stops at the first trial that fails, as if tokens were judged one by one."""

    def accept_law(self, tokens, q, p):
        weight = self.weights(tokens, q, p)
        reach = jnp.cumprod(weight)
        return jnp.append(reach[:-1] - reach[1:], reach[-1])


@pytest.mark.parametrize(
    "rule",
    [
        RoundsQ(),
        UnclippedWeights(),
        UnweightedResidual(),
        WeightOneOff(),
        FirstThatFails(),
    ],
    ids=lambda rule: type(rule).__name__,
)
def test_wrong_rules_by_enumeration(rule):
    """BEHAVIOURS 3, 6: ten times the bound of 1e-6 and more."""
    errors = []
    for seed in range(3):
        tables = jax.random.normal(jax.random.key(seed), (2, V, V, V)) * 1.5
        p, q = (table_law(table, POLICY) for table in tables)
        law = emitted_law(rule, p, q, PROMPT, 3)
        errors.append(np.abs(law - chain_law(p, PROMPT, 4)).max())
    assert max(errors) > 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiltersFirst(SamplingPolicy):
    """Takes top-p of the logits before the temperature."""

    def probs(self, logits, sampling=None, history=None):
        kept = keep_top_p(logits, self.top_p)
        return jax.nn.softmax(kept / self.temperature)


def test_a_filter_before_the_temperature():
    """BEHAVIOURS 12."""
    fields = {"temperature": 2.0, "top_p": 0.8}
    honest, faulty = SamplingPolicy(**fields), FiltersFirst(**fields)
    found = pvalue("none", TokenRule(), policy=honest, target_policy=faulty)
    assert found < CERTAIN
    assert pvalue("none", TokenRule(), policy=honest) > 1e-6


@pytest.mark.parametrize("fault", ["none", "one position off", "of the step"])
def test_noise_that_is_not_of_the_position(monkeypatch, fault):
    """BEHAVIOURS 10: the output is lawful still, but not plain decoding's."""
    patches = {
        "none": block_keys,
        "one position off": lambda k, length, n: block_keys(k, length + 1, n),
        "of the step": lambda k, length, n: step_keys(k, length, DRAFT, n),
    }
    monkeypatch.setattr(speculative, "block_keys", patches[fault])
    plain = Autoregressive(DECODER, POLICY, noise="gumbel", eos_id=None)
    want = generate(
        plain,
        PARAMS,
        None,
        np.tile(PROMPT, (500, 1)),
        jax.random.key(9),
        max_new_tokens=12,
    ).tokens
    got = decode(fault, CoupledRule(), gamma=3, rows=500, n=12)
    differing = (np.asarray(got) != np.asarray(want)).any(1).mean()
    assert differing == 0 if fault == "none" else differing > 0.9


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForgetsTheBlock(SamplingPolicy):
    """Every position of a block sees only the tokens before it."""

    def history(self, *arguments):
        seen = super().history(*arguments)
        return jnp.broadcast_to(seen[:, :1], seen.shape)


@pytest.mark.parametrize("kind", [SamplingPolicy, ForgetsTheBlock])
def test_a_penalty_that_forgets_the_block(kind):
    """It shows while a row has tokens that it has not seen."""
    fields = {"temperature": 0.0, "repetition_penalty": 3.0}
    decoder = TableDecoder(12)
    table = jax.random.normal(jax.random.key(1), (12, 12, 12))
    draft = ModelDraft(decoder, SamplingPolicy(**fields), 4)
    outputs = [
        generate(
            algorithm,
            {"target": table, "draft": table},
            None,
            np.arange(12)[:, None],
            jax.random.key(0),
            max_new_tokens=10,
        ).tokens
        for algorithm in (
            Autoregressive(decoder, SamplingPolicy(**fields), eos_id=None),
            Speculative(decoder, draft, kind(**fields), eos_id=None),
        )
    ]
    same = bool((outputs[0] == outputs[1]).all())
    assert same == (kind is SamplingPolicy)
