"""Speculative decoding in JAX."""

from spec_jax.base import (
    Algorithm,
    Decoder,
    DecodeState,
    DraftSource,
    Proposal,
    Rule,
    StepInfo,
    StopReason,
)
from spec_jax.core.rules import BlockRule, CoupledRule, LenientRule, TokenRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.core.verification import verify
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.commit import text_tokens
from spec_jax.decoding.loop import (
    Generation,
    generate,
    speculative_step,
    stream,
    trace,
)
from spec_jax.decoding.speculative import Speculative
from spec_jax.decoding.stats import Statistics
from spec_jax.drafts.model import ModelDraft

__all__ = [
    "Algorithm",
    "Autoregressive",
    "BlockRule",
    "CoupledRule",
    "DecodeState",
    "Decoder",
    "DraftSource",
    "Generation",
    "LenientRule",
    "ModelDraft",
    "Proposal",
    "Rule",
    "SamplingPolicy",
    "Speculative",
    "Statistics",
    "StepInfo",
    "StopReason",
    "TokenRule",
    "generate",
    "speculative_step",
    "stream",
    "text_tokens",
    "trace",
    "verify",
]
