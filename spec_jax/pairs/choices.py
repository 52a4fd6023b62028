"""Drafts, rules and lengths by name, for configurations."""

import jax

from spec_jax.base import DraftSource, Noise, Params
from spec_jax.core.rules import (
    AnyRule,
    BlockRule,
    CoupledRule,
    LenientRule,
    TokenRule,
)
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.drafts import (
    BigramDraft,
    ChainDraft,
    ConfidenceStop,
    FixedLength,
    LengthPolicy,
    ModelDraft,
    OptimalLength,
    PromptLookupDraft,
    UnigramDraft,
)

DRAFTS = ("model", "unigram", "bigram", "lookup", "chain")
"""A small model; tables of single tokens and of pairs; copies of earlier text; a bigram
table that drafts for the small model."""
WITH_LENGTHS = ("model", "unigram", "bigram")
"""Drafts that can stop early: a copy costs nothing, and a chain drafts in blocks."""
RULES = ("token", "block", "coupled", "lenient")
LENGTHS = ("fixed", "optimal", "confidence")


def make_rule(name: str = "token", lenience: float | None = None) -> AnyRule:
    """A verification rule.

    Args:
      name: one of RULES.
      lenience: of "lenient", which wants one; the only rule that changes the output.

    Raises:
      ValueError: if the name is unknown, or a lenience is missing or not read.
    """
    _check(name, RULES, "rule")
    if name == "lenient":
        if lenience is None:
            raise ValueError("want a lenience in (0, 1] for the lenient rule, got none")
        return LenientRule(lenience)
    if lenience is not None:
        raise ValueError(
            f"want no lenience with the rule {name!r}, got {lenience}; the rule "
            "'lenient' takes one, and its output does not follow the target"
        )
    return {"token": TokenRule, "block": BlockRule, "coupled": CoupledRule}[name]()


def noise_of(rule: AnyRule | None) -> Noise:
    """How a draft, and plain decoding beside it, has to draw for a rule."""
    return "gumbel" if isinstance(rule, CoupledRule) else "uniform"


def make_lengths(
    name: str = "fixed",
    draft_cost: float = 0.1,
    verify_cost: float = 1.1,
    threshold: float = 0.4,
) -> LengthPolicy:
    """How many tokens a step drafts.

    Args:
      name: one of LENGTHS.
      draft_cost: c, time of a draft step over a plain step; of "optimal".
      verify_cost: time of the target's call on a block over a plain step; of
        "optimal".
      threshold: of "confidence", a probability.

    Raises:
      ValueError: if the name is unknown or a number is out of range.
    """
    _check(name, LENGTHS, "length policy")
    if name == "optimal":
        return OptimalLength(draft_cost, verify_cost)
    return ConfidenceStop(threshold) if name == "confidence" else FixedLength()


def make_draft(
    name: str,
    model,
    vocab_size: int,
    gamma: int,
    policy: SamplingPolicy,
    lengths: LengthPolicy,
    noise: Noise,
    eos_id: int | None,
) -> DraftSource:
    """A source of proposals for a pair.

    Args:
      name: one of DRAFTS.
      model: the small model, for "model" and "chain".
      vocab_size: of the tokenizer, and so of tables.
      gamma: the most tokens proposed in a step.
      policy: what the draft draws from.
      lengths: read by "model", "unigram" and "bigram".
      noise: as the rule wants it.
      eos_id: ends a copy.

    Raises:
      ValueError: if the name is unknown, or the draft has no such lengths.
    """
    _check(name, DRAFTS, "draft")
    if name not in WITH_LENGTHS and lengths != FixedLength():
        raise ValueError(
            f"want fixed lengths with the draft {name!r}, got {lengths}: a copy costs "
            "nothing, and a chain drafts in blocks"
        )
    if name == "lookup":
        return PromptLookupDraft(gamma, eos_id=eos_id)
    if name == "unigram":
        return UnigramDraft(vocab_size, policy, gamma, lengths, noise)
    if name == "bigram":
        return BigramDraft(vocab_size, policy, gamma, lengths, noise)
    if name == "chain":
        inner = BigramDraft(vocab_size, policy, gamma, noise=noise)
        return ChainDraft(inner, model, policy, gamma, noise=noise)
    return ModelDraft(model, policy, gamma, lengths, noise)


def draft_params(
    name: str, model: Params, tables: dict[str, jax.Array] | None
) -> Params:
    """The parameters that go with `make_draft`.

    Args:
      name: one of DRAFTS.
      model: the small model's.
      tables: as `load_tables` gives them; None for drafts that read none.
    """
    _check(name, DRAFTS, "draft")
    return {
        "model": model,
        "unigram": tables,
        "bigram": tables,
        "lookup": None,
        "chain": {"model": model, "inner": tables},
    }[name]


def _check(name: str, names: tuple[str, ...], what: str) -> None:
    if name not in names:
        raise ValueError(f"want a {what} of {', '.join(names)}, got {name!r}")
