"""generate, trace, stream: limits, ends, one program, arguments."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    StopReason,
    generate,
    speculative_step,
    stream,
    trace,
)
from spec_jax.testing.tables import TableDecoder

V, GAMMA = 5, 3
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(7), (2, V, V, V)) * 1.5
PARAMS = {"target": TABLES[0], "draft": TABLES[0] + 0.5 * TABLES[1]}
PERFECT = {"target": TABLES[0], "draft": TABLES[0]}
GREEDY = SamplingPolicy(temperature=0.0)
SAMPLED = SamplingPolicy()
KEY = jax.random.key(11)
PROMPTS = np.array([[0, 1], [4, 2], [1, 3]])


def algorithms(policy, **fields):
    fields = {"eos_id": None} | fields
    return [
        Speculative(DECODER, ModelDraft(DECODER, policy, GAMMA), policy, **fields),
        Autoregressive(DECODER, policy, **fields),
    ]


def run(algorithm, params=PARAMS, prompt=PROMPTS, n=12, key=KEY, **options):
    return generate(algorithm, params, None, prompt, key, max_new_tokens=n, **options)


@pytest.mark.parametrize("n", range(1, GAMMA + 2))
def test_a_budget_inside_a_block(n):
    """BEHAVIOURS 18: exactly n tokens, the greedy prefix, for every n."""
    full = run(algorithms(GREEDY)[1])
    out = run(algorithms(GREEDY)[0], PERFECT, n=n)
    assert out.tokens.shape == (3, n)
    np.testing.assert_array_equal(out.tokens, full.tokens[:, :n])
    np.testing.assert_array_equal(out.lengths, n)
    np.testing.assert_array_equal(out.stop_reason, StopReason.LENGTH)


def test_limits_for_each_row():
    """BEHAVIOURS 18: each row its own limit, in one program, none exceeded."""
    full = run(algorithms(GREEDY)[1])
    for algorithm in algorithms(GREEDY):
        out = run(algorithm, PERFECT, n=np.array([1, 7, 0]), max_length=12)
        assert out.tokens.shape == (3, 10)
        np.testing.assert_array_equal(out.lengths, [1, 7, 0])
        for row, length in enumerate(out.lengths):
            np.testing.assert_array_equal(
                out.tokens[row, :length], full.tokens[row, :length]
            )
            assert not np.asarray(out.tokens[row, length:]).any()
        above = run(algorithm, PERFECT, n=np.array([99, 7, 11]), max_length=12)
        np.testing.assert_array_equal(above.lengths, [10, 7, 10])


@pytest.mark.parametrize("params", [PARAMS, PERFECT], ids=["draft", "perfect"])
def test_eos_ends_a_row(params):
    """BEHAVIOURS 17: kept, then padding; the same for both algorithms."""
    full = np.asarray(run(algorithms(GREEDY)[1], n=12).tokens)
    for eos_id in (0, 3):
        for algorithm in algorithms(GREEDY, eos_id=eos_id, pad_id=9):
            out = run(algorithm, params)
            for row, length, tokens, reason in zip(
                full, out.lengths, out.tokens, out.stop_reason
            ):
                hits = np.flatnonzero(row == eos_id)
                want = hits[0] + 1 if len(hits) else 12
                assert length == want
                np.testing.assert_array_equal(tokens[:want], row[:want])
                assert (np.asarray(tokens[want:]) == 9).all()
                assert reason == (StopReason.EOS if len(hits) else StopReason.LENGTH)
            assert out.stats.emitted == int(out.lengths.sum())


def test_stop_sequences_end_a_row():
    """The same place in both algorithms, also across two steps."""
    full = np.asarray(run(algorithms(GREEDY)[1], n=12).tokens)
    for at in (3, 6, 10):
        stop = (tuple(full[0, at - 2 : at + 1].tolist()),)
        text = full[0].tolist()
        first = next(i for i in range(12) if tuple(text[i : i + 3]) == stop[0])
        for algorithm in algorithms(GREEDY, stop=stop):
            out = run(algorithm, prompt=PROMPTS[:1])
            assert out.lengths[0] == first + 3
            assert out.stop_reason[0] == StopReason.STOP


@dataclasses.dataclass(frozen=True)
class Watched(TableDecoder):
    """Counts how often it is traced."""

    calls: list = dataclasses.field(default_factory=list, compare=False)

    def extend(self, *arguments):
        self.calls.append(1)
        return super().extend(*arguments)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_program_for_a_bucket(temperature):
    """BEHAVIOURS 27: 100 prompts of different lengths compile once."""
    policy = SamplingPolicy(temperature=temperature)
    generator = np.random.default_rng(0)
    decoder = Watched(V, max_length=97)  # unlike that of any other test
    after_first = None
    for i in range(100):
        # Equal algorithms, made anew, share the program.
        draft = ModelDraft(decoder, SamplingPolicy(temperature=temperature), 2)
        algorithm = Speculative(decoder, draft, policy, eos_id=1)
        width = generator.integers(1, 9)
        prompt = np.pad(generator.integers(0, V, (1, width)), ((0, 0), (0, 8 - width)))
        out = generate(
            algorithm,
            PARAMS,
            None,
            prompt,
            jax.random.key(i),
            max_new_tokens=generator.integers(1, 8, 1),
            max_length=16,
            prompt_length=np.array([width]),
        )
        assert out.lengths[0] >= 1
        after_first = after_first or len(decoder.calls)
    assert len(decoder.calls) == after_first > 0


def test_parameters_are_arguments():
    """BEHAVIOURS 27: other parameters act without another trace, the draft's too."""
    decoder = Watched(V, max_length=98)
    plain = Autoregressive(decoder, GREEDY, eos_id=None)
    draft = ModelDraft(decoder, GREEDY, GAMMA)
    speculative = Speculative(decoder, draft, GREEDY, eos_id=None)
    swapped = {"target": TABLES[1], "draft": TABLES[0]}
    for algorithm in (plain, speculative):
        first = run(algorithm, PERFECT)
        traced = len(decoder.calls)
        second = run(algorithm, swapped)
        assert (np.asarray(first.tokens) != np.asarray(second.tokens)).any()
        third = run(algorithm, PERFECT | {"draft": TABLES[1]})
        np.testing.assert_array_equal(first.tokens, third.tokens)
        assert len(decoder.calls) == traced > 0
    assert first.stats.accepted_per_drafted == 1 > third.stats.accepted_per_drafted


