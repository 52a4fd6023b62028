"""The hyperparameters of a decoder-only model, under t5x's field names."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from spec_jax.models.dtypes import floating

POSITIONS = ("rope", "learned")
NORMS = ("rms", "layer")
ACTIVATIONS = ("relu", "gelu", "gelu_exact", "silu", "linear")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CausalLMConfig:
    """Shape and numerics of a decoder-only network. The defaults are Llama's.

    Attributes:
      vocab_size: rows of the embedding table.
      emb_dim: width of the residual stream.
      num_heads: query heads.
      num_kv_heads: key and value heads; each serves num_heads / num_kv_heads query
        heads.
      head_dim: width of a head; num_heads * head_dim may differ from emb_dim.
      mlp_dim: hidden width of the feed-forward layers.
      num_layers: depth.
      max_length: positions the model was made for.
      positions: 'rope' turns queries and keys by their position (Llama), 'learned'
        adds a table's row to the embedding (GPT).
      rope_base: base of RoPE's wavelengths.
      norm: 'rms' has a scale alone (Llama), 'layer' takes the mean off and has a
        bias (GPT).
      norm_epsilon: added to the mean square.
      mlp_activations: ('silu', 'linear') is SwiGLU (Llama), ('gelu',) GPT's. 'gelu'
        is the tanh form, 'gelu_exact' the one with erf.
      use_bias: whether the layers' products have biases (GPT).
      logits_via_embedding: whether the logits share the embedding.
      dtype: of activations, e.g. 'bfloat16'; a floating one. Logits are always
        float32.

    Raises:
      ValueError: if a size is not positive, heads cannot be grouped, or a name is
        unknown.
    """

    vocab_size: int
    emb_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    mlp_dim: int
    num_layers: int
    max_length: int
    positions: str = "rope"
    rope_base: float = 10_000.0
    norm: str = "rms"
    norm_epsilon: float = 1e-5
    mlp_activations: Sequence[str] = ("silu", "linear")
    use_bias: bool = False
    logits_via_embedding: bool = False
    dtype: Any = "float32"

    def __post_init__(self):
        # Gin and JSON give lists and names; a frozen config must hash.
        object.__setattr__(self, "mlp_activations", tuple(self.mlp_activations))
        object.__setattr__(
            self, "dtype", floating(self.dtype, "want CausalLMConfig.dtype")
        )
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and not (isinstance(value, int) and value > 0):
                raise ValueError(
                    f"want CausalLMConfig.{field.name} a positive integer, got "
                    f"{value!r}"
                )
            if field.type is float and not value > 0:
                raise ValueError(f"want CausalLMConfig.{field.name} > 0, got {value!r}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                "want num_heads a multiple of num_kv_heads, got "
                f"{self.num_heads} and {self.num_kv_heads}"
            )
        if self.positions == "rope" and self.head_dim % 2:
            raise ValueError(f"want an even head_dim for RoPE, got {self.head_dim}")
        for name, known in (("positions", POSITIONS), ("norm", NORMS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"want {name} one of {known}, got {getattr(self, name)!r}"
                )
        if not self.mlp_activations or set(self.mlp_activations) - set(ACTIVATIONS):
            raise ValueError(
                f"want mlp_activations of {ACTIVATIONS}, got {self.mlp_activations}"
            )


def _gpt(**shape) -> CausalLMConfig:
    """A GPT without grouped heads, its logits with a matrix of their own."""
    return CausalLMConfig(
        **shape,
        num_kv_heads=shape["num_heads"],
        positions="learned",
        norm="layer",
        mlp_activations=("gelu",),
        use_bias=True,
    )


LM1B_97M = _gpt(
    vocab_size=8192,
    emb_dim=768,
    num_heads=12,
    head_dim=64,
    mlp_dim=3072,
    num_layers=12,
    max_length=256,
)
"""The target of the paper's lm1b experiment, whose 97M parameters want an untied head.

Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, section 4.2. The paper does
not tell the number of positions; lm1b holds single sentences.
"""

LM1B_6M = _gpt(
    vocab_size=8192,
    emb_dim=256,
    num_heads=4,
    head_dim=64,
    mlp_dim=1024,
    num_layers=2,
    max_length=256,
)
"""The draft of that experiment: 6M parameters."""
