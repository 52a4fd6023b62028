"""The hyperparameters of a T5, under t5x's field names."""

import dataclasses
from typing import Any

import jax.numpy as jnp

from spec_jax.models.dtypes import floating

_ACTIVATIONS = ("relu", "gelu", "silu", "linear")


@dataclasses.dataclass(frozen=True, kw_only=True)
class T5Config:
    """Shape and numerics of a T5 network. The names are t5x's.

    Attributes:
      vocab_size: rows of the embedding table (T5: 32128 for 32100 pieces).
      emb_dim: width of the residual stream (d_model).
      num_heads: attention heads.
      head_dim: width of a head (d_kv); num_heads * head_dim may differ from emb_dim.
      mlp_dim: hidden width of the feed-forward layers (d_ff).
      num_encoder_layers: encoder depth.
      num_decoder_layers: decoder depth.
      mlp_activations: ('relu',) in T5 1.0, ('gelu', 'linear') in T5 1.1.
      logits_via_embedding: True ties the output to the embedding (T5 1.0) and
        scales it by emb_dim ** -0.5; False has its own matrix (T5 1.1).
      dtype: of activations, e.g. 'bfloat16'; a floating one. Logits are always
        float32.
      float32_attention_logits: attention scores and softmax in float32.
      dropout_rate: in training only.
      relative_attention_num_buckets: rows of the relative-position table.
      relative_attention_max_distance: distances from here on share a bucket.

    Raises:
      ValueError: if a size is not positive, an activation or dtype is unknown, or a
        T5 1.1 (gated MLPs) is to run in float16, which its activations overflow.
    """

    vocab_size: int
    emb_dim: int
    num_heads: int
    head_dim: int
    mlp_dim: int
    num_encoder_layers: int
    num_decoder_layers: int
    mlp_activations: tuple[str, ...] = ("gelu", "linear")
    logits_via_embedding: bool = False
    dtype: Any = "float32"
    float32_attention_logits: bool = False
    dropout_rate: float = 0.0
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128

    def __post_init__(self):
        # Gin and JSON give lists and names; a frozen config must hash.
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        object.__setattr__(
            self, "dtype", floating(self.dtype, "T5Config.dtype must be")
        )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and not (isinstance(value, int) and value > 0):
                raise ValueError(
                    f"T5Config.{field.name} must be a positive integer, got {value!r}"
                )
        unknown = set(self.mlp_activations) - set(_ACTIVATIONS)
        if unknown or not self.mlp_activations:
            raise ValueError(
                f"mlp_activations must be taken from {_ACTIVATIONS}, "
                f"got {self.mlp_activations}"
            )
        if not 0 <= self.dropout_rate < 1:
            raise ValueError(f"dropout_rate must be in [0, 1), got {self.dropout_rate}")
        if self.dtype == jnp.float16 and len(self.mlp_activations) > 1:
            raise ValueError(
                "T5 1.1 cannot run in float16: its activations reach 2.8e5 and the "
                "type ends at 65504; use bfloat16 or float32"
            )
