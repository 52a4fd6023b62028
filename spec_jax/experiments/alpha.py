"""alpha as the paper measures it: on the target's own output."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from spec_jax.base import Decoder, DraftSource, Inputs, Params, Proposal
from spec_jax.core.draws import draft_keys, row_keys
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.drafts.lengths import fixed_length


@dataclasses.dataclass(frozen=True)
class Alpha:
    """An estimate of the expected acceptance.

    Attributes:
      mean: of beta over all tokens.
      stderr: its standard error with rows as the independent units, since
        tokens of one text are not; None for a single row.
      num_tokens: how many tokens the mean is over.
    """

    mean: float
    stderr: float | None
    num_tokens: int


def acceptances(
    target: Decoder,
    draft: DraftSource,
    policy: SamplingPolicy,
    params: Params,
    inputs: Inputs,
    prompt: Int[Array, "b t"],
    tokens: Int[Array, "b m"],
    lengths: Int[Array, "b"],
    key: Key[Array, "*rows"],
) -> Float[Array, "b m"]:
    """beta = sum_x min(p(x), q(x)) at each token of an output.

    p comes from one call of the target on the whole output; q is what the draft
    would draw its next token from if the output up to there were decoded. A draft
    that proposes nothing has beta 0, one that draws nothing is one-hot.

    Args:
      target: gives p.
      draft: any source; asked for one token at each length.
      policy: from the target's logits to p.
      params: {"target": ..., "draft": ...}.
      inputs: what the prompt side needs.
      prompt: what the output follows, all of it valid.
      tokens: the target's own output, padded.
      lengths: how many tokens of each row are output, 0 for rows of padding.
      key: one key, or one a row; for drafts whose proposal depends on draws.

    Returns:
      The betas, 0 past a row's length.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, definition
    3.1, theorem 3.5 and section 4.3.
    """
    along = (target, draft, policy, params, inputs, prompt, tokens, lengths, key)
    return reduced_along(*along, reduce=_overlap)


def distributions(
    target: Decoder,
    draft: DraftSource,
    policy: SamplingPolicy,
    params: Params,
    inputs: Inputs,
    prompt: Int[Array, "b t"],
    tokens: Int[Array, "b m"],
    lengths: Int[Array, "b"],
    key: Key[Array, "*rows"],
) -> tuple[Float[Array, "b m v"], Float[Array, "b m v"]]:
    """p and q themselves at each token of an output; see `acceptances`."""
    along = (target, draft, policy, params, inputs, prompt, tokens, lengths, key)
    return reduced_along(*along, reduce=_both)


def mean_acceptance(
    betas: Sequence[Float[np.ndarray, "m"]], lengths: Sequence[int]
) -> Alpha:
    """The mean over all tokens of all rows, and how sure it is.

    Args:
      betas: one array a row, of which the first `lengths[i]` entries count.
      lengths: of the rows; rows of length 0 do not count.

    Raises:
      ValueError: if there is no token.
    """
    rows = [
        np.asarray(row[:length], np.float64)
        for row, length in zip(betas, lengths, strict=True)
        if length > 0
    ]
    if not rows:
        raise ValueError("alpha wants at least one token of output, got none")
    sums = np.array([row.sum() for row in rows])
    counts = np.array([len(row) for row in rows])
    total = counts.sum()
    mean = sums.sum() / total
    stderr = None
    if len(rows) > 1:
        # A ratio of two sums over rows, linearized.
        spread = ((sums - mean * counts) ** 2).sum() * len(rows) / (len(rows) - 1)
        stderr = float(np.sqrt(spread) / total)
    return Alpha(float(mean), stderr, int(total))


def reduced_along(
    target, draft, policy, params, inputs, prompt, tokens, lengths, key, *, reduce
):
    """What `reduce` makes of p and the draft's proposal at each token.

    Args:
      target: see `acceptances`, as for all that is not said here.
      reduce: from p [b, v] and a proposal of one token to an array of leading
        dimension b. Equal ones share a program, so it is a function of a module or
        an object of a frozen dataclass.

    Returns:
      What it gave, [b, m, ...], 0 past a row's length.
    """
    return _scan(
        target,
        fixed_length(draft, gamma=1),
        policy,
        params,
        inputs,
        jnp.asarray(prompt, jnp.int32),
        jnp.asarray(tokens, jnp.int32),
        jnp.asarray(lengths, jnp.int32),
        key,
        reduce=reduce,
    )


def _overlap(p: Float[Array, "b v"], proposal: Proposal) -> Float[Array, "b"]:
    if proposal.probs is None:
        overlap = jnp.take_along_axis(p, proposal.tokens, axis=1)[:, 0]
    else:
        overlap = jnp.minimum(p, proposal.probs[:, 0]).sum(-1)
    return jnp.where(proposal.count > 0, overlap, 0.0)


def _both(p: Float[Array, "b v"], proposal: Proposal):
    q = proposal.probs
    if q is None:
        q = jax.nn.one_hot(proposal.tokens, p.shape[-1])
    return p, q[:, 0]


@functools.partial(jax.jit, static_argnames=("target", "draft", "policy", "reduce"))
def _scan(
    target, draft, policy, params, inputs, prompt, tokens, lengths, key, *, reduce
):
    batch, width = prompt.shape
    text = jnp.concatenate([prompt, tokens], axis=1)
    start = jnp.zeros((batch,), jnp.int32)
    cache = target.init_cache(params["target"], inputs, batch, text.shape[1])
    logits, _ = target.extend(params["target"], cache, text[:, :-1], start)
    p = policy.probs(logits[:, width - 1 :])

    keys = row_keys(key, batch)
    prompt_length = jnp.full((batch,), width, jnp.int32)
    state = draft.init(
        params.get("draft"), inputs, prompt, prompt_length, text.shape[1]
    )

    def at_position(state, position):
        i, p = position
        length = prompt_length + i
        proposal, state = draft.propose(
            params.get("draft"), state, draft_keys(draft, keys, length), text, length
        )
        return state, reduce(p, proposal)

    steps = jnp.arange(tokens.shape[1], dtype=jnp.int32)
    _, found = jax.lax.scan(at_position, state, (steps, p.swapaxes(0, 1)))
    within = steps < lengths[:, None]

    def by_row(values):
        values = jnp.swapaxes(values, 0, 1)
        return jnp.where(
            within.reshape(*within.shape, *[1] * (values.ndim - 2)), values, 0.0
        )

    return jax.tree.map(by_row, found)
