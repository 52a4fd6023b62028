"""Planted faults: the tests of the law must see each of them, and pass without.

Every fault is one that real speculative decoders have had.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import ModelDraft, SamplingPolicy, Speculative, TokenRule, generate
from spec_jax.core import verification
from spec_jax.core.rules import residual
from spec_jax.testing.enumeration import chain_law, emitted_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law

V, GAMMA, ROWS = 3, 2, 50_000
DECODER = TableDecoder(V)
TARGET, DRAFT = jax.random.normal(jax.random.key(20221130), (2, V, V, V)) * 1.5
PROMPT = (2, 1)
CERTAIN = 1e-12
POLICY = SamplingPolicy()
HONEST_DRAFT = ModelDraft(DECODER, POLICY, GAMMA)


def pvalue(draft=HONEST_DRAFT, rule=None, target=TARGET, drafts=DRAFT):
    """Of the joint law of four tokens, as tests/decoding/test_law.py takes it."""
    rule = TokenRule() if rule is None else rule
    algorithm = Speculative(DECODER, draft, POLICY, rule, eos_id=None)
    tokens = generate(
        algorithm,
        {"target": target, "draft": drafts},
        None,
        np.tile(PROMPT, (ROWS, 1)),
        jax.random.key(9),
        max_new_tokens=4,
    ).tokens
    law = chain_law(table_law(target, POLICY), PROMPT, 4)
    return chi_square_pvalue(tokens, law)


def test_without_a_fault():
    assert pvalue() > 1e-6


@dataclasses.dataclass(frozen=True)
class ResamplesFromP(TokenRule):
    """Draws a correction from p instead of the residual."""

    def next_law(self, tokens, q, p, accepted):
        return p[accepted]


@dataclasses.dataclass(frozen=True)
class ResidualOneOff(TokenRule):
    """Takes the residual's q from the position before."""

    def next_law(self, tokens, q, p, accepted):
        padded = jnp.concatenate([q[:1], q])
        bonus = accepted == q.shape[0]
        return residual(p[accepted], jnp.where(bonus, 0, padded[accepted]))


@dataclasses.dataclass(frozen=True)
class BonusFromTheLastQ(TokenRule):
    """Takes a residual after a full acceptance as well."""

    def next_law(self, tokens, q, p, accepted):
        return residual(p[accepted], q[jnp.minimum(accepted, q.shape[0] - 1)])


@dataclasses.dataclass(frozen=True)
class AcceptsOneOff(TokenRule):
    """Compares with the target's distribution one position later."""

    def accept_law(self, tokens, q, p):
        return super().accept_law(tokens, q, jnp.roll(p, -1, 0))


@pytest.mark.parametrize("rule", [ResamplesFromP(), ResidualOneOff()], ids=str)
def test_wrong_rules_in_the_loop(rule):
    """BEHAVIOURS 1."""
    assert pvalue(rule=rule) < CERTAIN


@pytest.mark.parametrize(
    "rule",
    [ResamplesFromP(), ResidualOneOff(), BonusFromTheLastQ(), AcceptsOneOff()],
    ids=str,
)
def test_wrong_rules_by_enumeration(rule):
    """BEHAVIOURS 6: far from the bound of 1e-6."""
    p, q = table_law(TARGET, POLICY), table_law(DRAFT, POLICY)
    law = emitted_law(rule, p, q, PROMPT, GAMMA)
    assert np.abs(law - chain_law(p, PROMPT, GAMMA + 1)).max() > 1e-3


@dataclasses.dataclass(frozen=True)
class Fresh(TokenRule):
    """The honest rule under another name, so that a patch is compiled in."""


def test_one_number_for_accepting_and_correcting(monkeypatch):
    """Where accept and correction share a key they are not independent."""
    honest = verification.uniforms

    def shared(keys, count):
        return jnp.broadcast_to(honest(keys, 1), (*keys.shape, count))

    monkeypatch.setattr(verification, "uniforms", shared)
    assert pvalue(rule=Fresh()) < CERTAIN


@dataclasses.dataclass(frozen=True)
class DraftsArgmax(ModelDraft):
    """Drafts the likeliest token, reports the distribution it did not draw from."""

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        greedy = ModelDraft(self.decoder, SamplingPolicy(temperature=0.0), self.gamma)
        proposal, state = greedy.propose(params, draft_state, keys, tokens, length)
        index = jnp.arange(tokens.shape[1])
        total = jnp.where(index < length[:, None] - 1, tokens, 0).sum(1)
        newest = jnp.take_along_axis(tokens, length[:, None] - 1, 1)[:, 0]
        soft = []
        for i in range(self.gamma):
            soft.append(self.policy.probs(params[total % V, newest]))
            total, newest = total + newest, proposal.tokens[:, i]
        return dataclasses.replace(proposal, probs=jnp.stack(soft, 1)), state


