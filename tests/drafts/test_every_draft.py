"""What holds for any draft: its law, the output it cannot change, rows of their own."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    BlockRule,
    CoupledRule,
    DraftSource,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    TokenRule,
    generate,
    trace,
)
from spec_jax.core.draws import draft_keys, row_keys
from spec_jax.drafts import (
    BigramDraft,
    ChainDraft,
    ConfidenceStop,
    OptimalLength,
    PromptLookupDraft,
    UnigramDraft,
)
from spec_jax.drafts.ngram import bigram_logits
from spec_jax.testing.enumeration import chain_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law
from spec_jax.training.tables import count_tables

V = 4
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(7), (3, V, V, V)) * 1.5
TARGET = TABLES[0]
SMALL = TABLES[0] + 0.7 * TABLES[1]
POOR = TABLES[0] + 1.5 * TABLES[2]
GREEDY = SamplingPolicy(temperature=0.0)


def said(rows=40, length=12):
    """Texts by the target, of which tables are counted."""
    law, rng = (
        table_law(TARGET, SamplingPolicy(temperature=0.5)),
        np.random.default_rng(0),
    )
    for _ in range(rows):
        text = [0]
        for _ in range(length):
            text.append(int(rng.choice(V, p=law(text))))
        yield text[1:]


COUNTS = jax.tree.map(jnp.asarray, count_tables(said(), V, successors=2))
KEY = jax.random.key(11)
PROMPTS = np.array([[0, 1, 2, 3], [3, 2, 0, 0], [1, 0, 0, 0], [2, 2, 3, 0]])
LENGTHS = np.array([4, 2, 1, 3])
INPUTS = np.array([[2, 3, 1, 2, 0, 0], [3] * 6, [1, 2, 3, 1, 3, 0], [0] * 6])
SIGNIFICANCE = 1e-6


def chain(inner, policy, gamma, noise):
    return ChainDraft(inner, DECODER, policy, gamma, noise=noise)


# Each: how it is made, and its parameters.
DRAFTS = {
    "model": (lambda p, g, n: ModelDraft(DECODER, p, g, noise=n), SMALL),
    "optimal": (
        lambda p, g, n: ModelDraft(DECODER, p, g, OptimalLength(0.1), n),
        SMALL,
    ),
    "confidence": (
        lambda p, g, n: ModelDraft(DECODER, p, g, ConfidenceStop(0.5), n),
        SMALL,
    ),
    "unigram": (lambda p, g, n: UnigramDraft(V, p, g, noise=n), COUNTS),
    "bigram": (lambda p, g, n: BigramDraft(V, p, g, noise=n), COUNTS),
    "lookup": (lambda p, g, n: PromptLookupDraft(g, eos_id=None), None),
    "chain of bigram": (
        lambda p, g, n: chain(BigramDraft(V, p, 2, noise=n), p, g, n),
        {"model": SMALL, "inner": COUNTS},
    ),
    "chain of lookup": (
        lambda p, g, n: chain(PromptLookupDraft(3, eos_id=None), p, g, n),
        {"model": SMALL, "inner": None},
    ),
    "chain of model": (
        lambda p, g, n: chain(
            ModelDraft(DECODER, p, 3, OptimalLength(0.2), n), p, g, n
        ),
        {"model": SMALL, "inner": POOR},
    ),
}
every_draft = pytest.mark.parametrize("name", DRAFTS)


def speculative(name, policy, gamma=3, noise="uniform", eos_id=None, rule=None):
    draft = DRAFTS[name][0](policy, gamma, noise)
    rule = rule or (CoupledRule() if noise == "gumbel" else TokenRule())
    return Speculative(DECODER, draft, policy, rule, eos_id=eos_id)


def run(algorithm, name=None, n=14, key=KEY, **options):
    params = {"target": TARGET, "draft": DRAFTS[name][1] if name else None}
    options = {
        "inputs": INPUTS,
        "prompt": PROMPTS,
        "prompt_length": LENGTHS,
        **options,
    }
    inputs, prompt = options.pop("inputs"), options.pop("prompt")
    return generate(algorithm, params, inputs, prompt, key, max_new_tokens=n, **options)


@functools.partial(jax.jit, static_argnums=0)
def propose(draft, params, inputs, prompt, tokens, length, key, sampling=None):
    rows = tokens.shape[0]
    state = draft.init(params, inputs, prompt, length, tokens.shape[1])
    keys = draft_keys(draft, row_keys(key, rows), length)
    return draft.propose(params, state, keys, tokens, length, sampling)[0]


@every_draft
def test_is_a_draft_source_of_value(name):
    """Equal ones share a program; a gamma can be replaced; the repr says which."""
    make = DRAFTS[name][0]
    draft, same = (
        make(SamplingPolicy(), 3, "uniform"),
        make(SamplingPolicy(), 3, "uniform"),
    )
    assert isinstance(draft, DraftSource)
    assert draft == same and hash(draft) == hash(same)
    other = dataclasses.replace(draft, gamma=2)
    assert other != draft and other.gamma == 2
    assert repr(other) != repr(draft) and repr(draft).startswith(type(draft).__name__)


EVERY_GAMMA = ("bigram", "lookup", "chain of bigram")


@pytest.mark.parametrize(
    ("name", "gammas"),
    [
        *((name, range(1, 9)) for name in EVERY_GAMMA),
        *((name, (2, 5)) for name in DRAFTS if name not in EVERY_GAMMA),
    ],
    ids=str,
)
def test_greedy_equals_plain(name, gammas):
    """A ragged batch, token for token; something is accepted."""
    want = run(Autoregressive(DECODER, GREEDY, eos_id=None))
    accepted = 0
    for gamma in gammas:
        out = run(speculative(name, GREEDY, gamma), name)
        np.testing.assert_array_equal(out.tokens, want.tokens)
        accepted += out.stats.accepted
    assert accepted > 0


@every_draft
@pytest.mark.parametrize("temperature", [0.7, 1.5, None], ids=str)
def test_coupled_equals_plain(name, temperature):
    """BEHAVIOURS 10: one key, one output; None: each row its own temperature."""
    policy = SamplingPolicy(temperature=1.0 if temperature is None else temperature)
    sampling = None
    if temperature is None:
        sampling = {"temperature": np.array([0.0, 0.7, 2.0, 0.0])}
    plain = Autoregressive(DECODER, policy, noise="gumbel", eos_id=None)
    want = run(plain, sampling=sampling)
    out = run(speculative(name, policy, 3, "gumbel"), name, sampling=sampling)
    np.testing.assert_array_equal(out.tokens, want.tokens)
    assert out.stats.accepted > 0


@every_draft
def test_rows_are_their_own(name):
    """BEHAVIOURS 23: neighbours, batch size and padding change nothing."""
    keys = jax.random.split(KEY, 4)
    algorithm = speculative(name, SamplingPolicy(), gamma=4)
    together = run(algorithm, name, key=keys)
    for i in range(4):
        row = slice(i, i + 1)
        alone = run(
            algorithm,
            name,
            key=keys[row],
            inputs=INPUTS[row],
            prompt=PROMPTS[row],
            prompt_length=LENGTHS[row],
        )
        np.testing.assert_array_equal(together.tokens[i], alone.tokens[0])
        np.testing.assert_array_equal(
            together.stats.row(i).histogram, alone.stats.histogram
        )
    padded = run(
        algorithm,
        name,
        key=keys,
        inputs=np.pad(INPUTS, ((0, 0), (0, 3))),
        prompt=np.pad(PROMPTS, ((0, 0), (0, 2)), constant_values=3),
    )
    np.testing.assert_array_equal(together.tokens, padded.tokens)


@every_draft
def test_tokens_past_the_length_are_not_read(name):
    draft = DRAFTS[name][0](SamplingPolicy(), 3, "uniform")
    tokens = jnp.pad(jnp.array(PROMPTS), ((0, 0), (0, 4)))
    scratch = jnp.arange(8) >= LENGTHS[:, None]
    length = jnp.array(LENGTHS)
    one = propose(
        draft, DRAFTS[name][1], INPUTS, jnp.array(PROMPTS), tokens, length, KEY
    )
    filled = jnp.where(scratch, 3, tokens)
    other = propose(draft, DRAFTS[name][1], INPUTS, filled[:, :4], filled, length, KEY)
    counts = jnp.arange(3) < one.count[:, None]
    np.testing.assert_array_equal(one.count, other.count)
    np.testing.assert_array_equal(
        jnp.where(counts, one.tokens, 0), jnp.where(counts, other.tokens, 0)
    )
    if one.probs is not None:
        kept = counts[..., None]
        np.testing.assert_array_equal(
            jnp.where(kept, one.probs, 0), jnp.where(kept, other.probs, 0)
        )


def draft_law(name, policy):
    """What a draft says its tokens follow, from any prefix."""
    params = DRAFTS[name][1]
    if name == "unigram":
        law = np.asarray(policy.probs(jnp.log(COUNTS["unigram"])))
        return lambda prefix: law
    if name == "bigram":
        laws = np.asarray(policy.probs(bigram_logits(COUNTS, jnp.arange(V)[None])[0]))
        return lambda prefix: laws[prefix[-1]]
    return table_law(params["model"] if "chain" in name else params, policy)


DRAWN = [x for x in DRAFTS if x not in ("lookup", "optimal", "confidence")]


@pytest.mark.parametrize(
    ("name", "noise"),
    [*((name, "uniform") for name in DRAWN), ("bigram", "gumbel")],
)
def test_tokens_follow_what_is_reported(name, noise):
    """BEHAVIOURS 3: 20,000 proposals of three tokens; filters included."""
    policy = SamplingPolicy(temperature=0.8, top_k=3)
    draft, rows = DRAFTS[name][0](policy, 3, noise), 20_000
    tokens = jnp.tile(jnp.array([2, 1, 3, 0, 0, 0]), (rows, 1))
    length = jnp.full(rows, 3)
    out = propose(
        draft, DRAFTS[name][1], None, tokens[:, :3], tokens, length, jax.random.key(1)
    )
    law = draft_law(name, policy)
    np.testing.assert_allclose(out.probs.sum(-1)[:, :2], 1, atol=1e-6)
    assert float(out.probs.min()) >= 0
    for row in range(10):
        prefix = [2, 1, 3]
        for i in range(int(out.count[row])):
            np.testing.assert_allclose(out.probs[row, i], law(prefix), atol=1e-6)
            prefix.append(int(out.tokens[row, i]))
    whole = np.asarray(out.count) == 3
    assert whole.all() or name == "chain of model"
    # Two tokens are always there; how many more may depend on them.
    first = np.asarray(out.tokens)[:, :2]
    joint = chain_law(law, (2, 1, 3), 2)
    assert chi_square_pvalue(first, joint) > SIGNIFICANCE
    if whole.all():
        joint = chain_law(law, (2, 1, 3), 3)
        assert chi_square_pvalue(np.asarray(out.tokens), joint) > SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize("rule", [TokenRule(), BlockRule(), CoupledRule()], ids=str)
@every_draft
def test_joint_law_of_four_tokens(name, rule):
    """BEHAVIOURS 1: whatever proposes, rows at T = 1, 0.5 and 0 in one batch."""
    noise, rows = getattr(rule, "noise", "uniform"), 20_000
    algorithm = speculative(name, SamplingPolicy(), 3, noise, rule=rule)
    temperature = np.resize([1.0, 0.5, 1.0, 0.0], rows)
    tokens = np.concatenate(
        [
            run(
                algorithm,
                name,
                n=4,
                key=jax.random.key(seed),
                inputs=np.tile([2, 1, 3, 1], (rows, 1)),
                prompt=np.tile([2, 1], (rows, 1)),
                prompt_length=np.full(rows, 2),
                sampling={"temperature": temperature},
            ).tokens
            for seed in range(2)
        ]
    )
    temperature = np.tile(temperature, 2)
    for value in (1.0, 0.5, 0.0):
        p = table_law(TARGET, SamplingPolicy(temperature=value))
        law = chain_law(p, (2, 1), 4)
        assert chi_square_pvalue(tokens[temperature == value], law) > SIGNIFICANCE


@every_draft
def test_a_penalty_sees_the_block(name):
    """Drafted tokens count as seen for the tokens after them, in both models."""
    policy = SamplingPolicy(temperature=0.0, repetition_penalty=3.0)
    want = run(Autoregressive(DECODER, policy, eos_id=None))
    unpenalized = run(Autoregressive(DECODER, GREEDY, eos_id=None))
    assert (np.asarray(want.tokens) != np.asarray(unpenalized.tokens)).any()
    out = run(speculative(name, policy, 4), name)
    np.testing.assert_array_equal(out.tokens, want.tokens)


PENALIZED = SamplingPolicy(temperature=0.0, repetition_penalty=3.0)


@pytest.mark.parametrize("name", ["model", "chain of bigram"])
def test_a_perfect_draft_under_a_penalty_is_never_rejected(name):
    """The draft's own history grows within the block as the target's does."""
    params = {"target": TARGET, "draft": TARGET}
    if "chain" in name:
        params["draft"] = {"model": TARGET, "inner": COUNTS}
    _, info = trace(
        speculative(name, PENALIZED, 3),
        params,
        None,
        PROMPTS,
        KEY,
        max_new_tokens=16,
        prompt_length=LENGTHS,
        num_steps=4,
    )
    np.testing.assert_array_equal(info.num_accepted, 3)
