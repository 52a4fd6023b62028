"""alpha, laws and costs of batches that were decoded."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.batches import pad
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.sharded import on_every_host
from spec_jax.decoding.speculative import Speculative
from spec_jax.experiments.alpha import (
    Alpha,
    acceptances,
    distributions,
    mean_acceptance,
)
from spec_jax.experiments.costs import StepCosts, step_costs
from spec_jax.experiments.inputs import InputBatch, in_one_shape
from spec_jax.experiments.outputs import Decoded
from spec_jax.pairs import Pair


def measure_alpha(
    speculative: Speculative,
    params: Any,
    batches: Sequence[InputBatch],
    plain: Decoded,
) -> Alpha:
    """alpha on the outputs of plain decoding, by the speculative pair's models."""
    models = (speculative.target, speculative.draft, speculative.policy, params)
    betas, lengths = [], []
    for batch in in_one_shape(batches):
        rows, counts = measured_along(acceptances, models, batch, _of(batch, plain))
        betas += list(np.asarray(rows))
        lengths += counts
    return mean_acceptance(betas, lengths)


def laws_along(
    pair: Pair,
    policy: SamplingPolicy,
    draft_policy: SamplingPolicy,
    batches: Sequence[InputBatch],
    plain: Decoded,
) -> tuple[Float[np.ndarray, "m v"], Float[np.ndarray, "m v"]]:
    """p and q at every token of the outputs of plain decoding.

    Args:
      pair: of the models.
      policy: from the target's logits to p.
      draft_policy: from the draft's to q.
      batches: all batches.
      plain: the outputs.
    """
    models = (pair.target, pair.draft_source(1, draft_policy), policy, pair.params)
    laws: list[list[np.ndarray]] = [[], []]
    for batch in in_one_shape(batches):
        both, counts = measured_along(distributions, models, batch, _of(batch, plain))
        for kept, rows in zip(laws, both):
            kept += [np.asarray(x[:count]) for x, count in zip(rows, counts)]
    p, q = (np.concatenate(kept) for kept in laws)
    return p, q


def measured_along(
    measure, models, batch: InputBatch, outputs: Sequence[np.ndarray]
) -> tuple[Any, list[int]]:
    """What `measure` gives along outputs of a batch's examples, and their lengths.

    Args:
      measure: `acceptances` or `distributions`.
      models: target, draft, policy and parameters.
      batch: the examples.
      outputs: tokens of each; further rows are passed over.
    """
    members = len(batch.members)
    outputs = outputs[:members]
    counts = [len(tokens) for tokens in outputs]
    found = measure(
        *models,
        batch.inputs,
        batch.prompt,
        pad(outputs, batch.max_new_tokens, len(batch.limits)),
        np.array(counts + [0] * batch.padding),
        batch.keys,
    )
    return jax.tree.map(lambda rows: rows[:members], on_every_host(found)), counts


def _of(batch: InputBatch, decoded: Decoded) -> list[np.ndarray]:
    """A batch's outputs, row by row."""
    return [decoded.tokens[member.index] for member in batch.members]


def measure_costs(
    plain: Autoregressive,
    plain_params: Any,
    speculative: Speculative,
    params: Any,
    batches: Sequence[InputBatch],
) -> StepCosts:
    """The costs of a step at the input length that most examples have."""
    examples: dict[int, int] = {}
    for batch in batches:
        length = batch.inputs.shape[1]
        examples[length] = examples.get(length, 0) + len(batch.members)
    commonest = max(examples, key=lambda length: examples[length])
    batch = next(b for b in batches if b.inputs.shape[1] == commonest)
    return step_costs(
        plain,
        plain_params,
        speculative,
        params,
        batch.inputs,
        batch.prompt,
        batch.keys,
        max_new_tokens=batch.max_new_tokens,
    )
