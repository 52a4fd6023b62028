"""Names in configurations: what they make, and what is said of wrong ones."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import (
    Autoregressive,
    BlockRule,
    CoupledRule,
    LenientRule,
    ModelDraft,
    TokenRule,
    generate,
)
from spec_jax.data.samples import load_samples
from spec_jax.drafts import (
    BigramDraft,
    ChainDraft,
    ConfidenceStop,
    FixedLength,
    OptimalLength,
    PromptLookupDraft,
    UnigramDraft,
)
from spec_jax.pairs import DRAFTS, RULES, make_lengths, make_rule, shipped_pair
from spec_jax.pairs.choices import draft_params


@pytest.fixture(scope="module")
def pair():
    return shipped_pair(dtype="float32")


def test_rules():
    made = [make_rule(name, 0.5 if name == "lenient" else None) for name in RULES]
    assert made == [TokenRule(), BlockRule(), CoupledRule(), LenientRule(0.5)]
    assert make_rule() == TokenRule()
    with pytest.raises(ValueError, match=r"rule of token, .*, got 'tokken'"):
        make_rule("tokken")
    with pytest.raises(ValueError, match=r"lenience in \(0, 1\] for the lenient"):
        make_rule("lenient")
    with pytest.raises(ValueError, match="no lenience with the rule 'token'"):
        make_rule("token", 0.5)


def test_lengths():
    assert make_lengths() == FixedLength()
    assert make_lengths("optimal", 0.2, 1.3) == OptimalLength(0.2, 1.3)
    assert make_lengths("confidence", threshold=0.7) == ConfidenceStop(0.7)
    with pytest.raises(ValueError, match="length policy of fixed"):
        make_lengths("short")


@pytest.mark.parametrize(
    ("name", "kind", "leaves"),
    [
        ("model", ModelDraft, None),
        ("unigram", UnigramDraft, 4),
        ("bigram", BigramDraft, 4),
        ("lookup", PromptLookupDraft, 0),
        ("chain", ChainDraft, None),
    ],
)
def test_a_pair_uses_any_draft(pair, name, kind, leaves):
    using = pair.using(name)
    algorithm = using.speculative(3, pair.policy(0.0))
    assert type(algorithm.draft) is kind and algorithm.draft.gamma == 3
    assert algorithm.policy.vocab_limit == pair.vocabulary.vocab_size
    assert (algorithm.eos_id, algorithm.pad_id) == (1, 0)
    if leaves is not None:
        assert len(jax.tree.leaves(using.params["draft"])) == leaves
    assert using.params["target"] is pair.params["target"]
    assert using.using(name) is using
    coupled = using.speculative(3, pair.policy(1.0), CoupledRule())
    assert coupled.draft.noise in ("gumbel", None)
    plain = using.autoregressive(pair.policy(1.0), CoupledRule())
    assert isinstance(plain, Autoregressive) and plain.noise == "gumbel"
    assert using.autoregressive(pair.policy(1.0)).noise == "uniform"


def test_every_draft_gives_the_same_greedy_text(pair):
    """The shipped pair and its tables, in float32."""
    text = load_samples("translation")[3]["en"]
    tokens = pair.encode("translate English to German: " + text)
    given = pair.arguments([tokens], 64)

    def decode(pair, algorithm):
        return generate(
            algorithm,
            pair.params,
            given["inputs"],
            given["prompt"],
            jax.random.key(0),
            max_new_tokens=48,
        )

    want = decode(pair, pair.autoregressive(pair.policy(0.0)))
    for name in DRAFTS:
        using = pair.using(name)
        out = decode(using, using.speculative(4, pair.policy(0.0)))
        np.testing.assert_array_equal(out.tokens, want.tokens)
        assert (name != "unigram") <= (out.stats.accepted > 0), name


def test_drafts_that_a_pair_lacks(pair):
    without = dataclasses.replace(pair, tables=None)
    with pytest.raises(ValueError, match="'bigram' wants tables"):
        without.using("bigram")
    with pytest.raises(ValueError, match="wants a small model, shipped uses 'lookup'"):
        pair.using("lookup").using("model")
    chain = pair.using("chain").using("model")
    assert chain.params["draft"] is pair.params["draft"]
    with pytest.raises(ValueError, match="draft of model, unigram"):
        pair.using("bigramm")
    with pytest.raises(ValueError, match="fixed lengths with the draft 'lookup'"):
        pair.using("lookup").speculative(
            2, pair.policy(0.0), lengths=make_lengths("optimal")
        )
    with pytest.raises(ValueError, match="as it was loaded"):
        pair.using("bigram").astype(jnp.bfloat16)


def test_a_draft_without_tables_may_be_given_none():
    assert draft_params("model", {"a": 1}, None) == {"a": 1}
    tables = typing.get_type_hints(draft_params)["tables"]
    assert type(None) in typing.get_args(tables)
