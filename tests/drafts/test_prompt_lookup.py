"""PromptLookupDraft against its own definition in Python, and known cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import SamplingPolicy, Speculative, generate
from spec_jax.drafts import PromptLookupDraft
from spec_jax.testing.tables import TableDecoder


def propose(draft, history, inputs=None, room=5):
    """The copied tokens of one row; what lies past the history would match too."""
    tokens = jnp.array([[*history, *[history[-1]] * room]])
    given = None if inputs is None else np.array([inputs])
    length = jnp.array([len(history)])
    state = draft.init(None, given, tokens, length, tokens.shape[1])
    keys = jax.random.split(jax.random.key(0), (1, draft.gamma))
    out, _ = draft.propose(None, state, keys, tokens, length)
    assert out.probs is None and out.tokens.shape == (1, draft.gamma)
    return out.tokens[0, : int(out.count[0])].tolist()


def copied(draft, history, inputs):
    """The same, as one would say it: the longest, own history first, the latest."""
    known = [list(history)]
    if inputs is not None and draft.search_inputs:
        known.append([x if x != draft.pad_id else None for x in inputs])
    for n in range(min(draft.max_ngram, len(history)), draft.min_ngram - 1, -1):
        suffix = list(history[-n:])
        for text in known:
            for end in range(len(text) - 1, n - 1, -1):
                if text[end - n : end] == suffix and text[end] is not None:
                    out = text[end : end + draft.gamma]
                    out = out[: out.index(None)] if None in out else out
                    if draft.eos_id in out:
                        out = out[: out.index(draft.eos_id) + 1]
                    return out
    return []


@pytest.mark.parametrize(
    "draft",
    [
        PromptLookupDraft(3),
        PromptLookupDraft(5, max_ngram=2, eos_id=None),
        PromptLookupDraft(2, max_ngram=4, min_ngram=2, eos_id=3),
        PromptLookupDraft(4, search_inputs=False),
        PromptLookupDraft(1, max_ngram=1, pad_id=2),
    ],
    ids=str,
)
def test_equals_the_definition(draft):
    """A batch of 300 random rows of all lengths, over three tokens and an EOS."""
    rng = np.random.default_rng(0)
    rows, size, width = 300, 16, 9
    tokens = rng.integers(0, 4, (rows, size))
    length = rng.integers(1, size + 1, rows)
    inputs = rng.integers(1, 4, (rows, width))
    inputs[np.arange(width) >= rng.integers(0, width + 1, rows)[:, None]] = 0
    state = draft.init(None, inputs, tokens, length, size)
    keys = jax.random.split(jax.random.key(0), (rows, draft.gamma))
    out, _ = jax.jit(draft.propose)(
        None, state, keys, jnp.array(tokens), jnp.array(length)
    )
    count = np.asarray(out.count)
    for i in range(rows):
        history = tokens[i, : length[i]].tolist()
        want = copied(draft, history, inputs[i].tolist())
        assert out.tokens[i, : count[i]].tolist() == want
    assert set(count) == set(range(draft.gamma + 1))


def test_known_case():
    """BEHAVIOURS 19, second half: without an EOS id."""
    draft = PromptLookupDraft(3, max_ngram=2, eos_id=None)
    assert propose(draft, [5, 6, 7, 8, 9, 10, 11, 7, 8]) == [9, 10, 11]


def test_a_copied_eos_ends_the_draft():
    """BEHAVIOURS 19: it is copied, nothing after it."""
    history = [7, 8, 9, 1, 11, 7, 8]
    assert propose(PromptLookupDraft(3), history) == [9, 1]
    assert propose(PromptLookupDraft(3, eos_id=None), history) == [9, 1, 11]


def test_the_longest_then_the_latest_then_history():
    draft = PromptLookupDraft(2)
    assert propose(draft, [7, 8, 3, 5, 8, 4, 7, 8]) == [3, 5]  # two tokens match
    assert propose(draft, [8, 3, 5, 8, 4, 6, 8]) == [4, 6]  # the latest of one
    assert propose(draft, [9, 3, 8, 5, 9], [9, 4, 4, 4]) == [3, 8]  # history's
    assert propose(draft, [9, 3, 8, 9], [8, 9, 4, 5]) == [4, 5]  # the longer


def test_padding_is_no_text():
    draft = PromptLookupDraft(3)
    assert propose(draft, [0, 5], [0, 0, 5, 6, 0, 7]) == [6]
    assert propose(draft, [0], [4, 0, 5, 6]) == []
    assert propose(draft, [0, 5], [6, 5, 0, 7]) == []


def test_only_what_is_known_is_copied():
    """A repeated token is copied once; a match at the very end has no successor."""
    draft = PromptLookupDraft(4, eos_id=None)
    assert propose(draft, [5, 5]) == [5]
    assert propose(draft, [5, 6, 5, 6]) == [5, 6]
    assert propose(draft, [4, 5], [3, 5]) == []
    assert propose(draft, [4]) == propose(draft, [4, 5]) == []


def test_fewer_matches_than_asked_for_are_none():
    draft = PromptLookupDraft(2, max_ngram=3, min_ngram=2)
    assert propose(draft, [5, 8, 4, 6, 8]) == []
    assert propose(draft, [6, 8, 4, 6, 8]) == [4, 6]


@pytest.mark.parametrize(
    "inputs", [None, {"frames": 3}, np.ones((1, 4)), np.ones((1, 2, 3), np.int32)]
)
def test_inputs_that_are_no_tokens_are_not_searched(inputs):
    state = PromptLookupDraft(2).init(None, inputs, jnp.ones((1, 3), jnp.int32), 3, 9)
    assert state.shape == (1, 0)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("gamma", [1, 3, 6])
def test_a_text_that_goes_in_circles_is_never_rejected(gamma, temperature):
    """Nor does a proposal fall short: steps == ceil(N / (gamma + 1))."""
    size = 9
    table = jnp.eye(size)[(jnp.arange(size) + 1) % size] * 500.0
    table = jnp.broadcast_to(table, (size, size, size))
    policy = SamplingPolicy(temperature=temperature)
    algorithm = Speculative(
        TableDecoder(size), PromptLookupDraft(gamma, eos_id=None), policy, eos_id=None
    )
    prompt = (np.arange(12) + np.array([[0], [4]])) % size  # once around
    out = generate(
        algorithm,
        {"target": table},
        None,
        prompt,
        jax.random.key(0),
        max_new_tokens=26,
    )
    assert out.stats.accepted_per_drafted == 1
    steps = np.asarray(out.stats.histogram).sum((1, 2))
    np.testing.assert_array_equal(steps, -(-26 // (gamma + 1)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gamma": 0}, "gamma >= 1, got 0"),
        ({"gamma": 2, "min_ngram": 0}, "min_ngram <= max_ngram, got 0 and 3"),
        ({"gamma": 2, "min_ngram": 4}, "got 4 and 3"),
    ],
)
def test_wrong_fields_raise(fields, said):
    with pytest.raises(ValueError, match=said):
        PromptLookupDraft(**fields)
