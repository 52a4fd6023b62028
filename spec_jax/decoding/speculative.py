"""The algorithm of the paper: draft gamma tokens, judge them in one target call."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from spec_jax.base import Decoder, DecodeState, DraftSource, Proposal
from spec_jax.core.branches import RecursiveRule
from spec_jax.core.draws import (
    VERIFY,
    block_keys,
    draft_keys,
    draw_gumbel,
    first_argmax,
    step_keys,
)
from spec_jax.core.rules import AnyRule, CoupledRule, LenientRule, TokenRule
from spec_jax.core.sampling import (
    GREEDY_TEMPERATURE,
    SamplingPolicy,
    token_logprobs,
)
from spec_jax.core.verification import (
    Verdict,
    verify,
    verify_choice,
    verify_lenient,
)
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
      rule: how proposals are judged; `CoupledRule` wants a draft that draws with
        Gumbel noise, or not at all, and the other rules one that does not.
      eos_id: a row ends after this token; None: no such token.
      pad_id: fills tokens past a row's end.
      stop: a row ends after any of these token sequences.
      logprobs: whether log-probabilities of the output are kept.

    Reference: Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, algorithm 1.
    """

    target: Decoder
    draft: DraftSource
    policy: SamplingPolicy
    rule: AnyRule = dataclasses.field(default_factory=TokenRule)
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
        if isinstance(self.rule, RecursiveRule):
            raise ValueError(
                "want a rule for one draft a step, got RecursiveRule: its laws are "
                "for several branches, which no loop drafts"
            )
        coupled = isinstance(self.rule, CoupledRule)
        if self.draft.noise not in (None, "gumbel" if coupled else "uniform"):
            wanted = "gumbel" if coupled else "uniform"
            raise ValueError(
                f"want a draft of noise={wanted!r} under {type(self.rule).__name__}, "
                f"got noise={self.draft.noise!r}: "
                + (
                    "target and draft share the noise of each position"
                    if coupled
                    else "noise of positions is used again after a rejection, so the "
                    "output would not follow the target's distribution"
                )
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
            draft_keys(self.draft, state.key, state.length),
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
        verdict, p = self._judge(state, proposal, logits)
        slot = jnp.arange(gamma + 1)
        emitted = jnp.where(
            slot < verdict.accepted[:, None],
            jnp.pad(proposal.tokens, ((0, 0), (0, 1))),
            verdict.token[:, None],
        )
        logprobs = None
        if self.logprobs:
            chosen = (
                1.0 if p is None else jnp.take_along_axis(p, emitted[..., None], -1)
            )
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

    def _judge(
        self, state: DecodeState, proposal: Proposal, logits: Float[Array, "b n v"]
    ) -> tuple[Verdict, Float[Array, "b n w"] | None]:
        """The rule's verdict, and p; None where all that is emitted has p = 1."""
        policy, rule, sampling = self.policy, self.rule, state.sampling
        tokens, length = state.tokens, state.length
        history = policy.history(
            tokens, length, proposal.tokens, logits.shape[-1], sampling
        )
        if policy.is_greedy(sampling):
            choice = policy.greedy(logits, sampling, history)
            if isinstance(rule, LenientRule):
                soft = _soft(policy, logits, sampling, history)
                p = policy.probs(logits, sampling, history)
                return verify_lenient(rule, proposal, soft, choice), p
            # Where p is one-hot every lossless rule comes down to a comparison.
            return verify_choice(proposal, choice), None
        p = policy.probs(logits, sampling, history)
        if isinstance(rule, CoupledRule):
            keys = block_keys(state.key, length, logits.shape[1])
            return verify_choice(proposal, draw_gumbel(keys, p)), p
        keys = step_keys(state.key, length, VERIFY, 1)[:, 0]
        verdict = verify(rule, keys, proposal, p)
        if isinstance(rule, LenientRule) and "temperature" in (sampling or {}):
            # Rows at temperature 0 in a batch of others.
            soft = _soft(policy, logits, sampling, history)
            lenient = verify_lenient(rule, proposal, soft, first_argmax(p))
            is_greedy = sampling["temperature"] <= GREEDY_TEMPERATURE
            verdict = jax.tree.map(
                lambda at_zero, above: jnp.where(is_greedy, at_zero, above),
                lenient,
                verdict,
            )
        return verdict, p


def _soft(policy: SamplingPolicy, logits, sampling, history) -> Float[Array, "b n w"]:
    """The policy's distribution at temperature 1."""
    rest = {k: v for k, v in (sampling or {}).items() if k != "temperature"}
    policy = dataclasses.replace(policy, temperature=1.0)
    return policy.probs(logits, rest or None, history)
