"""Any function from tokens to logits as a decoder, without a cache of its own."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from spec_jax.base import Inputs, Params, pytree

LogitsFn = Callable[[Params, Int[Array, "b l"], Inputs], Float[Array, "b l v"]]


@pytree
class PrefixCache:
    """What stands in for a cache: the tokens themselves.

    Attributes:
      tokens: each row's prefix, then zeros.
      inputs: what `init_cache` was given.
    """

    tokens: Int[Array, "b l"]
    inputs: Inputs


@dataclasses.dataclass(frozen=True)
class PaddedPrefixDecoder:
    """A `Decoder` over a function that reads whole prefixes.

    `logits_fn(params, tokens [b, l], inputs)` returns logits [b, l, v], those at
    position i for the token after it. It promises to be causal: logits at i depend
    on tokens[:, : i + 1], `params` and `inputs` alone, whatever follows and however
    long l is, and on no other row. What follows a prefix here are zeros, so id 0
    must be one that the function can take. `check_decoder` of
    `spec_jax.testing.contract` sees whether the promise is kept.

    Every call runs the function over the whole buffer, so one token costs as much
    as all: l times what it costs with a cache, and logits of all l positions.
    Sizes are static within a program: a short prefix cannot be run in a smaller
    bucket, and rows are padded to the most positions that any may reach. It pays
    where there is no cache to be had, in tests, and where l is small.

    Attributes:
      logits_fn: the function. It is a static part of the program: parameters come
        as its argument, not from around it, and a new lambda, partial or bound
        method of a new object compiles again. Define it once, at module level.
      vocab_size: v.
      max_length: the most positions that the function takes; None: any. It is
        never called with more.

    Raises:
      ValueError: if `logits_fn` cannot be hashed.
    """

    logits_fn: LogitsFn
    vocab_size: int
    max_length: int | None = None

    def __post_init__(self):
        try:
            hash(self.logits_fn)
        except TypeError as error:
            raise ValueError(
                f"want a hashable logits_fn, got {type(self.logits_fn).__name__}: "
                "define a plain function and give it the model's arrays as params"
            ) from error

    def init_cache(
        self, params: Params, inputs: Inputs, batch: int, max_length: int
    ) -> PrefixCache:
        """An empty buffer, and the inputs. See `Decoder.init_cache`."""
        del params
        if self.max_length is not None:
            max_length = min(max_length, self.max_length)
        return PrefixCache(jnp.zeros((batch, max_length), jnp.int32), inputs)

    def extend(
        self,
        params: Params,
        cache: PrefixCache,
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], PrefixCache]:
        """See `Decoder.extend`; logits past the function's own limit mean nothing.

        Raises:
          ValueError: if the function returns logits of another shape.
        """
        batch, size = cache.tokens.shape
        width = tokens.shape[1]
        slot = jnp.arange(size)
        offset = slot - start[:, None]
        new = jnp.take_along_axis(tokens, jnp.clip(offset, 0, width - 1), 1)
        # What an earlier, longer prefix left behind goes here: nothing can read it.
        kept = jnp.where(offset < 0, cache.tokens, new)
        prefix = jnp.where(offset < width, kept, 0).astype(jnp.int32)

        logits = self.logits_fn(params, prefix, cache.inputs)
        wanted = (batch, size, self.vocab_size)
        if jnp.shape(logits) != wanted:
            raise ValueError(
                f"want logits of shape {wanted} (rows, positions, vocabulary) from "
                f"logits_fn, got {jnp.shape(logits)}"
            )
        position = jnp.clip(start[:, None] + jnp.arange(width), 0, size - 1)
        chosen = jnp.take_along_axis(logits, position[..., None], axis=1)
        return chosen, PrefixCache(prefix, cache.inputs)
