"""Speculative against plain decoding: parity, perfect drafts, ragged rows, caches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    BlockRule,
    ModelDraft,
    Proposal,
    SamplingPolicy,
    Speculative,
    TokenRule,
    generate,
    speculative_step,
    trace,
)
from spec_jax.core.branches import RecursiveRule
from spec_jax.drafts.lengths import FixedLength
from spec_jax.testing.tables import TableDecoder

V = 5
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(7), (2, V, V, V)) * 1.5
# A draft that is often right, so that all accepted counts occur.
PARAMS = {"target": TABLES[0], "draft": TABLES[0] + 0.5 * TABLES[1]}
PERFECT = {"target": TABLES[0], "draft": TABLES[0]}
GREEDY = SamplingPolicy(temperature=0.0)
KEY = jax.random.key(11)
PROMPTS = np.array([[0, 1, 2, 3], [4, 2, 0, 0], [1, 0, 0, 0], [2, 2, 3, 0]])
LENGTHS = np.array([4, 2, 1, 3])


def speculative(gamma, policy=GREEDY, **fields):
    fields = {"eos_id": None} | fields
    return Speculative(DECODER, ModelDraft(DECODER, policy, gamma), policy, **fields)


def plain(policy=GREEDY, **fields):
    return Autoregressive(DECODER, policy, **({"eos_id": None} | fields))


def run(algorithm, params=PARAMS, prompt=PROMPTS, n=17, key=KEY, **options):
    return generate(algorithm, params, None, prompt, key, max_new_tokens=n, **options)


@pytest.mark.parametrize("gamma", range(1, 9))
def test_greedy_equals_plain(gamma):
    """A ragged batch, token for token."""
    want = run(plain(), prompt_length=LENGTHS)
    out = run(speculative(gamma), prompt_length=LENGTHS)
    np.testing.assert_array_equal(out.tokens, want.tokens)
    np.testing.assert_array_equal(out.lengths, 17)
    assert 0 < out.stats.accepted < out.stats.drafted


def test_greedy_target_with_a_sampling_draft():
    """The comparison holds for whatever the draft drew from."""
    draft = ModelDraft(DECODER, SamplingPolicy(), 3)
    out = run(Speculative(DECODER, draft, GREEDY, eos_id=None), prompt_length=LENGTHS)
    want = run(plain(), prompt_length=LENGTHS)
    np.testing.assert_array_equal(out.tokens, want.tokens)


@pytest.mark.parametrize("gamma", range(1, 6))
def test_a_perfect_greedy_draft_is_never_rejected(gamma):
    """BEHAVIOURS 21: 50 steps, each of gamma + 1 tokens."""
    _, info = trace(
        speculative(gamma),
        PERFECT,
        None,
        PROMPTS,
        KEY,
        max_new_tokens=50 * (gamma + 1),
        prompt_length=LENGTHS,
        num_steps=50,
    )
    np.testing.assert_array_equal(info.num_emitted, np.full((50, 4), gamma + 1))
    np.testing.assert_array_equal(info.num_accepted, np.full((50, 4), gamma))


@pytest.mark.parametrize("gamma", [1, 3, 4])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_perfect_draft_needs_the_fewest_steps(gamma, temperature):
    policy = SamplingPolicy(temperature=temperature)
    out = run(speculative(gamma, policy), PERFECT, prompt_length=LENGTHS, n=18)
    steps = np.asarray(out.stats.histogram).sum((1, 2))
    np.testing.assert_array_equal(steps, -(-18 // (gamma + 1)))
    assert out.stats.accepted_per_drafted == 1


def test_caches_after_a_rejection():
    """BEHAVIOURS 22: the next logits equal those of a fresh prefill."""
    algorithm = speculative(4, SamplingPolicy())
    state = algorithm.init(
        PARAMS, None, jnp.array(PROMPTS), jnp.array(LENGTHS), KEY, jnp.full(4, 40), 44
    )
    extend = jax.jit(DECODER.extend)
    rejected = 0
    for _ in range(6):
        state, info = speculative_step(algorithm, PARAMS, state)
        rejected += int((info.num_accepted < info.num_proposed).sum())
        start = state.length - 1
        newest = jnp.take_along_axis(state.tokens, start[:, None], 1)
        target = PARAMS["target"]
        logits, _ = extend(target, state.target_cache, newest, start)
        fresh = DECODER.init_cache(target, None, 4, 60)
        zero = jnp.zeros(4, jnp.int32)
        _, fresh = extend(target, fresh, state.tokens, zero)
        want, _ = extend(target, fresh, newest, start)
        np.testing.assert_allclose(logits, want, atol=1e-5)
    assert rejected > 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_are_their_own(temperature):
    """BEHAVIOURS 23: neighbours, batch size and padding change nothing."""
    policy = SamplingPolicy(temperature=temperature)
    keys = jax.random.split(KEY, 4)
    for algorithm in (speculative(3, policy), plain(policy)):
        together = run(algorithm, key=keys, prompt_length=LENGTHS)
        if isinstance(algorithm, Speculative):
            counts = np.asarray(together.stats.histogram).sum(1)
            assert len(np.unique(counts, axis=0)) > 1  # they accept differently
        for i in range(4):
            row = slice(i, i + 1)
            alone = run(
                algorithm,
                prompt=PROMPTS[row],
                key=keys[row],
                prompt_length=LENGTHS[row],
            )
            np.testing.assert_array_equal(together.tokens[i], alone.tokens[0])
        bare = run(algorithm, prompt=PROMPTS[2:3, :1], key=keys[2:3])
        np.testing.assert_array_equal(together.tokens[2], bare.tokens[0])
        wide = np.pad(PROMPTS, ((0, 0), (0, 3)), constant_values=4)
        padded = run(algorithm, prompt=wide, key=keys, prompt_length=LENGTHS)
        np.testing.assert_array_equal(together.tokens, padded.tokens)
        swapped = run(
            algorithm, prompt=PROMPTS[::-1], key=keys[::-1], prompt_length=LENGTHS[::-1]
        )
        np.testing.assert_array_equal(together.tokens, swapped.tokens[::-1])


def test_rows_that_end_early_do_not_disturb():
    """BEHAVIOURS 23: with EOS, rows end at different steps."""
    keys = jax.random.split(KEY, 4)
    algorithm = speculative(3, SamplingPolicy(), eos_id=2)
    together = run(algorithm, key=keys, prompt_length=LENGTHS, n=30)
    assert len(np.unique(together.lengths)) > 1
    for i in range(4):
        row = slice(i, i + 1)
        alone = run(
            algorithm,
            prompt=PROMPTS[row],
            key=keys[row],
            prompt_length=LENGTHS[row],
            n=30,
        )
        np.testing.assert_array_equal(together.tokens[i], alone.tokens[0])
        np.testing.assert_array_equal(
            together.stats.row(i).histogram, alone.stats.histogram
        )


def test_one_key_is_one_a_row():
    """Row i of a batch has fold_in(key, i)."""
    algorithm = speculative(2, SamplingPolicy())
    keys = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(4))
    np.testing.assert_array_equal(
        run(algorithm, key=KEY).tokens, run(algorithm, key=keys).tokens
    )
    assert (run(algorithm, key=keys[::-1]).tokens != run(algorithm).tokens).any()


@dataclasses.dataclass(frozen=True)
class Scheduled(FixedLength):
    """Proposes as many tokens as a list says."""

    counts: tuple[int, ...] = ()

    def init(self, batch):
        return jnp.zeros((batch,), jnp.int32)

    def most(self, state, gamma):
        return jnp.array(self.counts)[state]

    def observe(self, state, drafted, accepted):
        return state + 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_gamma_can_fall_to_zero_and_come_back(temperature):
    """BEHAVIOURS 24: gamma 4, 0, 0, 0, 4 with draft == target."""
    policy = SamplingPolicy(temperature=temperature)
    schedule = Scheduled((9, 4, 0, 0, 0, 4))  # observed before the first step too
    draft = ModelDraft(DECODER, policy, 4, schedule)
    algorithm = Speculative(DECODER, draft, policy, eos_id=None)
    out, info = trace(
        algorithm, PERFECT, None, PROMPTS, KEY, max_new_tokens=30, num_steps=5
    )
    accepted = np.tile([[4], [0], [0], [0], [4]], (1, 4))
    np.testing.assert_array_equal(info.num_accepted, accepted)
    assert out.stats.steps_without_drafts == 12


@dataclasses.dataclass(frozen=True)
class Watched(TableDecoder):
    """Records how many tokens each traced call is given, and each new cache."""

    seen: list = dataclasses.field(default_factory=list, compare=False)

    def init_cache(self, *arguments):
        self.seen.append("encoder")
        return super().init_cache(*arguments)

    def extend(self, params, cache, tokens, start):
        self.seen.append(tokens.shape[1])
        return super().extend(params, cache, tokens, start)


def test_a_target_call_sees_the_window_alone():
    """BEHAVIOURS 26: gamma + 1 tokens after the prefill, not the whole prefix.

    And what runs the encoder is called once for each model.
    """
    target, small = Watched(V), Watched(V)
    algorithm = Speculative(target, ModelDraft(small, GREEDY, 4), GREEDY, eos_id=None)
    run(algorithm)
    assert target.seen == ["encoder", 3, 5]
    assert small.seen == ["encoder", 2, 2, 1]


class AlwaysRejects(TokenRule):
    """Rejects the first token, also where p == q."""

    def accept_law(self, tokens, q, p):
        return jnp.zeros(p.shape[0]).at[0].set(1.0)


def test_residual_fallbacks_are_counted():
    """BEHAVIOURS 9: every correction of p == q falls back to p, and is counted."""
    algorithm = speculative(2, SamplingPolicy(), rule=AlwaysRejects())
    out = run(algorithm, PERFECT, n=6)
    # Five rejections a row; the sixth token has no room for a proposal.
    assert out.stats.residual_fallbacks == 5 * 4
    np.testing.assert_array_equal(out.lengths, 6)
    honest = run(speculative(2, SamplingPolicy()), n=6)
    assert honest.stats.residual_fallbacks == 0


def test_values_for_each_row():
    """A row at T = 0 among others is greedy; both models see the values."""
    temperature = np.array([0.0, 1.0, 0.0, 3.0])
    algorithm = speculative(3, SamplingPolicy())
    out = run(algorithm, sampling={"temperature": temperature})
    greedy = run(speculative(3))
    same = (np.asarray(out.tokens) == np.asarray(greedy.tokens)).all(1)
    np.testing.assert_array_equal(same, temperature == 0)
    perfect = run(algorithm, PERFECT, sampling={"temperature": temperature})
    assert perfect.stats.accepted_per_drafted == 1


@dataclasses.dataclass(frozen=True)
class ZeroTemperatureDraft:
    """Proposes one fixed token and never drew it; the smallest DraftSource."""

    gamma: int = 2
    noise = None

    def init(self, params, inputs, prompt, prompt_length, max_length):
        return ()

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        drafted = jnp.full((length.shape[0], self.gamma), 3)
        count = jnp.full_like(length, self.gamma)
        return Proposal(drafted, None, count), draft_state


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_without_parameters(temperature):
    policy = SamplingPolicy(temperature=temperature)
    algorithm = Speculative(DECODER, ZeroTemperatureDraft(), policy, eos_id=None)
    out = run(algorithm, {"target": TABLES[0]}, n=9)
    assert 0 < out.stats.accepted < out.stats.drafted
    if temperature == 0:
        np.testing.assert_array_equal(out.tokens, run(plain(), n=9).tokens)


def test_different_vocabularies_raise():
    other = TableDecoder(4)
    policy = SamplingPolicy()
    algorithm = Speculative(DECODER, ModelDraft(other, policy, 2), policy)
    with pytest.raises(ValueError, match="vocab_limit"):
        run(algorithm, {"target": TABLES[0], "draft": TABLES[0][:4, :4, :4]})


@pytest.mark.parametrize("padded", ["target", "draft"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_vocabulary_limit_joins_different_tables(padded, temperature):
    """BEHAVIOURS 28, first half: padding ids are never emitted, nor proposed."""
    policy = SamplingPolicy(temperature=temperature, vocab_limit=4)
    decoders = {"target": TableDecoder(4), "draft": TableDecoder(4)}
    params = {"target": TABLES[0][:4, :4, :4], "draft": TABLES[1][:4, :4, :4]}
    decoders[padded] = DECODER
    params[padded] = TABLES[0].at[..., 4].set(9.0)
    draft = ModelDraft(decoders["draft"], policy, 2)
    algorithm = Speculative(decoders["target"], draft, policy, eos_id=None)
    prompt = np.where(PROMPTS > 3, 0, PROMPTS)
    _, info = trace(algorithm, params, None, prompt, KEY, max_new_tokens=17)
    assert int(info.emitted.max()) <= 3 and int(info.proposed.max()) <= 3
    assert int(info.num_accepted.sum()) > 0


def test_gamma_below_one_raises():
    with pytest.raises(ValueError, match="gamma >= 1, got 0"):
        speculative(0)
    with pytest.raises(ValueError, match="gamma >= 1"):
        Speculative(DECODER, ZeroTemperatureDraft(0), GREEDY)


class EndsEarly(TableDecoder):
    """NaN from its last position on, which is never used."""

    def extend(self, params, cache, tokens, start):
        logits, cache = super().extend(params, cache, tokens, start)
        position = start[:, None] + jnp.arange(tokens.shape[1])
        return jnp.where(position[..., None] >= 4, jnp.nan, logits), cache


@pytest.mark.parametrize("rule", [TokenRule(), BlockRule()], ids=str)
def test_a_target_may_return_anything_past_the_limit(rule):
    """Drafted tokens there are not judged, and never committed."""
    policy = SamplingPolicy(banned=(3,))  # which the draft always proposes
    draft = ZeroTemperatureDraft(4)
    algorithm = Speculative(EndsEarly(V), draft, policy, rule, eos_id=None)
    out = run(algorithm, prompt=np.tile([[1]], (50, 1)), n=4)
    assert not (np.asarray(out.tokens) == 3).any()
    honest = Speculative(DECODER, draft, policy, rule, eos_id=None)
    want = run(honest, prompt=np.tile([[1]], (50, 1)), n=4)
    np.testing.assert_array_equal(out.tokens, want.tokens)


def test_a_rule_of_branches_is_refused():
    with pytest.raises(ValueError, match="one draft a step, got RecursiveRule"):
        speculative(2, SamplingPolicy(), rule=RecursiveRule())
