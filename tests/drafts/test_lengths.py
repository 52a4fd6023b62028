"""Length policies: how many tokens are drafted, and that it is lawful to stop there."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    CoupledRule,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    generate,
    trace,
)
from spec_jax.core.draws import DRAFT, row_keys, step_keys
from spec_jax.core.theory import optimal_gamma
from spec_jax.drafts import BigramDraft, ConfidenceStop, FixedLength, OptimalLength
from spec_jax.drafts.lengths import LengthPolicy, begin, fixed_length, resume
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder

V, GAMMA = 4, 5
DECODER = TableDecoder(V)
TABLE = jax.random.normal(jax.random.key(3), (V, V, V)) * 1.5
OTHER = jnp.roll(TABLE, 1, axis=2)  # its likeliest token is another one everywhere
GREEDY = SamplingPolicy(temperature=0.0)
KEY = jax.random.key(5)


@pytest.mark.parametrize(
    "policy", [FixedLength(), OptimalLength(0.2), ConfidenceStop(0.5)], ids=str
)
def test_are_length_policies(policy):
    assert isinstance(policy, LengthPolicy)
    same = dataclasses.replace(policy)
    assert policy == same and hash(policy) == hash(same)
    assert (policy.most(policy.init(3), GAMMA) <= GAMMA).all()


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.45, 0.7, 0.9, 1.0])
@pytest.mark.parametrize(("c", "verify_cost"), [(0.02, 1.0), (0.1, 1.2), (0.4, 1.0)])
def test_optimal_length_is_theorys(alpha, c, verify_cost):
    """Section 3.5 at an alpha that is known, up to gamma; 0 where no draft pays."""
    policy = OptimalLength(c, verify_cost, alpha)
    most = policy.most(policy.init(2), 12)
    # A step without a draft costs what verification of nothing does.
    want = optimal_gamma(alpha, c / verify_cost, max_gamma=12)
    np.testing.assert_array_equal(most, [want, want])


def test_the_running_alpha():
    """Judged tokens count once each; those after a rejection were not judged."""
    policy = OptimalLength(0.1, alpha=0.5, weight=2.0, decay=0.5)
    state = policy.init(2)
    for drafted, accepted in (([4, 4], [4, 1]), ([4, 2], [0, 2])):
        state = policy.observe(state, jnp.array(drafted), jnp.array(accepted))
    np.testing.assert_allclose(state.accepted, [2.0, 2.5])
    np.testing.assert_allclose(state.rejected, [1.0, 0.5])


def test_acceptances_are_told_by_the_length():
    """A row's length grows by the accepted tokens and one; one that stands is kept."""
    policy = OptimalLength(0.1, decay=1.0)
    progress = begin(policy, 4)._replace(
        length=jnp.full(4, 10), count=jnp.array([3, 3, 3, 0])
    )
    state = resume(policy, progress, jnp.array([14, 12, 10, 11]))
    np.testing.assert_array_equal(state.accepted, [3, 1, 0, 0])
    np.testing.assert_array_equal(state.rejected, [0, 1, 0, 0])
    fading = OptimalLength(0.1, decay=0.5)
    held = progress._replace(policy=state)
    for length, kept in ((10, 3.0), (7, 3.0), (11, 1.5)):
        after = resume(fading, held, jnp.full(4, length))
        assert after.accepted[0] == kept


def drafted(lengths, params, steps=40, gamma=GAMMA, policy=GREEDY):
    """How many tokens were proposed in each step of one row."""
    draft = ModelDraft(DECODER, policy, gamma, lengths)
    algorithm = Speculative(DECODER, draft, policy, eos_id=None)
    _, info = trace(
        algorithm,
        params,
        None,
        np.array([[0, 1]]),
        KEY,
        max_new_tokens=steps * (gamma + 1),
        num_steps=steps,
    )
    return np.asarray(info.num_proposed)[:, 0], np.asarray(info.num_accepted)[:, 0]


def test_a_draft_that_is_never_right_is_not_asked():
    """gamma falls to 0, and comes back now and then to look."""
    lengths = OptimalLength(0.35, decay=0.95)
    proposed, accepted = drafted(lengths, {"target": OTHER, "draft": TABLE})
    assert proposed[0] > 0 and not accepted.any()
    quiet = proposed == 0
    assert quiet.mean() > 0.5
    first = quiet.argmax()
    assert (proposed[first:] > 0).any()  # it tries again
    assert (proposed[first:] > 0).mean() < 0.4


def test_a_draft_that_is_always_right_is_asked_for_all():
    lengths = OptimalLength(0.1)
    proposed, accepted = drafted(lengths, {"target": TABLE, "draft": TABLE})
    assert proposed[0] < GAMMA  # what alpha = 0.7 makes best
    np.testing.assert_array_equal(proposed[10:], GAMMA)
    np.testing.assert_array_equal(proposed, accepted)


@dataclasses.dataclass(frozen=True)
class Turning(TableDecoder):
    """Says what a second table says from a position on."""

    turn: int = 0

    def extend(self, params, cache, tokens, start):
        before, _ = super().extend(params[0], cache, tokens, start)
        after, cache = super().extend(params[1], cache, tokens, start)
        position = start[:, None] + jnp.arange(tokens.shape[1])
        return jnp.where((position < self.turn)[..., None], before, after), cache


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_gamma_comes_back_with_the_cache_whole(temperature):
    """The target is no draft's at first and then the draft's own: none is rejected."""
    policy = SamplingPolicy(temperature=temperature)
    target = Turning(V, turn=20)
    lengths = OptimalLength(0.35, decay=0.95)
    draft = ModelDraft(DECODER, policy, GAMMA, lengths)
    algorithm = Speculative(target, draft, policy, eos_id=None)
    _, info = trace(
        algorithm,
        {"target": (OTHER * 9, TABLE * 9), "draft": TABLE * 9},
        None,
        np.array([[0, 1], [2, 3]]),
        KEY,
        max_new_tokens=100,
        num_steps=50,
    )
    late = np.asarray(info.length) > 20
    proposed, accepted = np.asarray(info.num_proposed), np.asarray(info.num_accepted)
    assert (proposed[~late] == 0).any()
    np.testing.assert_array_equal(proposed[late], accepted[late])
    assert (proposed[late] == GAMMA).sum() > 5


