"""ModelDraft alone: exactly what it drew from, and a cache that stays whole."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import DraftSource, ModelDraft, SamplingPolicy
from spec_jax.core.draws import DRAFT, draw, row_keys, step_keys, uniforms
from spec_jax.testing.tables import TableDecoder, table_law

V, GAMMA, ROWS = 4, 3, 3
DECODER = TableDecoder(V)
TABLE = jax.random.normal(jax.random.key(3), (V, V, V)) * 1.5
TOKENS = jnp.array([[1, 2, 3, 0, 0, 0], [2, 0, 0, 0, 0, 0], [3, 3, 1, 2, 0, 0]])
LENGTH = jnp.array([3, 1, 4])


def proposal(draft, params=TABLE, tokens=TOKENS, length=LENGTH, sampling=None):
    return first_proposal(draft, params, tokens, length, sampling)


@functools.partial(jax.jit, static_argnums=0)
def first_proposal(draft, params, tokens, length, sampling):
    state = draft.init(params, None, tokens[:, :4], length, 6)
    keys = step_keys(row_keys(jax.random.key(0), ROWS), length, DRAFT, draft.gamma)
    return draft.propose(params, state, keys, tokens, length, sampling)


def test_is_a_draft_source():
    assert isinstance(ModelDraft(DECODER, SamplingPolicy(), 1), DraftSource)


def test_probs_are_what_the_tokens_were_drawn_from():
    """BEHAVIOURS 3: filters included, along the drafted tokens themselves."""
    policy = SamplingPolicy(temperature=0.7, top_k=3)
    out, _ = proposal(ModelDraft(DECODER, policy, GAMMA))
    law = table_law(TABLE, policy)
    np.testing.assert_array_equal(out.count, GAMMA)
    assert out.probs.dtype == jnp.float32
    for row in range(ROWS):
        prefix = TOKENS[row, : LENGTH[row]].tolist()
        for i, token in enumerate(out.tokens[row].tolist()):
            np.testing.assert_allclose(out.probs[row, i], law(prefix), atol=1e-6)
            assert law(prefix)[token] > 0
            prefix.append(token)


@dataclasses.dataclass(frozen=True)
class Coarse(TableDecoder):
    """Logits in bfloat16, as a network may have them."""

    def extend(self, *arguments):
        logits, cache = super().extend(*arguments)
        return logits.astype(jnp.bfloat16), cache


@pytest.mark.parametrize("decoder", [DECODER, Coarse(V)], ids=["float32", "bfloat16"])
def test_tokens_are_drawn_from_the_very_probs(decoder):
    """BEHAVIOURS 3: the draws repeated from what is reported give the tokens."""
    policy = SamplingPolicy(temperature=0.7, top_k=3)
    out, _ = proposal(ModelDraft(decoder, policy, GAMMA))
    keys = step_keys(row_keys(jax.random.key(0), ROWS), LENGTH, DRAFT, GAMMA)
    drawn = jax.vmap(jax.vmap(draw))(uniforms(keys, 2), out.probs)
    np.testing.assert_array_equal(drawn, out.tokens)
    table = TABLE if decoder == DECODER else TABLE.astype(jnp.bfloat16)
    law = table_law(table, policy)
    assert out.probs.dtype == jnp.float32
    for row in range(ROWS):
        prefix = TOKENS[row, : LENGTH[row]].tolist()
        np.testing.assert_allclose(out.probs[row, 0], law(prefix), atol=1e-6)


def test_greedy_tokens_were_not_drawn():
    """No distribution is kept for argmax: it would be a one-hot row."""
    policy = SamplingPolicy(temperature=0.0)
    out, _ = proposal(ModelDraft(DECODER, policy, GAMMA))
    assert out.probs is None
    law = table_law(TABLE, policy)
    for row in range(ROWS):
        prefix = TOKENS[row, : LENGTH[row]].tolist()
        for token in out.tokens[row].tolist():
            assert token == law(prefix).argmax()
            prefix.append(token)


def test_values_for_each_row():
    draft = ModelDraft(DECODER, SamplingPolicy(), GAMMA)
    out, _ = proposal(draft, sampling={"temperature": jnp.array([0.0, 1.0, 0.0])})
    greedy, _ = proposal(ModelDraft(DECODER, SamplingPolicy(temperature=0.0), GAMMA))
    np.testing.assert_array_equal(out.tokens[0], greedy.tokens[0])
    np.testing.assert_array_equal(out.probs[0], jax.nn.one_hot(out.tokens[0], V))
    assert float(out.probs[1].max()) < 1


def test_tokens_past_the_length_are_not_read():
    draft = ModelDraft(DECODER, SamplingPolicy(), GAMMA)
    scratch = jnp.arange(6) >= LENGTH[:, None]
    want, _ = proposal(draft)
    out, _ = proposal(draft, tokens=jnp.where(scratch, 3, TOKENS))
    np.testing.assert_array_equal(out.tokens, want.tokens)
    np.testing.assert_array_equal(out.probs, want.probs)


def test_the_newest_drafted_token_is_fed_by_the_next_step():
    """BEHAVIOURS 21: after a full acceptance and its bonus no slot is missing."""
    draft = ModelDraft(DECODER, SamplingPolicy(), GAMMA)
    first, cache = proposal(draft)
    index = jnp.arange(20)
    tokens = jnp.pad(TOKENS, ((0, 0), (0, 14)))
    accepted = jnp.pad(first.tokens, ((0, 0), (0, 17)))
    offset = jnp.clip(index - LENGTH[:, None], 0, 19)
    tokens = jnp.where(
        index >= LENGTH[:, None], jnp.take_along_axis(accepted, offset, 1), tokens
    )  # gamma accepted tokens, then bonus token 0
    length = LENGTH + GAMMA + 1
    keys = step_keys(row_keys(jax.random.key(0), ROWS), length, DRAFT, GAMMA)
    out, _ = draft.propose(TABLE, cache, keys, tokens[:, :8], length)
    law = table_law(TABLE, SamplingPolicy())
    for row in range(2):  # these two still fit the cache of 6 + gamma positions
        prefix = tokens[row, : length[row]].tolist()
        np.testing.assert_allclose(out.probs[row, 0], law(prefix), atol=1e-6)


def test_the_limit_of_the_draft_model():
    """BEHAVIOURS 20: as many tokens as it has positions for, then none."""
    short = TableDecoder(V, max_length=4)
    draft = ModelDraft(short, SamplingPolicy(), GAMMA)
    out, cache = proposal(draft)
    assert cache.cache.shape == (ROWS, 4)
    np.testing.assert_array_equal(out.count, [2, 3, 1])
    law = table_law(TABLE, SamplingPolicy())
    for row in range(ROWS):
        prefix = TOKENS[row, : LENGTH[row]].tolist()
        for i in range(int(out.count[row])):
            np.testing.assert_allclose(out.probs[row, i], law(prefix), atol=1e-6)
            prefix.append(int(out.tokens[row, i]))


def test_the_loop_ends_early():
    """Rows without room cost no draft call but the first."""

    class Counted(TableDecoder):
        def extend(self, params, cache, tokens, start):
            jax.debug.callback(lambda: calls.append(tokens.shape[1]))
            return super().extend(params, cache, tokens, start)

    calls = []
    prompt, length = TOKENS[:, :2], jnp.full(ROWS, 2)
    for max_length, want in ((None, [2, 1, 1]), (2, [2]), (3, [2, 1])):
        draft = ModelDraft(Counted(V, max_length), SamplingPolicy(), GAMMA)
        calls.clear()
        jax.block_until_ready(proposal(draft, tokens=prompt, length=length))
        jax.effects_barrier()
        assert sorted(calls, reverse=True) == want


def test_wrong_fields_raise():
    with pytest.raises(ValueError, match="gamma >= 1, got 0"):
        ModelDraft(DECODER, SamplingPolicy(), 0)
    with pytest.raises(ValueError, match="max_length >= 2"):
        ModelDraft(TableDecoder(V, max_length=1), SamplingPolicy(), 1)
