"""The baseline: one target call, one token. The oracle of every test."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from spec_jax.base import Decoder, Noise
from spec_jax.core.draws import draw, draw_gumbel, position_keys, uniforms
from spec_jax.core.sampling import SamplingPolicy, token_logprobs
from spec_jax.core.verification import Verdict
from spec_jax.decoding.commit import as_stop, commit, newest
from spec_jax.decoding.start import initial_state


@dataclasses.dataclass(frozen=True)
class Autoregressive:
    """Plain decoding under the same `init` and `step` as `Speculative`.

    Attributes:
      target: the model.
      policy: from its logits to the distribution of the output.
      noise: "uniform", or "gumbel": the draws that `CoupledRule` repeats.
      eos_id: a row ends after this token; None: no such token.
      pad_id: fills tokens past a row's end.
      stop: a row ends after any of these token sequences.
      logprobs: whether log-probabilities of the output are kept.
    """

    target: Decoder
    policy: SamplingPolicy
    noise: Noise = "uniform"
    eos_id: int | None = 1
    pad_id: int = 0
    stop: Sequence[Sequence[int]] = ()
    logprobs: bool = False

    def __post_init__(self):
        object.__setattr__(self, "stop", as_stop(self.stop))
        if self.noise not in ("uniform", "gumbel"):
            raise ValueError(f"want noise 'uniform' or 'gumbel', got {self.noise!r}")

    def init(
        self,
        params,
        inputs,
        prompt,
        prompt_length,
        key,
        limit,
        max_length,
        sampling=None,
    ):
        """See `Algorithm.init`."""
        return initial_state(
            self,
            params,
            inputs,
            prompt,
            prompt_length,
            key,
            limit,
            max_length,
            sampling,
        )

    def step(self, params, state):
        """See `Algorithm.step`: commits one token."""
        logits, cache = self.target.extend(
            params["target"], state.target_cache, newest(state), state.length - 1
        )
        none = jnp.zeros_like(state.length)
        nothing = jnp.zeros((*none.shape, 0), jnp.int32)
        history = self.policy.history(
            state.tokens, state.length, nothing, logits.shape[-1], state.sampling
        )
        if self.policy.is_greedy(state.sampling):
            emitted = self.policy.greedy(logits, state.sampling, history)
            policy_logprobs = jnp.zeros(emitted.shape)
        else:
            p = self.policy.probs(logits, state.sampling, history)
            keys = position_keys(state.key, state.length)
            if self.noise == "gumbel":
                emitted = draw_gumbel(keys, p[:, 0])[:, None]
            else:
                emitted = jax.vmap(draw)(uniforms(keys, 2), p[:, 0])[:, None]
            policy_logprobs = jnp.log(jnp.take_along_axis(p, emitted[..., None], -1))
            policy_logprobs = policy_logprobs[..., 0]
        state = dataclasses.replace(state, target_cache=cache)
        return commit(
            state,
            nothing,
            none,
            emitted,
            Verdict(none, emitted[:, 0], none > 0),
            eos_id=self.eos_id,
            stop=self.stop,
            logprobs={
                "logprobs": token_logprobs(logits, emitted),
                "policy_logprobs": policy_logprobs,
            }
            if self.logprobs
            else None,
        )
