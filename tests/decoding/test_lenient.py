"""LenientRule in the loop: its own law, exactly, and a plain simulation at T = 0."""

import jax
import numpy as np
import pytest

from spec_jax import LenientRule, ModelDraft, SamplingPolicy, Speculative, generate
from spec_jax.testing.enumeration import chain_law, loop_law
from spec_jax.testing.statistics import chi_square_pvalue
from spec_jax.testing.tables import TableDecoder, table_law

V, GAMMA, LENIENCE = 3, 2, 0.4
DECODER = TableDecoder(V)
TARGET, DRAFT = jax.random.normal(jax.random.key(20221130), (2, V, V, V)) * 1.5
PARAMS = {"target": TARGET, "draft": DRAFT}
PROMPT = (2, 1)


def lenient(policy, rule=None, **fields):
    draft = ModelDraft(DECODER, policy, GAMMA)
    rule = rule or LenientRule(LENIENCE)
    return Speculative(DECODER, draft, policy, rule, eos_id=None, **fields)


def decode(algorithm, rows, n=4, seed=0, **options):
    return generate(
        algorithm,
        PARAMS,
        None,
        np.tile(PROMPT, (rows, 1)),
        jax.random.key(seed),
        max_new_tokens=n,
        **options,
    )


def simulated(prompt, n, soft, draft):
    """A.5 at T = 0 in plain Python; also how many drafted tokens were accepted."""
    text, kept = list(prompt), 0
    while len(text) < len(prompt) + n:
        room = min(GAMMA, len(prompt) + n - len(text) - 1)
        drafted = []
        for _ in range(room):
            drafted.append(int(np.argmax(draft(text + drafted))))
        for token in drafted:
            p = soft(text)
            if p[token] < LENIENCE * p.max():
                break
            text.append(token)
            kept += 1
        text.append(int(np.argmax(soft(text))))
    return text[len(prompt) :], kept


@pytest.mark.slow
def test_joint_law_of_four_tokens():
    """Against the enumerated law of the loop; the target's is another."""
    p, q = (table_law(table, SamplingPolicy()) for table in (TARGET, DRAFT))
    out = decode(lenient(SamplingPolicy()), 100_000)
    law = loop_law(LenientRule(LENIENCE), p, q, PROMPT, GAMMA, 4)
    assert chi_square_pvalue(np.asarray(out.tokens), law) > 1e-6
    assert chi_square_pvalue(np.asarray(out.tokens), chain_law(p, PROMPT, 4)) < 1e-12


def test_temperature_zero():
    """Tokens, counts and log-probabilities of a simulation; faster than strictly."""
    size, policy = 6, SamplingPolicy(temperature=0.0)
    target, noise = jax.random.normal(jax.random.key(1), (2, size, size, size))
    decoder, params = TableDecoder(size), {"target": target, "draft": target + noise}
    prompts = np.array([[0, 1], [2, 3], [4, 5], [5, 0]])

    def decode(rule):
        draft = ModelDraft(decoder, policy, GAMMA)
        algorithm = Speculative(
            decoder, draft, policy, rule, eos_id=None, logprobs=True
        )
        key = jax.random.key(0)
        return generate(algorithm, params, None, prompts, key, max_new_tokens=20)

    out, strict = decode(LenientRule(LENIENCE)), decode(LenientRule(1.0))
    soft = table_law(target, SamplingPolicy())
    draft = table_law(params["draft"], policy)
    kept, unlikely = 0, 0
    for row, prompt in enumerate(prompts.tolist()):
        want, accepted = simulated(prompt, 20, soft, draft)
        assert out.tokens[row].tolist() == want
        kept += accepted
        for i, token in enumerate(want):
            # What the policy never draws has probability zero after it.
            is_choice = token == int(np.argmax(soft([*prompt, *want[:i]])))
            assert bool(np.isneginf(out.policy_logprobs[row, i])) != is_choice
            unlikely += not is_choice
    assert out.stats.accepted == kept > strict.stats.accepted
    assert unlikely > 0


def test_rows_at_temperature_zero_among_others():
    """They are those of a policy at T = 0; the others follow their law."""
    rows = 20_000
    temperature = np.resize([0.0, 1.0], rows)
    out = decode(lenient(SamplingPolicy()), rows, sampling={"temperature": temperature})
    tokens = np.asarray(out.tokens)
    greedy = decode(lenient(SamplingPolicy(temperature=0.0)), 1)
    assert (tokens[::2] == np.asarray(greedy.tokens)).all()
    p, q = (table_law(table, SamplingPolicy()) for table in (TARGET, DRAFT))
    law = loop_law(LenientRule(LENIENCE), p, q, PROMPT, GAMMA, 4)
    assert chi_square_pvalue(tokens[1::2], law) > 1e-6
