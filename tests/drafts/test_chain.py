"""ChainDraft alone: the model's own law, few calls of it, caches that stay whole."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    BlockRule,
    CoupledRule,
    LenientRule,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    generate,
    trace,
)
from spec_jax.core.draws import draft_keys, row_keys
from spec_jax.drafts import BigramDraft, ChainDraft, OptimalLength, PromptLookupDraft
from spec_jax.testing.enumeration import chain_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law
from spec_jax.training.tables import count_tables

V = 4
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(7), (2, V, V, V)) * 1.5
SMALL, POOR = TABLES[0], TABLES[0] + TABLES[1]
COUNTS = jax.tree.map(
    jnp.asarray,
    count_tables(np.random.default_rng(0).integers(0, V, (9, 9)), V, successors=2),
)
KEY = jax.random.key(11)
PROMPTS = np.array([[0, 1, 2, 3], [3, 2, 0, 0], [1, 0, 0, 0], [2, 2, 3, 0]])
LENGTHS = np.array([4, 2, 1, 3])
SAMPLED = SamplingPolicy()


@dataclasses.dataclass(frozen=True, eq=False)
class Counted(TableDecoder):
    """Records how many tokens each call is given, as it runs."""

    calls: list = dataclasses.field(default_factory=list)
    # One that is equal to another would run the other's program.
    __eq__, __hash__ = object.__eq__, object.__hash__

    def extend(self, params, cache, tokens, start):
        width = tokens.shape[1]
        jax.debug.callback(lambda: self.calls.append(width))
        return super().extend(params, cache, tokens, start)


def inner_draft(kind, gamma, policy=SAMPLED, noise="uniform"):
    """A draft for the model, and its parameters."""
    if kind == "bigram":
        return BigramDraft(V, policy, gamma, noise=noise), COUNTS
    if kind == "lookup":
        return PromptLookupDraft(gamma, eos_id=None), None
    table = SMALL if kind == "perfect" else POOR
    return ModelDraft(DECODER, policy, gamma, noise=noise), table


@functools.partial(jax.jit, static_argnums=0)
def first_proposal(draft, params, tokens, length):
    rows, size = tokens.shape
    state = draft.init(params, None, tokens, length, size)
    keys = draft_keys(draft, row_keys(KEY, rows), length)
    return draft.propose(params, state, keys, tokens, length)[0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("kind", "inner_gamma", "gamma"),
    [("bigram", 2, 5), ("lookup", 3, 4), ("poor", 4, 4)],
)
def test_a_model_that_is_the_target_is_never_rejected(
    kind, inner_gamma, gamma, temperature
):
    """Whatever drafts for it; and no proposal falls short."""
    policy = SamplingPolicy(temperature=temperature)
    inner, params = inner_draft(kind, inner_gamma, policy)
    draft = ChainDraft(inner, DECODER, policy, gamma)
    algorithm = Speculative(DECODER, draft, policy, eos_id=None)
    out = generate(
        algorithm,
        {"target": SMALL, "draft": {"model": SMALL, "inner": params}},
        np.array([[2, 3, 1, 2]] * 4),
        PROMPTS,
        KEY,
        max_new_tokens=18,
        prompt_length=LENGTHS,
    )
    assert out.stats.accepted_per_drafted == 1
    steps = np.asarray(out.stats.histogram).sum((1, 2))
    np.testing.assert_array_equal(steps, -(-18 // (gamma + 1)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("inner_gamma", "gamma", "count", "rounds"),
    [
        (4, 4, 4, 1),  # four of the inner draft's
        (9, 4, 4, 1),
        (1, 4, 3, 2),  # one and one more, one: the model's own would not be seen
        (2, 7, 7, 3),
        (3, 4, 3, 1),
    ],
)
def test_a_perfect_inner_draft_is_never_rejected(
    inner_gamma, gamma, count, rounds, temperature
):
    """Its cache is whole whatever the large model keeps: no call of the model more.

    A stale slot would hold NaN, or another token.
    """
    policy = SamplingPolicy(temperature=temperature)
    inner, params = inner_draft("perfect", inner_gamma, policy)
    model = Counted(V)
    draft = ChainDraft(inner, model, policy, gamma)
    algorithm = Speculative(DECODER, draft, SAMPLED, eos_id=None)
    steps = 12
    _, info = trace(
        algorithm,
        {"target": 1.5 * SMALL, "draft": {"model": SMALL, "inner": params}},
        None,
        PROMPTS[:1],
        KEY,
        max_new_tokens=steps * (gamma + 1),
        num_steps=steps,
    )
    jax.effects_barrier()
    accepted = np.asarray(info.num_accepted)
    assert accepted.min() < count == accepted.max()  # rejections and full acceptances
    np.testing.assert_array_equal(info.num_proposed, count)
    assert model.calls == [2] + [inner_gamma + 2] * rounds * steps


@pytest.mark.parametrize(
    ("kind", "temperature"),
    [("bigram", 0.0), ("bigram", 1.5), ("lookup", 0.7), ("poor", 0.7)],
)
def test_noise_of_positions_draws_what_the_model_alone_would(kind, temperature):
    """Token for token, with the same keys."""
    policy = SamplingPolicy(temperature=temperature)
    gamma, length = 5, jnp.array(LENGTHS)
    inner, params = inner_draft(kind, 3, policy, "gumbel")
    alone = ModelDraft(DECODER, policy, gamma, noise="gumbel")
    staged = ChainDraft(inner, DECODER, policy, gamma, noise="gumbel")
    tokens = jnp.pad(jnp.array(PROMPTS), ((0, 0), (0, 8)))
    outs = []
    for draft, given in ((alone, SMALL), (staged, {"model": SMALL, "inner": params})):
        outs.append(first_proposal(draft, given, tokens, length))
    counts = jnp.arange(gamma) < outs[1].count[:, None]
    assert (outs[1].count >= gamma - 1).all()
    same = (outs[0].tokens == outs[1].tokens) | ~counts
    assert same.all()
    if temperature == 0:
        assert outs[0].probs is None and outs[1].probs is None
    else:
        error = jnp.abs(outs[0].probs - outs[1].probs).max(-1)
        assert float(jnp.where(counts, error, 0).max()) < 1e-6


def test_the_inner_rule_may_judge_blocks():
    """The proposal keeps the model's law over several rounds."""
    inner, params = inner_draft("bigram", 2)
    draft, rows = ChainDraft(inner, DECODER, SAMPLED, 4, BlockRule()), 30_000
    tokens = jnp.tile(jnp.array([2, 1, 0, 0, 0, 0]), (rows, 1))
    length = jnp.full(rows, 2)
    given = {"model": SMALL, "inner": params}

    out = first_proposal(draft, given, tokens, length)
    law = chain_law(table_law(SMALL, SAMPLED), (2, 1), 4)
    assert chi_square_pvalue(np.asarray(out.tokens), law) > 1e-6