def compiled_step(policy):
    algorithm = algorithms(policy)[0]
    limit = jnp.full(3, 12)
    state = algorithm.init(
        PARAMS, None, jnp.array(PROMPTS), jnp.full(3, 2), KEY, limit, 14
    )
    return speculative_step.lower(algorithm, PARAMS, state).compile().as_text()


def test_a_greedy_step_has_no_random_number_and_no_softmax():
    """Where T = 0 is static: threefry needs exclusive or, a softmax exp."""
    greedy, sampled = compiled_step(GREEDY), compiled_step(SAMPLED)
    for operation in (" xor(", " exponential("):
        assert operation in sampled
        assert operation not in greedy
    for operation in (" sort(", " scatter("):
        assert operation not in greedy and operation not in sampled


def test_trace_tells_every_step():
    algorithm = algorithms(SAMPLED)[0]
    out, info = trace(algorithm, PARAMS, None, PROMPTS, KEY, max_new_tokens=12)
    np.testing.assert_array_equal(out.tokens, run(algorithm).tokens)
    assert info.emitted.shape == (12, 3, GAMMA + 1)
    for row in range(3):
        pieces = [
            np.asarray(emitted[row, : count[row]])
            for emitted, count in zip(info.emitted, info.num_emitted)
        ]
        np.testing.assert_array_equal(np.concatenate(pieces), out.tokens[row])
        for step in range(12):
            kept = int(info.num_accepted[step, row])
            assert kept <= info.num_proposed[step, row] <= GAMMA
            np.testing.assert_array_equal(
                info.proposed[step, row, :kept], info.emitted[step, row, :kept]
            )
    assert int(info.num_emitted[-1].sum()) == 0  # the rows were done


