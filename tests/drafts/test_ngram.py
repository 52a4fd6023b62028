"""Tables as decoders: rows that sum to 1, nothing impossible, perfect where true."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Decoder, SamplingPolicy, Speculative, generate
from spec_jax.drafts import BigramDraft, UnigramDraft
from spec_jax.drafts.ngram import BigramDecoder, UnigramDecoder, bigram_logits
from spec_jax.testing.tables import TableDecoder
from spec_jax.training.tables import count_tables

V = 6


def as_arrays(tables):
    return jax.tree.map(jnp.asarray, tables)


def zipf(vocab_size, rows, seed=0):
    """Texts whose next token depends on the one before."""
    rng = np.random.default_rng(seed)
    ranks = rng.zipf(1.3, (rows, 30)) - 1
    return np.cumsum(ranks, axis=1) % vocab_size


TABLES = as_arrays(count_tables(zipf(V, 20), V, successors=3))


def test_tables_are_decoders():
    for decoder in (UnigramDecoder(V), BigramDecoder(V)):
        assert isinstance(decoder, Decoder)
        tokens = jnp.array([[1, 2], [3, 0]])
        cache = decoder.init_cache(TABLES, None, 2, 9)
        logits, _ = decoder.extend(TABLES, cache, tokens, jnp.array([0, 4]))
        assert logits.shape == (2, 2, V) and logits.dtype == jnp.float32
        np.testing.assert_allclose(jnp.exp(logits).sum(-1), 1, atol=1e-6)


@pytest.mark.parametrize(
    ("vocab_size", "successors"), [(2, 1), (5, 4), (300, 16), (32_128, 16)]
)
def test_rows_are_distributions(vocab_size, successors):
    """Every token of the vocabulary has a probability; sums hold in float32."""
    tables = as_arrays(
        count_tables(zipf(vocab_size, 300), vocab_size, successors=successors)
    )
    tokens = jnp.array([[0, 1, vocab_size // 2, vocab_size - 1]])
    rows = jnp.exp(jax.jit(bigram_logits)(tables, tokens))
    assert float(rows.min()) > 0
    np.testing.assert_allclose(rows.sum(-1, dtype=jnp.float32), 1, atol=1e-6)
    stored = sum(x.size * x.dtype.itemsize for x in tables.values())
    assert stored <= vocab_size * (4 * successors + 8)


def test_a_row_is_what_the_tables_say():
    """Successors have their shares, the others their part of the unigram law."""
    tables = {
        "unigram": jnp.array([0.5, 0.2, 0.2, 0.1], jnp.float32),
        "successors": jnp.array([[2, 0], [0, 1], [3, 0], [1, 2]], jnp.uint16),
        "shares": jnp.array([[0.5, 0.2], [0, 0], [1, 0], [0.25, 0]], jnp.float16),
        "rest": jnp.array([1.0, 1.0, 0.0, 0.75 / 0.8], jnp.float32),
    }
    rows = jnp.exp(bigram_logits(tables, jnp.arange(4)[None]))[0]
    want = [
        [0.2, 0.2, 0.5, 0.1],
        [0.5, 0.2, 0.2, 0.1],
        [0, 0, 0, 1],
        [0.46875, 0.25, 0.1875, 0.09375],
    ]
    np.testing.assert_allclose(rows, want, atol=2e-4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", [UnigramDraft, BigramDraft])
def test_tables_that_are_the_target_are_never_rejected(kind, temperature):
    """steps == ceil(N / (gamma + 1)), a ragged batch."""
    policy = SamplingPolicy(temperature=temperature)
    rows = kind(V, policy, 1).decoder.extend(TABLES, (), jnp.arange(V)[None], None)[0]
    target = jnp.broadcast_to(rows, (V, V, V))
    for gamma in (1, 4):
        algorithm = Speculative(
            TableDecoder(V), kind(V, policy, gamma), policy, eos_id=None
        )
        out = generate(
            algorithm,
            {"target": target, "draft": TABLES},
            None,
            np.array([[0, 1, 2], [4, 0, 0]]),
            jax.random.key(3),
            max_new_tokens=18,
            prompt_length=np.array([3, 1]),
        )
        assert out.stats.accepted_per_drafted == 1
        steps = np.asarray(out.stats.histogram).sum((1, 2))
        np.testing.assert_array_equal(steps, -(-18 // (gamma + 1)))


def test_a_cycle_is_said_by_its_table():
    """Pairs that always occur are always proposed."""
    circle = (np.arange(60) + 1) % V
    tables = as_arrays(count_tables([circle], V, successors=2))
    greedy = SamplingPolicy(temperature=0.0)
    table = jnp.broadcast_to(jnp.eye(V)[(jnp.arange(V) + 1) % V] * 9, (V, V, V))
    algorithm = Speculative(
        TableDecoder(V), BigramDraft(V, greedy, 3), greedy, eos_id=None
    )
    out = generate(
        algorithm,
        {"target": table, "draft": tables},
        None,
        np.array([[0], [3]]),
        jax.random.key(0),
        max_new_tokens=22,
    )
    assert out.stats.accepted_per_drafted == 1 and out.stats.steps == 2 * 6


def test_the_policy_applies_to_tables():
    """Limit, bans and temperature; what is reported is what can be drawn."""
    policy = SamplingPolicy(temperature=0.5, vocab_limit=4, banned=(1,))
    draft = BigramDraft(V, policy, 2)
    tokens, length = jnp.zeros((500, 3), jnp.int32), jnp.full(500, 1)
    keys = jax.random.split(jax.random.key(0), (500, 2))
    state = draft.init(TABLES, None, tokens[:, :1], length, 3)
    out, _ = jax.jit(draft.propose)(TABLES, state, keys, tokens, length)
    assert out.probs.shape == (500, 2, 4)
    assert set(np.unique(out.tokens)) <= {0, 2, 3}
    row = np.asarray(jnp.exp(2 * bigram_logits(TABLES, jnp.zeros((1, 1), int))))[0, 0]
    row = row[:4] * [1, 0, 1, 1]
    np.testing.assert_allclose(out.probs[0, 0], row / row.sum(), atol=1e-6)


def test_wrong_fields_raise():
    policy = SamplingPolicy()
    with pytest.raises(ValueError, match="gamma >= 1, got 0"):
        BigramDraft(V, policy, 0)
    with pytest.raises(ValueError, match="vocab_size >= 1, got 0"):
        UnigramDraft(0, policy, 2)
    with pytest.raises(ValueError, match="want noise 'uniform' or 'gumbel', got None"):
        BigramDraft(V, policy, 2, noise=None)
    with pytest.raises(ValueError, match="vocab_size = 9 tokens, got 6"):
        BigramDecoder(9).extend(TABLES, (), jnp.zeros((1, 1), int), jnp.zeros(1, int))
