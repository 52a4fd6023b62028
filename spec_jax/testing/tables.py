"""A decoder whose distribution is a table: exact, tiny, honest about its cache."""

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from spec_jax.core.sampling import SamplingPolicy


@dataclasses.dataclass(frozen=True)
class TableDecoder:
    """Logits depend on the newest token and on the sum of all before it.

    Its parameters are logits [v, v, v], indexed by (sum of the earlier tokens
    modulo v, newest token, next token). The sum is read from the cache, so one
    stale slot changes the output. Slots that were never written hold NaN, and so
    become all logits that read one or that belong to a write past the cache's
    end: a wrong position cannot stay unseen.

    Attributes:
      vocab_size: v.
      max_length: a limit of positions, as a model may have.
    """

    vocab_size: int
    max_length: int | None = None

    def init_cache(self, params, inputs, batch, max_length):
        """An unwritten cache. See `Decoder.init_cache`."""
        del params, inputs
        return jnp.full((batch, max_length), jnp.nan, jnp.float32)

    def extend(
        self,
        params: Float[Array, "v v v"],
        cache: Float[Array, "b l"],
        tokens: Int[Array, "b t"],
        start: Int[Array, "b"],
    ) -> tuple[Float[Array, "b t v"], Float[Array, "b l"]]:
        """See `Decoder.extend`."""
        width = tokens.shape[1]
        slot = jnp.arange(cache.shape[1])
        offset = slot - start[:, None]
        new = jnp.take_along_axis(tokens, jnp.clip(offset, 0, width - 1), 1)
        cache = jnp.where((offset >= 0) & (offset < width), new, cache)

        position = start[:, None] + jnp.arange(width)
        earlier = slot < position[..., None]
        total = jnp.where(earlier, cache[:, None], 0.0).sum(-1)
        context = jnp.where(jnp.isnan(total), 0, total).astype(jnp.int32)
        logits = params[context % self.vocab_size, tokens]
        bad = jnp.isnan(total) | (position >= cache.shape[1])
        return jnp.where(bad[..., None], jnp.nan, logits), cache


def table_law(
    params: Float[Array, "v v v"], policy: SamplingPolicy
) -> Callable[[Sequence[int]], np.ndarray]:
    """The distribution after any prefix of a TableDecoder, in float64.

    Args:
      params: the decoder's table.
      policy: the transforms on its logits.

    Returns:
      A function from a prefix of at least one token to probabilities [v].
    """
    probs = np.asarray(policy.probs(params), np.float64)
    probs /= probs.sum(-1, keepdims=True)
    return lambda prefix: probs[sum(prefix[:-1]) % len(probs), prefix[-1]]