def test_a_poor_inner_draft_costs_calls_and_nothing_else():
    """Of 4 tokens the perfect one needs one call, a wrong one up to four."""
    given = {"model": SMALL, "inner": jnp.roll(SMALL, 1, axis=2)}
    greedy, model = SamplingPolicy(temperature=0.0), Counted(V)
    draft = ChainDraft(ModelDraft(DECODER, greedy, 4), model, greedy, 4)
    tokens, length = jnp.array([[1, 2, 0, 0]]), jnp.array([2])
    out = first_proposal(draft, given, tokens, length)
    jax.effects_barrier()
    assert out.count[0] == 4 and model.calls[1:] == [6] * 4


def test_rows_wait_for_each_other_and_change_nothing():
    """Rows of very different luck, with an inner draft that learns: as alone."""
    lengths = OptimalLength(0.2)
    policy = SamplingPolicy(temperature=0.5)
    inner = ModelDraft(DECODER, policy, 3, lengths)
    draft = ChainDraft(inner, DECODER, policy, 6)
    algorithm = Speculative(DECODER, draft, policy, eos_id=None)
    params = {"target": SMALL, "draft": {"model": SMALL, "inner": POOR}}
    keys = jax.random.split(KEY, 4)
    options = {"max_new_tokens": 30}
    together = generate(
        algorithm, params, None, PROMPTS, keys, prompt_length=LENGTHS, **options
    )
    for i in range(4):
        row = slice(i, i + 1)
        alone = generate(
            algorithm,
            params,
            None,
            PROMPTS[row],
            keys[row],
            prompt_length=LENGTHS[row],
            **options,
        )
        np.testing.assert_array_equal(together.tokens[i], alone.tokens[0])
        np.testing.assert_array_equal(
            together.stats.row(i).histogram, alone.stats.histogram
        )


