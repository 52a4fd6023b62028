"""alpha under the lenient rule, against its law summed over all drafts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax import Autoregressive, ModelDraft, SamplingPolicy, generate
from spec_jax.base import Proposal
from spec_jax.core.rules import LenientRule
from spec_jax.core.verification import verify_lenient
from spec_jax.drafts import PromptLookupDraft
from spec_jax.experiments.alpha import acceptances
from spec_jax.experiments.lenience import lenient_acceptances
from spec_jax.testing.tables import TableDecoder, table_law

V = 5
LENIENCES = (1.0, 0.5, 0.3, 0.1)
DECODER = TableDecoder(V)
TABLES = jax.random.normal(jax.random.key(3), (2, V, V, V)) * 1.5
PARAMS = {"target": TABLES[0], "draft": TABLES[0] + TABLES[1]}
SAMPLED = SamplingPolicy(temperature=0.8)
GREEDY = SamplingPolicy(temperature=0.0)
SOFT = SamplingPolicy(temperature=1.0)
PROMPT = np.array([[2, 4], [1, 0], [3, 3]])
KEY = jax.random.key(5)


def along(policy, draft=None, leniences=LENIENCES, params=PARAMS):
    """Acceptances [b, m, l] and alpha's own [b, m], with the output and lengths."""
    out = generate(
        Autoregressive(DECODER, policy, eos_id=0),
        params,
        None,
        PROMPT,
        KEY,
        max_new_tokens=9,
    )
    tokens, lengths = np.asarray(out.tokens), np.asarray(out.lengths)
    draft = draft or ModelDraft(DECODER, policy, 2)
    rest = (DECODER, draft, policy, params, None, PROMPT, tokens, lengths, KEY)
    lenient = lenient_acceptances(*rest, leniences=leniences)
    return np.asarray(lenient), np.asarray(acceptances(*rest)), tokens, lengths


def laws(policy, tokens, lengths):
    """p and q [positions, v] at every token of the outputs, row by row."""
    found = []
    for name in ("target", "draft"):
        law = table_law(PARAMS[name], policy)
        found.append(
            np.stack(
                [
                    law([*prompt, *text[:i]])
                    for prompt, text, length in zip(PROMPT, tokens, lengths)
                    for i in range(length)
                ]
            )
        )
    return found


def of_rows(lenient, lengths):
    """The same positions, [positions, l]; past them all must be zero."""
    within = np.arange(lenient.shape[1]) < lengths[:, None]
    assert not within.all() and not lenient[~within].any()
    return lenient[within]


def test_above_zero_it_is_the_rules_own_law():
    """The sum over x of q(x) times what LenientRule accepts of x."""
    lenient, _, tokens, lengths = along(SAMPLED)
    p, q = laws(SAMPLED, tokens, lengths)

    def accepted(rule):
        def of(x, p, q):
            return rule.accept_law(x[None], q[None], jnp.stack([p, p]))[1]

        each = jax.jit(jax.vmap(jax.vmap(of, (0, None, None)), (None, 0, 0)))
        return (each(jnp.arange(V), p, q) * q).sum(-1)

    want = np.stack([accepted(LenientRule(l)) for l in LENIENCES], -1)
    np.testing.assert_allclose(of_rows(lenient, lengths), want, atol=1e-5)
    assert (np.diff(want.mean(0)) > 0.01).all()


def test_at_zero_it_is_what_the_decoder_keeps():
    lenient, _, tokens, lengths = along(GREEDY)
    p, q = laws(SOFT, tokens, lengths)
    soft = jnp.stack([p, p], 1)
    drafted = jnp.argmax(q, -1)[:, None].astype(jnp.int32)
    proposal = Proposal(drafted, None, jnp.ones(len(p), jnp.int32))
    choice = jnp.argmax(soft, -1).astype(jnp.int32)
    verdicts = [
        verify_lenient(LenientRule(l), proposal, soft, choice) for l in LENIENCES
    ]
    want = np.stack([verdict.accepted for verdict in verdicts], -1)
    np.testing.assert_array_equal(of_rows(lenient, lengths), want)
    assert want.mean(0)[-1] > want.mean(0)[0] > 0


@pytest.mark.parametrize("policy", [SAMPLED, GREEDY, SamplingPolicy(top_k=2)])
def test_without_lenience_it_is_alpha(policy):
    lenient, alpha, _, _ = along(policy)
    np.testing.assert_allclose(lenient[..., 0], alpha, atol=1e-6)
    assert np.abs(lenient[..., -1] - alpha).max() > 0.05


def test_of_tokens_that_are_equally_likely_the_first_is_the_target_s():
    """l = 1 is the token rule there too; l < 1 takes any of them."""
    target = jnp.zeros((V, V, V))
    draft = target.at[..., 1].set(1.0)
    lenient, alpha, _, lengths = along(
        GREEDY, params={"target": target, "draft": draft}, leniences=(1.0, 0.9)
    )
    assert not lenient[..., 0].any() and not alpha.any()
    assert lenient[..., 1].sum() == lengths.sum()


@pytest.mark.parametrize("policy", [SAMPLED, GREEDY])
def test_a_copy_has_a_probability_of_its_own_and_may_be_none(policy):
    lenient, alpha, _, _ = along(policy, PromptLookupDraft(2))
    np.testing.assert_allclose(lenient[..., 0], alpha, atol=1e-6)
    assert (lenient[:, :1] == 0).any() and (lenient > 0).any()
    if policy is SAMPLED:
        raised = np.minimum(alpha[..., None] / np.array(LENIENCES), 1.0)
        np.testing.assert_allclose(lenient, raised, atol=1e-6)


@pytest.mark.parametrize("leniences", [(), (0.0,), (0.5, 1.5)])
def test_a_lenience_out_of_range_is_an_error(leniences):
    with pytest.raises(ValueError, match=r"lenience in \(0, 1\]"):
        along(SAMPLED, leniences=leniences)
