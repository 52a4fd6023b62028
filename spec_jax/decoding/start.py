"""The state before the first step: buffers, caches, prefill."""

import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from spec_jax.base import (
    DecodeState,
    DraftSource,
    Inputs,
    Params,
    Sampling,
    StopReason,
)
from spec_jax.core.draws import row_keys
from spec_jax.core.row_values import check_sampling
from spec_jax.decoding.stats import Statistics


def initial_state(
    algorithm,
    params: Params,
    inputs: Inputs,
    prompt: Int[Array, "b t"],
    prompt_length: Int[Array, "b"],
    key: Key[Array, "*rows"],
    limit: Int[Array, "b"],
    max_length: int,
    sampling: Sampling | None = None,
    draft: DraftSource | None = None,
) -> DecodeState:
    """Makes buffers and caches, and feeds the prompt to both models.

    Args:
      algorithm: gives the target, pad_id and logprobs.
      params: see `Algorithm.init`, also for the rest.
      inputs: what the prompt side needs.
      prompt: left-aligned prompts; all but the newest token are prefilled, which
        a step feeds.
      prompt_length: how much of each row is prompt.
      key: one key, or one a row.
      limit: the most new tokens of each row.
      max_length: the most positions of any row, prompt included.
      sampling: per-row values for the policies.
      draft: the source of proposals, if there is one.

    Returns:
      The state.

    Raises:
      ValueError: if a prompt is empty, shapes disagree, or max_length is more
        than the target can take or less than the prompt.
    """
    batch, width = prompt.shape
    target = algorithm.target
    if width < 1:
        raise ValueError("want a prompt of at least one token, got none")
    if max_length < width:
        raise ValueError(
            f"want max_length of at least the prompt's {width}, got {max_length}"
        )
    if target.max_length is not None and max_length > target.max_length:
        raise ValueError(
            f"want at most the target's max_length = {target.max_length} positions, "
            f"got {max_length} (prompt {width}); ask for fewer new tokens"
        )
    for name, value in (("prompt_length", prompt_length), ("limit", limit)):
        if value.shape != (batch,):
            raise ValueError(f"want {name} of shape {(batch,)}, got {value.shape}")
    check_sampling(sampling, batch)

    gamma = 0 if draft is None else draft.gamma
    cache = target.init_cache(params["target"], inputs, batch, max_length + gamma)
    if width > 1:
        start = jnp.zeros((batch,), jnp.int32)
        _, cache = target.extend(params["target"], cache, prompt[:, :-1], start)
    draft_state = None
    if draft is not None:
        draft_state = draft.init(
            params.get("draft"), inputs, prompt, prompt_length, max_length
        )
    limit = prompt_length + jnp.maximum(limit, 0)
    limit = jnp.minimum(limit, max_length).astype(jnp.int32)
    filled = jnp.arange(max_length) < prompt_length[:, None]
    tokens = jnp.pad(prompt, ((0, 0), (0, max_length - width)))
    logprobs = jnp.zeros(tokens.shape, jnp.float32) if algorithm.logprobs else None
    return DecodeState(
        tokens=jnp.where(filled, tokens, algorithm.pad_id).astype(jnp.int32),
        length=prompt_length.astype(jnp.int32),
        prompt_length=prompt_length.astype(jnp.int32),
        limit=limit,
        stop_reason=jnp.where(
            prompt_length < limit, StopReason.RUNNING, StopReason.LENGTH
        ).astype(jnp.int32),
        key=row_keys(key, batch),
        target_cache=cache,
        draft_state=draft_state,
        stats=Statistics.zeros(batch, gamma),
        sampling=sampling,
        logprobs=logprobs,
        policy_logprobs=logprobs,
    )
