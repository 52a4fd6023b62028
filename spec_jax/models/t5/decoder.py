"""T5 as the loop sees it: a cache made once, and one call that extends it."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from spec_jax.models.axes import abstract_variables
from spec_jax.models.t5.config import T5Config
from spec_jax.models.t5.network import T5Cache, Transformer


@dataclasses.dataclass(frozen=True)
class T5Decoder:
    """A `Decoder` over T5's network. `inputs` are encoder token ids, 0 padded.

    Attributes:
      config: the network's shape; equal configs share compiled programs.
    """

    config: T5Config

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_length(self) -> None:
        """T5's relative positions set no limit."""
        return None

    def init_cache(
        self, params, inputs: Int[Array, "b s"], batch: int, max_length: int
    ) -> T5Cache:
        """Encodes `inputs` once; room for `max_length` decoder tokens.

        Raises:
          ValueError: if `inputs` is not an integer array of `batch` rows.
        """
        inputs = jnp.asarray(inputs)
        integer = jnp.issubdtype(inputs.dtype, jnp.integer)
        if inputs.ndim != 2 or inputs.shape[0] != batch or not integer:
            raise ValueError(
                f"T5 wants encoder tokens of shape [{batch}, length] as its inputs, "
                f"got {inputs.dtype}{list(inputs.shape)}"
            )
        network = Transformer(self.config)
        return network.apply(
            {"params": params}, inputs, max_length, method=Transformer.init_cache
        )

    def extend(
        self,
        params,
        cache: T5Cache,
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], T5Cache]:
        """Logits after each token; row i's stand at start[i] .. start[i] + t - 1."""
        network = Transformer(self.config)
        return network.apply(
            {"params": params}, cache, tokens, start, method=Transformer.extend
        )

    def param_shapes(self) -> dict[str, Any]:
        """The parameters, as jax.ShapeDtypeStruct."""
        return self._variables()[0]

    def param_axes(self) -> dict[str, Any]:
        """The logical names of each parameter's axes, which are t5x's."""
        return self._variables()[1]

    def cache_axes(self, cache: T5Cache) -> T5Cache:
        """The logical names of the axes of each array of a cache."""
        kept = ("batch", "heads", "length", "kv")
        return T5Cache(
            own=tuple((kept, kept) for _ in cache.own),
            cross=tuple((kept, kept) for _ in cache.cross),
            cross_bias=("batch", None, None, "length"),
            distance_bias=("heads", "length"),
        )

    def _variables(self):
        tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
        return abstract_variables(Transformer(self.config), tokens, tokens)
