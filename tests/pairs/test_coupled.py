"""CoupledRule on the shipped pair: plain sampling's tokens, from every draft.

By default a few drafts and gammas on some rows. With ALL_COUPLED=1 in the environment
every draft, gamma 1 to 8, on 1,000 prompts x keys (an hour of one core):

    ALL_COUPLED=1 bash launch/test.sh tests/pairs/test_coupled.py
"""

import os

import numpy as np
import pytest

from spec_jax import CoupledRule
from spec_jax.data.datasets import load_task
from spec_jax.experiments.inputs import cut_inputs, make_batches
from spec_jax.experiments.outputs import decode_all, find_differences
from spec_jax.pairs import DRAFTS, shipped_pair

ALL = bool(os.environ.get("ALL_COUPLED"))
ROWS, BATCH, SEEDS = (1_000, 125, 16) if ALL else (96, 48, 2)
CASES = [(draft, gamma) for draft in DRAFTS for gamma in range(1, 9)]
if not ALL:
    CASES = [
        *(("model", gamma) for gamma in (1, 4, 8)),
        *((draft, 3) for draft in DRAFTS if draft != "model"),
    ]
NEAR_TIE = 1e-4
MOST_DIFFERENT = 1e-3
MOST_NEW_TOKENS = 24


@pytest.fixture(scope="module")
def pair():
    return shipped_pair(dtype="float32")


@pytest.fixture(scope="module")
def batches(pair):
    """Prompts x keys: every text with several keys, both tasks."""
    texts = [
        text
        for name in ("ende", "summarize")
        for data in load_task(name, pair.vocabulary)
        for text in cut_inputs(data.examples, 64)[0]
    ]
    texts = (texts * SEEDS)[:ROWS]
    assert len(texts) == ROWS
    rows = [type(text)(i, text.tokens) for i, text in enumerate(texts)]
    return make_batches(
        rows, batch=BATCH, input_lengths=(64,), max_new_tokens=MOST_NEW_TOKENS, seed=3
    )


@pytest.fixture(scope="module")
def plain(pair, batches):
    """Plain sampling at T = 0.8 with Gumbel noise."""
    algorithm = pair.autoregressive(pair.policy(0.8), CoupledRule())
    return algorithm, decode_all(algorithm, pair.params, batches)


@pytest.mark.slow
@pytest.mark.parametrize(("draft", "gamma"), CASES)
def test_tokens_are_those_of_plain_sampling(pair, batches, plain, draft, gamma):
    """BEHAVIOURS 10: a difference has to be a near tie of the noisy scores."""
    algorithm, want = plain
    using = pair.using(draft)
    speculative = using.speculative(gamma, algorithm.policy, CoupledRule())
    got = decode_all(speculative, using.params, batches)
    differences = [
        at
        for batch in batches
        for at in find_differences(
            algorithm,
            pair.params,
            batch,
            *([x.tokens[m.index] for m in batch.members] for x in (want, got)),
        ).values()
    ]
    assert all(at.gap < NEAR_TIE for at in differences), differences
    assert len(differences) <= max(1, MOST_DIFFERENT * ROWS), differences
    if draft in ("model", "chain"):
        assert got.total.tokens_per_target_run > 1.2
    lengths = [len(tokens) for tokens in want.tokens.values()]
    assert np.mean(lengths) > 5