def test_an_argmax_draft_with_a_soft_q():
    """BEHAVIOURS 1."""
    assert pvalue(DraftsArgmax(DECODER, POLICY, GAMMA)) < CERTAIN


@dataclasses.dataclass(frozen=True)
class DropsAfterLooking(ModelDraft):
    """Drops a drafted token, and what follows, for its own small q."""

    threshold: float = 0.5

    def propose(self, *arguments):
        proposal, state = super().propose(*arguments)
        q = jnp.take_along_axis(proposal.probs, proposal.tokens[..., None], 2)[..., 0]
        sure = jnp.cumprod(q >= self.threshold, axis=1).sum(1)
        count = jnp.minimum(proposal.count, sure)
        return dataclasses.replace(proposal, count=count), state


def test_dropping_a_token_after_a_look_at_it():
    """BEHAVIOURS 7: p = (.5, .5), q = (.9, .1) becomes (.55, .45)."""
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.9, 0.1, 0.0])
    with np.errstate(divide="ignore"):
        target, draft = (
            jnp.asarray(np.broadcast_to(np.log(x), (V, V, V)), jnp.float32)
            for x in (p, q)
        )
    algorithm = Speculative(
        DECODER, DropsAfterLooking(DECODER, POLICY, 1), POLICY, eos_id=None
    )
    tokens = generate(
        algorithm,
        {"target": target, "draft": draft},
        None,
        np.zeros((ROWS, 1), np.int32),
        jax.random.key(0),
        max_new_tokens=2,
    ).tokens
    first = np.asarray(tokens[:, 0] == 0).mean()
    assert first == pytest.approx(0.55, abs=0.01)
    dropping = DropsAfterLooking(DECODER, POLICY, GAMMA)
    assert pvalue(dropping) < CERTAIN


@dataclasses.dataclass(frozen=True)
class KeepsAfterLooking(ModelDraft):
    """Stops after a token of small q, which it keeps."""

    def propose(self, *arguments):
        proposal, state = super().propose(*arguments)
        q = jnp.take_along_axis(proposal.probs, proposal.tokens[..., None], 2)[..., 0]
        sure = jnp.cumprod(q >= 0.5, axis=1).sum(1)
        count = jnp.minimum(proposal.count, sure + 1)
        return dataclasses.replace(proposal, count=count), state


def test_keeping_the_token_that_was_looked_at():
    """BEHAVIOURS 7: the lawful way to stop."""
    assert pvalue(KeepsAfterLooking(DECODER, POLICY, GAMMA)) > 1e-6


@dataclasses.dataclass(frozen=True)
class WritesOneOff(TableDecoder):
    """Writes and reads one position late after the prompt."""

    def extend(self, params, cache, tokens, start):
        return super().extend(params, cache, tokens, start + (start > 0))


def test_a_cache_that_is_one_position_off():
    """The poisoned slots of a TableDecoder show it."""
    algorithm = Speculative(
        WritesOneOff(V), HONEST_DRAFT, POLICY, eos_id=None, logprobs=True
    )
    out = generate(
        algorithm,
        {"target": TARGET, "draft": DRAFT},
        None,
        np.tile(PROMPT, (4, 1)),
        jax.random.key(0),
        max_new_tokens=4,
    )
    assert np.isnan(out.logprobs).any()


@dataclasses.dataclass(frozen=True)
class FeedsTheNewestAlone(TableDecoder):
    """A draft's cache that lacks the token before the newest one."""

    def extend(self, params, cache, tokens, start):
        skipped = tokens.shape[1] - 1
        logits, cache = super().extend(
            params, cache, tokens[:, skipped:], start + skipped
        )
        return jnp.repeat(logits, skipped + 1, axis=1), cache


@pytest.mark.parametrize("decoder", [DECODER, FeedsTheNewestAlone(V)], ids=str)
def test_a_stale_draft_cache(decoder):
    """BEHAVIOURS 21: a perfect draft is rejected, though the law stays right."""
    greedy = SamplingPolicy(temperature=0.0)
    algorithm = Speculative(
        DECODER, ModelDraft(decoder, greedy, GAMMA), greedy, eos_id=None
    )
    out = generate(
        algorithm,
        {"target": TARGET, "draft": TARGET},
        None,
        np.array([[0, 1], [2, 1], [1, 1], [2, 2]]),
        jax.random.key(0),
        max_new_tokens=30,
    )
    assert (out.stats.accepted_per_drafted == 1) == (decoder == DECODER)
