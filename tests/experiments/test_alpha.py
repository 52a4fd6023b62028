"""alpha on the target's own output, against sums written out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Autoregressive, ModelDraft, Proposal, SamplingPolicy, generate
from spec_jax.experiments.alpha import acceptances, mean_acceptance
from spec_jax.testing.tables import TableDecoder, table_law

V = 5
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(3), (2, V, V, V)) * 1.5
PARAMS = {"target": TABLES[0], "draft": TABLES[0] + TABLES[1]}
PERFECT = {"target": TABLES[0], "draft": TABLES[0]}
SAMPLED = SamplingPolicy(temperature=0.8)
GREEDY = SamplingPolicy(temperature=0.0)
PROMPT = np.array([[2, 4], [1, 0], [3, 3]])
KEY = jax.random.key(5)


def output(policy, params=PARAMS, n=9):
    out = generate(
        Autoregressive(DECODER, policy, eos_id=0),
        params,
        None,
        PROMPT,
        KEY,
        max_new_tokens=n,
    )
    return np.asarray(out.tokens), np.asarray(out.lengths)


def measured(policy, params=PARAMS, gamma=3, draft=None):
    tokens, lengths = output(policy, params)
    draft = draft or ModelDraft(DECODER, policy, gamma)
    betas = acceptances(
        DECODER, draft, policy, params, None, PROMPT, tokens, lengths, KEY
    )
    return np.asarray(betas), tokens, lengths


def by_hand(tokens, lengths, policy, params=PARAMS):
    p, q = (table_law(params[name], policy) for name in ("target", "draft"))
    betas = np.zeros(tokens.shape)
    for row, (prompt, text) in enumerate(zip(PROMPT, tokens)):
        for i in range(lengths[row]):
            prefix = [*prompt, *text[:i]]
            betas[row, i] = np.minimum(p(prefix), q(prefix)).sum()
    return betas


@pytest.mark.parametrize("policy", [SAMPLED, GREEDY, SamplingPolicy(top_k=2)])
def test_betas_equal_the_sums_of_exact_laws(policy):
    betas, tokens, lengths = measured(policy)
    assert lengths.min() < tokens.shape[1]  # some rows end early
    np.testing.assert_allclose(betas, by_hand(tokens, lengths, policy), atol=1e-6)
    assert 0 < betas.sum() < lengths.sum()


def test_the_comparison_sees_a_shift_by_one():
    """A planted fault: q of the position before."""
    betas, tokens, lengths = measured(SAMPLED)
    shifted = np.roll(by_hand(tokens, lengths, SAMPLED), 1, axis=1)
    assert np.abs(betas - shifted).max() > 1e-2


@pytest.mark.parametrize("policy", [SAMPLED, GREEDY])
def test_a_perfect_draft_has_alpha_one(policy):
    betas, _, lengths = measured(policy, PERFECT)
    alpha = mean_acceptance(betas, lengths)
    assert alpha.mean == pytest.approx(1.0, abs=1e-6)
    assert alpha.num_tokens == lengths.sum()


def test_gamma_does_not_matter():
    one, three = (measured(SAMPLED, gamma=gamma)[0] for gamma in (1, 3))
    np.testing.assert_array_equal(one, three)


@dataclasses.dataclass(frozen=True)
class Echo:
    """Proposes the newest token where it is odd, and nothing elsewhere."""

    gamma: int
    noise = None

    def init(self, params, inputs, prompt, prompt_length, max_length):
        return None

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        newest = jnp.take_along_axis(tokens, length[:, None] - 1, axis=1)
        repeated = jnp.repeat(newest, self.gamma, axis=1)
        count = jnp.where(newest[:, 0] % 2 == 1, self.gamma, 0)
        return Proposal(repeated, None, count), None


def test_a_draft_without_draws_is_one_hot_and_no_proposal_is_zero():
    betas, tokens, lengths = measured(SAMPLED, draft=Echo(2))
    p = table_law(PARAMS["target"], SAMPLED)
    want = np.zeros(tokens.shape)
    for row, (prompt, text) in enumerate(zip(PROMPT, tokens)):
        for i in range(lengths[row]):
            prefix = [*prompt, *text[:i]]
            want[row, i] = p(prefix)[prefix[-1]] if prefix[-1] % 2 else 0.0
    np.testing.assert_allclose(betas, want, atol=1e-6)
    assert (want[:, 0] == 0).any()
    assert (want > 0).any()


def test_a_row_of_length_zero_counts_nothing():
    tokens, lengths = output(SAMPLED)
    lengths = np.array([0, *lengths[1:]])
    draft = ModelDraft(DECODER, SAMPLED, 1)
    betas = acceptances(
        DECODER, draft, SAMPLED, PARAMS, None, PROMPT, tokens, lengths, KEY
    )
    assert not np.asarray(betas[0]).any()
    assert mean_acceptance(betas, lengths).num_tokens == lengths.sum()


def test_mean_and_standard_error_by_hand():
    alpha = mean_acceptance([np.array([1.0, 0.5, 9.0]), np.array([0.0])], [2, 1])
    assert alpha.mean == pytest.approx(0.5)
    # Rows leave their share of the mean by 1.5 - 2 * .5 and 0 - .5.
    assert alpha.stderr == pytest.approx(np.sqrt((0.25 + 0.25) * 2) / 3)
    assert alpha.num_tokens == 3


def test_the_standard_error_covers_the_truth():
    """Over many samples of rows whose tokens agree, as tokens of a text do."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        lengths = rng.integers(1, 20, 40)
        rows = [np.full(n, rng.random()) for n in lengths]
        alpha = mean_acceptance(rows, lengths)
        hits += abs(alpha.mean - 0.5) < 1.96 * alpha.stderr
    assert 0.88 < hits / 300 < 0.99


def test_one_row_has_no_standard_error():
    assert mean_acceptance([np.ones(3)], [3]).stderr is None


def test_no_token_is_an_error():
    with pytest.raises(ValueError, match="at least one token"):
        mean_acceptance([np.ones(3)], [0])
