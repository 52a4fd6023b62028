"""The algorithm of the paper: draft gamma tokens, judge them in one target call."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp

from spec_jax.base import Decoder, DraftSource, Rule
from spec_jax.core.draws import DRAFT, VERIFY, step_keys
from spec_jax.core.sampling import SamplingPolicy, token_logprobs
from spec_jax.core.verification import TokenRule, verify, verify_greedy
from spec_jax.decoding.commit import as_stop, commit, newest
from spec_jax.decoding.start import initial_state


@dataclasses.dataclass(frozen=True)
class Speculative:
    """Speculative sampling.

    Attributes:
      target: the model whose distribution the output follows.
      draft: any source of proposals; it changes the speed, never the output's
        distribution.
      policy: from the target's logits to that distribution.
      rule: how proposals are judged.
      eos_id: a row ends after this token; None: no such token.
      pad_id: fills tokens past a row's end.
      stop: a row ends after any of these token sequences.
      logprobs: whether log-probabilities of the output are kept.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, algorithm 1.
    """

    target: Decoder
    draft: DraftSource
    policy: SamplingPolicy
    rule: Rule = dataclasses.field(default_factory=TokenRule)
    eos_id: int | None = 1
    pad_id: int = 0
    stop: Sequence[Sequence[int]] = ()
    logprobs: bool = False

    def __post_init__(self):
        object.__setattr__(self, "stop", as_stop(self.stop))
        if self.draft.gamma < 1:
            raise ValueError(
                f"want a draft of gamma >= 1 tokens, got {self.draft.gamma}; "
                "Autoregressive decodes without drafts"
            )

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
            draft=self.draft,
        )

    def step(self, params, state):
        """See `Algorithm.step`: commits 1 to gamma + 1 tokens."""
        gamma = self.draft.gamma
        proposal, draft_state = self.draft.propose(
            params.get("draft"),
            state.draft_state,
            step_keys(state.key, state.length, DRAFT, gamma),
            state.tokens,
            state.length,
            state.sampling,
        )
        # The last token before a row's limit comes from the target: what lies
        # past it is never judged, so a target may return anything there.
        room = jnp.where(state.done, 0, state.limit - state.length - 1)
        count = jnp.clip(proposal.count, 0, room)
        proposal = dataclasses.replace(proposal, count=count)

        window = jnp.concatenate([newest(state), proposal.tokens], axis=1)
        logits, cache = self.target.extend(
            params["target"], state.target_cache, window, state.length - 1
        )
        # Where p is one-hot every lossless rule comes down to a comparison.
        greedy = self.rule.lossless and self.policy.is_greedy(state.sampling)
        if greedy:
            verdict = verify_greedy(proposal, self.policy.greedy(logits))
        else:
            p = self.policy.probs(logits, state.sampling)
            keys = step_keys(state.key, state.length, VERIFY, 1)[:, 0]
            verdict = verify(self.rule, keys, proposal, p)

        slot = jnp.arange(gamma + 1)
        emitted = jnp.where(
            slot < verdict.accepted[:, None],
            jnp.pad(proposal.tokens, ((0, 0), (0, 1))),
            verdict.token[:, None],
        )
        logprobs = None
        if self.logprobs:
            chosen = 1.0 if greedy else jnp.take_along_axis(p, emitted[..., None], -1)
            logprobs = {
                "logprobs": token_logprobs(logits, emitted),
                "policy_logprobs": jnp.log(
                    jnp.broadcast_to(chosen, (*emitted.shape, 1))[..., 0]
                ),
            }
        state = dataclasses.replace(state, target_cache=cache, draft_state=draft_state)
        return commit(
            state,
            proposal.tokens,
            count,
            emitted,
            verdict,
            eos_id=self.eos_id,
            stop=self.stop,
            logprobs=logprobs,
        )
