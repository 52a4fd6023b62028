"""T5 1.0 and 1.1: configuration, network, and the Decoder over it."""

from spec_jax.models.t5.config import T5Config as T5Config
from spec_jax.models.t5.decoder import T5Decoder as T5Decoder
from spec_jax.models.t5.network import Transformer as Transformer