@pytest.mark.parametrize("policy", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_stream_equals_generate(policy):
    for algorithm in algorithms(policy, eos_id=2):
        out = run(algorithm)
        pieces = list(stream(algorithm, PARAMS, None, PROMPTS, KEY, max_new_tokens=12))
        for row, length in enumerate(out.lengths):
            together = np.concatenate([piece[row] for piece in pieces])
            np.testing.assert_array_equal(together, out.tokens[row, :length])
        assert len(pieces) == np.asarray(out.stats.histogram).sum((1, 2)).max()


def test_stream_holds_back_an_open_match():
    """A stop sequence arrives whole or, where it did not come, late."""
    full = np.asarray(run(algorithms(GREEDY)[1]).tokens)[0].tolist()
    stop = (tuple(full[5:8]),)
    algorithm = algorithms(GREEDY, stop=stop)[1]  # one token a step
    pieces = [
        piece[0].tolist()
        for piece in stream(
            algorithm, PARAMS, None, PROMPTS[:1], KEY, max_new_tokens=12
        )
    ]
    end = next(i for i in range(12) if tuple(full[i : i + 3]) == stop[0])
    assert [token for piece in pieces for token in piece] == full[: end + 3]
    assert tuple(pieces[-1][-3:]) == stop[0]
    assert pieces[-3:-1] == [[], []]
    never = ((full[0], (full[1] + 1) % V),)
    late = [
        piece[0].tolist()
        for piece in stream(
            algorithms(GREEDY, stop=never)[1],
            PARAMS,
            None,
            PROMPTS[:1],
            KEY,
            max_new_tokens=4,
        )
    ]
    assert late[0] == [] and late[1][0] == full[0]
    assert [token for piece in late for token in piece] == full[:4]


def test_a_shorter_draft_goes_on_without_drafts():
    """BEHAVIOURS 20: no dummy tokens, the output as ever, the steps counted."""
    short = TableDecoder(V, max_length=8)
    for policy in (GREEDY, SAMPLED):
        algorithm = Speculative(
            DECODER, ModelDraft(short, policy, GAMMA), policy, eos_id=None
        )
        out, info = trace(algorithm, PERFECT, None, PROMPTS, KEY, max_new_tokens=16)
        assert out.stats.accepted_per_drafted == 1
        ran = np.asarray(info.num_emitted) > 0
        without = ran & (np.asarray(info.num_proposed) == 0)
        assert out.stats.steps_without_drafts == without.sum() > 0
        # A draft of 8 positions draws the token at index 8, and none after it.
        last = np.asarray(info.length + info.num_proposed - 1)
        assert last[np.asarray(info.num_proposed) > 0].max() == 8
    plain = run(algorithms(GREEDY)[1], n=16)
    greedy = Speculative(DECODER, ModelDraft(short, GREEDY, GAMMA), GREEDY, eos_id=None)
    np.testing.assert_array_equal(run(greedy, n=16).tokens, plain.tokens)


def test_a_prompt_longer_than_the_draft():
    """BEHAVIOURS 20: from the first step on."""
    short = TableDecoder(V, max_length=2)
    algorithm = Speculative(
        DECODER, ModelDraft(short, GREEDY, GAMMA), GREEDY, eos_id=None
    )
    prompt = np.array([[0, 1, 2, 3], [4, 0, 0, 0]])
    lengths = np.array([4, 1])
    out = run(algorithm, PERFECT, prompt=prompt, prompt_length=lengths)
    want = run(algorithms(GREEDY)[1], prompt=prompt, prompt_length=lengths)
    np.testing.assert_array_equal(out.tokens, want.tokens)
    assert out.stats.row(0).drafted == 0 and out.stats.row(1).accepted > 0


def test_the_target_may_be_filled_to_its_limit():
    """Positions past the limit are computed, never used: NaN there is harmless."""
    tight = TableDecoder(V, max_length=14)
    want = run(algorithms(GREEDY)[1])
    draft = ModelDraft(tight, GREEDY, GAMMA)
    out = run(Speculative(tight, draft, GREEDY, eos_id=None), PERFECT)
    np.testing.assert_array_equal(out.tokens, want.tokens)
    with pytest.raises(ValueError, match="max_length = 14"):
        run(Autoregressive(tight, GREEDY), n=13)


@pytest.mark.skipif(
    hasattr(generate, "__wrapped__"), reason="checked annotations refuse these first"
)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "max_new_tokens >= 1"),
        ({"n": 2.7}, "whole max_new_tokens"),
        ({"n": np.array([1, -5, 3]), "max_length": 9}, "each max_new_tokens >= 0"),
        ({"n": 12, "max_length": 13}, "max_length >= 14"),
        ({"n": np.array([1, 2, 3])}, "want a max_length"),
        ({"n": np.array([1, 2]), "max_length": 9}, "limit of shape"),
        ({"n": np.array([1, 2, 3]), "max_length": 1}, "at least the prompt's 2"),
        ({"prompt_length": np.array([2, 0, 2])}, r"in 1 \.\. 2"),
        ({"prompt_length": np.array([2, 3, 2])}, r"in 1 \.\. 2"),
        ({"prompt": np.array([1, 2])}, r"shape \[b, t\]"),
        ({"prompt": np.zeros((3, 0))}, "at least one token"),
        ({"sampling": {"temperature": np.ones(2)}}, "3 rows"),
        ({"sampling": {"heat": np.ones(3)}}, "heat"),
        ({"sampling": {"temperature": np.array([1, -1, 1])}}, "temperature finite"),
        ({"sampling": {"temperature": np.array([1, np.nan, 1])}}, "temperature fin"),
        ({"sampling": {"top_p": np.zeros(3)}}, r"top_p in \(0, 1\]"),
        ({"sampling": {"top_k": np.array([0, -1, 4])}}, "top_k >= 0"),
        ({"key": jax.random.split(KEY, 2)}, "3 keys"),
    ],
    ids=str,
)
def test_wrong_arguments_raise(options, message):
    for algorithm in algorithms(SAMPLED):
        with pytest.raises(ValueError, match=message):
            run(algorithm, **options)


def test_a_trace_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="num_steps >= 1, got -1"):
        trace(
            algorithms(SAMPLED)[0],
            PERFECT,
            None,
            np.zeros((1, 1), int),
            KEY,
            max_new_tokens=3,
            num_steps=-1,
        )


def test_equal_algorithms_are_one_key_and_their_repr_is_a_record():
    for one, other in zip(
        algorithms(SAMPLED, stop=[[1, 2]]), algorithms(SAMPLED, stop=((1, 2),))
    ):
        assert one == other and hash(one) == hash(other)
        assert "temperature=1.0" in repr(one) and "stop=((1, 2),)" in repr(one)