@functools.partial(jax.jit, static_argnums=0)
def first_proposal(draft, params, keys, tokens, length):
    state = draft.init(params, None, tokens[:, :1], length, tokens.shape[1])
    return draft.propose(params, state, keys, tokens, length)[0]


def toy_proposals(threshold, rows=40_000, gamma=2):
    q = jnp.log(jnp.array([0.9, 0.1]))
    draft = ModelDraft(
        TableDecoder(2), SamplingPolicy(), gamma, ConfidenceStop(threshold)
    )
    tokens = jnp.zeros((rows, 4), jnp.int32)
    params = jnp.broadcast_to(q, (2, 2, 2))
    length = jnp.ones(rows, jnp.int32)

    keys = step_keys(row_keys(KEY, rows), length, DRAFT, gamma)
    return first_proposal(draft, params, keys, tokens, length)


def test_a_stop_keeps_the_token_it_looked_at():
    """BEHAVIOURS 7: to drop tokens of q below .5 would give (.55, .45)."""
    out = toy_proposals(0.5)
    first = np.asarray(out.tokens)[:, 0]
    np.testing.assert_array_equal(out.count, np.where(first == 1, 1, 2))
    # Kept whatever it was: the proposed tokens have the draft's law.
    assert chi_square_pvalue(first[:, None], np.array([0.9, 0.1])) > 1e-6
    target = jnp.zeros((2, 2, 2))
    draft = ModelDraft(TableDecoder(2), SamplingPolicy(), 2, ConfidenceStop(0.5))
    algorithm = Speculative(TableDecoder(2), draft, SamplingPolicy(), eos_id=None)
    q = jnp.broadcast_to(jnp.log(jnp.array([0.9, 0.1])), (2, 2, 2))
    rows = 40_000
    emitted = generate(
        algorithm,
        {"target": target, "draft": q},
        None,
        np.zeros((rows, 1), int),
        KEY,
        max_new_tokens=3,
    ).tokens
    emitted = np.asarray(emitted)
    assert chi_square_pvalue(emitted, np.full((2, 2, 2), 1 / 8)) > 1e-6
    wrong = chi_square_pvalue(emitted[:, :1], np.array([0.55, 0.45]))
    assert wrong < 1e-6


def test_confidence_is_of_the_model_not_of_the_filters():
    """At T = 0 as at T = 1 the same threshold means the same."""
    table = jnp.broadcast_to(jnp.log(jnp.array([0.6, 0.3, 0.1])), (3, 3, 3))
    tokens, length = jnp.zeros((1, 9), jnp.int32), jnp.ones(1, jnp.int32)
    keys = jax.random.split(KEY, (1, 4))
    for threshold, count in ((0.5, 4), (0.7, 1)):
        for policy in (GREEDY, SamplingPolicy(top_k=1)):
            draft = ModelDraft(TableDecoder(3), policy, 4, ConfidenceStop(threshold))
            out = first_proposal(draft, table, keys, tokens, length)
            assert out.count[0] == count


def test_the_draft_loop_ends_when_every_row_has_stopped():
    class Counted(TableDecoder):
        def extend(self, params, cache, tokens, start):
            jax.debug.callback(lambda: calls.append(tokens.shape[1]))
            return super().extend(params, cache, tokens, start)

    # Token 0 is followed by 1, surely; 1 by 2, unsurely; 2 by 3, surely.
    rows = jnp.array([[0.0, 9, 0, 0], [0, 0, 0.5, 0], [0, 0, 0, 9], [9, 0, 0, 0]])
    table = jnp.broadcast_to(rows, (V, V, V))
    calls = []
    draft = ModelDraft(Counted(V), GREEDY, GAMMA, ConfidenceStop(0.5))
    for starts, counts in (([0], [2]), ([2, 0], [4, 2]), ([1], [1])):
        tokens = jnp.pad(jnp.array(starts)[:, None], ((0, 0), (0, 9)))
        length = jnp.ones(len(starts), jnp.int32)
        keys = jax.random.split(KEY, (len(starts), GAMMA))
        calls.clear()
        out = first_proposal(draft, table, keys, tokens, length)
        jax.block_until_ready(out.count)
        jax.effects_barrier()
        np.testing.assert_array_equal(out.count, counts)
        assert sorted(calls) == [1] * (max(counts) - 1) + [2]


def test_fixed_length_of_any_draft():
    """What alpha is measured with: all of gamma, whatever the policy says."""
    draft = BigramDraft(V, GREEDY, 4, OptimalLength(0.3), noise="gumbel")
    assert fixed_length(draft, 1) == BigramDraft(V, GREEDY, 1, noise="gumbel")
    Speculative(DECODER, fixed_length(draft), GREEDY, CoupledRule())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: OptimalLength(0.0), "c, verify_cost and weight > 0"),
        (lambda: OptimalLength(0.1, weight=0.0), "weight > 0"),
        (lambda: OptimalLength(0.1, alpha=1.5), r"alpha and decay in \[0, 1\]"),
        (lambda: OptimalLength(0.1, decay=-1.0), "decay"),
        (lambda: ConfidenceStop(1.5), r"threshold in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_fields_raise(make, said):
    with pytest.raises(ValueError, match=said):
        make()
