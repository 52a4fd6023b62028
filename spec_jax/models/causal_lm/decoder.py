"""A decoder-only model as the loop sees it: no inputs, and one call that extends."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from spec_jax.base import Inputs
from spec_jax.models.axes import abstract_variables
from spec_jax.models.causal_lm.config import CausalLMConfig
from spec_jax.models.causal_lm.network import CausalLMCache, CausalTransformer


@dataclasses.dataclass(frozen=True)
class CausalLMDecoder:
    """A `Decoder` over a decoder-only network. It has no `inputs`: they are None.

    Attributes:
      config: the network's shape; equal configs share compiled programs.
    """

    config: CausalLMConfig

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_length(self) -> int:
        """The positions the model was made for."""
        return self.config.max_length

    def init_cache(
        self, params, inputs: Inputs, batch: int, max_length: int
    ) -> CausalLMCache:
        """Room for `max_length` tokens, also beyond the model's own limit.

        Raises:
          ValueError: if there are inputs, which such a model has no place for.
        """
        del params
        if inputs is not None:
            raise ValueError(
                "want None as the inputs of a decoder-only model, got "
                f"{type(inputs).__name__}: its text goes into the prompt"
            )
        config = self.config
        shape = (batch, config.num_kv_heads, max_length, config.head_dim)
        # Buffers of their own, so that a caller may donate them.
        return tuple(
            (jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))
            for _ in range(config.num_layers)
        )

    def extend(
        self,
        params,
        cache: CausalLMCache,
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], CausalLMCache]:
        """Logits after each token; row i's stand at start[i] .. start[i] + t - 1."""
        network = CausalTransformer(self.config)
        return network.apply(
            {"params": params}, cache, tokens, start, method=CausalTransformer.extend
        )

    def param_shapes(self) -> dict[str, Any]:
        """The parameters, as jax.ShapeDtypeStruct."""
        return self._variables()[0]

    def param_axes(self) -> dict[str, Any]:
        """The logical names of each parameter's axes."""
        return self._variables()[1]

    def cache_axes(self, cache: CausalLMCache) -> tuple[Any, ...]:
        """The logical names of the axes of each array of a cache."""
        kept = ("batch", "heads", "length", "kv")
        return tuple((kept, kept) for _ in cache)

    def _variables(self):
        tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
        return abstract_variables(CausalTransformer(self.config), tokens)
