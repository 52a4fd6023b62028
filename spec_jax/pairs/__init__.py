"""Models made ready to decode together: loaded, in one dtype, over one vocabulary."""

from spec_jax.pairs.causal_lm import SMOLLM2, CausalLM, load_causal_lm, load_tokenizer
from spec_jax.pairs.choices import (
    DRAFTS,
    LENGTHS,
    RULES,
    WITH_LENGTHS,
    make_lengths,
    make_rule,
)
from spec_jax.pairs.drafting import Drafting
from spec_jax.pairs.folders import (
    EXPORT,
    PACKAGE,
    load_model,
    parameter_shapes,
    read_model_config,
    resolve,
    save_model,
)
from spec_jax.pairs.pair import START_ID, Pair, load_pair, shipped_pair
from spec_jax.pairs.tables import load_tables, save_tables
from spec_jax.pairs.vocabularies import find_vocabulary, open_vocabulary

__all__ = [
    "DRAFTS",
    "EXPORT",
    "LENGTHS",
    "PACKAGE",
    "RULES",
    "SMOLLM2",
    "START_ID",
    "WITH_LENGTHS",
    "CausalLM",
    "Drafting",
    "Pair",
    "find_vocabulary",
    "load_causal_lm",
    "load_model",
    "load_pair",
    "load_tables",
    "load_tokenizer",
    "make_lengths",
    "make_rule",
    "open_vocabulary",
    "parameter_shapes",
    "read_model_config",
    "resolve",
    "save_model",
    "save_tables",
    "shipped_pair",
]
