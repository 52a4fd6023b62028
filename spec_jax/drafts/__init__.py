"""Sources of proposals, one file each; they know neither target nor loop."""

from spec_jax.drafts.chain import ChainDraft
from spec_jax.drafts.lengths import (
    ConfidenceStop,
    FixedLength,
    LengthPolicy,
    OptimalLength,
)
from spec_jax.drafts.model import ModelDraft
from spec_jax.drafts.ngram import BigramDraft, UnigramDraft
from spec_jax.drafts.prompt_lookup import PromptLookupDraft

__all__ = [
    "BigramDraft",
    "ChainDraft",
    "ConfidenceStop",
    "FixedLength",
    "LengthPolicy",
    "ModelDraft",
    "OptimalLength",
    "PromptLookupDraft",
    "UnigramDraft",
]
