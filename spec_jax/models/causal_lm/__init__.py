"""Decoder-only models, Llama's and GPT's: configuration, network, Decoder."""

from spec_jax.models.causal_lm.config import LM1B_6M as LM1B_6M
from spec_jax.models.causal_lm.config import LM1B_97M as LM1B_97M
from spec_jax.models.causal_lm.config import CausalLMConfig as CausalLMConfig
from spec_jax.models.causal_lm.decoder import CausalLMDecoder as CausalLMDecoder
from spec_jax.models.causal_lm.network import CausalTransformer as CausalTransformer