@pytest.mark.parametrize("kind", ["bigram", "poor"])
def test_the_limit_of_the_model(kind):
    """BEHAVIOURS 20: as many tokens as it has positions for, then none."""
    inner, params = inner_draft(kind, 3)
    draft = ChainDraft(inner, TableDecoder(V, max_length=5), SAMPLED, 4)
    law = table_law(SMALL, SAMPLED)
    tokens = jnp.array([[1, 2, 3, 0, 1, 2, 3, 0]] * 5)
    length = jnp.array([1, 3, 5, 6, 7])
    given = {"model": SMALL, "inner": params}
    out = first_proposal(draft, given, tokens, length)
    most = np.array([4, 3, 1, 0, 0])
    assert (np.asarray(out.count) <= most).all()
    assert (np.asarray(out.count) >= most - (kind == "poor")).all()
    for row in range(5):
        prefix = tokens[row, : length[row]].tolist()
        for i in range(int(out.count[row])):
            np.testing.assert_allclose(out.probs[row, i], law(prefix), atol=1e-6)
            prefix.append(int(out.tokens[row, i]))
    algorithm = Speculative(DECODER, draft, SAMPLED, eos_id=None)
    out = generate(
        algorithm,
        {"target": SMALL, "draft": given},
        None,
        PROMPTS,
        KEY,
        max_new_tokens=12,
        prompt_length=LENGTHS,
    )
    np.testing.assert_array_equal(out.lengths, 12)
    assert out.stats.accepted_per_drafted == 1 and out.stats.steps_without_drafts > 0


def test_chains_of_chains():
    """A chain is a draft: it drafts for a third model."""
    policy = SamplingPolicy(temperature=0.0)
    first = ChainDraft(BigramDraft(V, policy, 2), DECODER, policy, 3)
    second = ChainDraft(first, DECODER, policy, 4)
    given = {"model": SMALL, "inner": {"model": SMALL, "inner": COUNTS}}
    out = generate(
        Speculative(DECODER, second, policy, eos_id=None),
        {"target": SMALL, "draft": given},
        None,
        PROMPTS,
        KEY,
        max_new_tokens=16,
        prompt_length=LENGTHS,
    )
    assert out.stats.accepted_per_drafted == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gamma": 0}, "gamma >= 1, got 0 and 2"),
        ({"noise": None}, "want noise 'uniform' or 'gumbel', got None"),
        ({"noise": "gumbel"}, "inner draft of noise='gumbel'.*got noise='uniform'"),
        ({"rule": LenientRule(0.5)}, "lossless rule"),
        ({"rule": CoupledRule()}, "rule with laws"),
        ({"decoder": TableDecoder(V, max_length=1)}, "max_length >= 2, got 1"),
    ],
    ids=str,
)
def test_wrong_fields_raise(change, said):
    draft = ChainDraft(inner_draft("bigram", 2)[0], DECODER, SAMPLED, 3)
    with pytest.raises(ValueError, match=said):
        dataclasses.replace(draft, **change)
