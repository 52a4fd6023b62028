"""T5's attention parts: dense products, relative positions, scores."""

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.partitioning import param_with_axes
from jaxtyping import Array, Bool, Float, Int

from spec_jax.models.layouts import keep_kernel

MASKED = -1e10  # t5x's additive mask
DotGeneral = Callable[..., Array]


def relative_position_bucket(
    relative_position: np.ndarray,
    *,
    bidirectional: bool,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> np.ndarray:
    """T5's bucket of each relative position (key position minus query position).

    Args:
      relative_position: integers.
      bidirectional: half of the buckets are for keys after the query (encoder);
        otherwise such keys share bucket 0 (decoder).
      num_buckets: rows of the table.
      max_distance: distances from here on share the last bucket.

    Returns:
      Integers in [0, num_buckets): one bucket a distance up to half of them, then
      buckets that widen with the logarithm of the distance.

    Reference: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1.
    """
    distance = -np.asarray(relative_position)
    offset = np.zeros_like(distance)
    if bidirectional:
        num_buckets //= 2
        offset = np.where(distance < 0, num_buckets, 0)
        distance = np.abs(distance)
    distance = np.maximum(distance, 0)
    exact = num_buckets // 2
    scale = (num_buckets - exact) / np.log(max_distance / exact)
    wide = exact + np.log(np.maximum(distance, 1) / exact + 1e-7) * scale
    wide = np.minimum(wide.astype(np.int32), num_buckets - 1)
    return offset + np.where(distance < exact, distance, wide)


class DenseGeneral(nn.Module):
    """A product with a [in, out] kernel and no bias, over the last axis.

    Attributes:
      features: size of the output's last axis.
      kernel_axes: logical names of the kernel's axes.
      kernel_init: as in flax.
      dtype: of operands and result.
      dot_general: replaces `jax.lax.dot_general`; training passes one whose
        backward products are fast.
    """

    features: int
    kernel_axes: tuple[str, str]
    kernel_init: Callable = nn.initializers.variance_scaling(
        1.0, "fan_in", "truncated_normal"
    )
    dtype: Any = jnp.float32
    dot_general: DotGeneral = jax.lax.dot_general

    @nn.compact
    def __call__(self, x: Float[Array, "*b i"]) -> Float[Array, "*b o"]:
        kernel = param_with_axes(
            "kernel",
            self.kernel_init,
            (x.shape[-1], self.features),
            jnp.float32,
            axes=self.kernel_axes,
        )
        contract = (((x.ndim - 1,), (0,)), ((), ()))
        return self.dot_general(
            x.astype(self.dtype), kernel.astype(self.dtype), contract
        )


class RelativePositionBiases(nn.Module):
    """One table of biases by head and distance, shared by a whole stack."""

    num_heads: int
    num_buckets: int
    max_distance: int
    bidirectional: bool

    @nn.compact
    def __call__(self, relative_position: np.ndarray) -> Float[Array, "h *r"]:
        """float32 biases for relative positions known at trace time.

        They stay float32 whatever the activations are: few entries gather the
        gradients of very many positions, which bfloat16 sums would lose.
        """
        table = param_with_axes(
            "rel_embedding",
            nn.initializers.variance_scaling(1.0, "fan_avg", "uniform"),
            (self.num_heads, self.num_buckets),
            jnp.float32,
            axes=("heads", "relpos_buckets"),
        )
        buckets = relative_position_bucket(
            relative_position,
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        return table.astype(jnp.float32)[:, buckets]


def attend(
    query: Float[Array, "b h t d"],
    key: Float[Array, "b h l d"],
    value: Float[Array, "b h l d"],
    bias: Float[Array, "#b #h #t l"],
    *,
    float32_logits: bool = False,
    dropout: Callable[[Array], Array] = lambda weights: weights,
    dot_general: DotGeneral = jax.lax.dot_general,
) -> Float[Array, "b h t d"]:
    """Softmax attention with an additive bias; scores are not scaled (T5).

    The softmax is in float32, whatever the scores are.
    """
    if float32_logits:
        query, key = query.astype(jnp.float32), key.astype(jnp.float32)
    rows = ((0, 1), (0, 1))
    scores = dot_general(query, key, (((3,), (3,)), rows))
    scores = scores.astype(jnp.float32) + bias
    weights = dropout(jax.nn.softmax(scores, axis=-1).astype(value.dtype))
    return dot_general(weights, value, (((3,), (2,)), rows))


class MultiHeadAttention(nn.Module):
    """Projections of attention; the caller owns keys, values and positions.

    Kernels are [embed, joined_kv], heads major, as in t5x.
    """

    emb_dim: int
    num_heads: int
    head_dim: int
    dtype: Any
    float32_logits: bool = False
    dot_general: DotGeneral = jax.lax.dot_general

    def setup(self):
        dense = functools.partial(
            DenseGeneral,
            features=self.num_heads * self.head_dim,
            kernel_axes=("embed", "joined_kv"),
            dtype=self.dtype,
            dot_general=self.dot_general,
        )
        # T5 folds attention's 1 / sqrt(head_dim) into the query's initial values.
        self.query = dense(
            kernel_init=nn.initializers.variance_scaling(
                1.0 / self.head_dim, "fan_in", "truncated_normal"
            )
        )
        self.key = dense()
        self.value = dense()
        self.out = dense(features=self.emb_dim, kernel_axes=("joined_kv", "embed"))

    def __call__(
        self,
        x: Float[Array, "b t e"],
        key: Float[Array, "b h l d"],
        value: Float[Array, "b h l d"],
        bias: Float[Array, "#b #h #t l"],
        dropout: Callable[[Array], Array] = lambda weights: weights,
    ) -> Float[Array, "b t e"]:
        query = self._split(self.query(x))
        mixed = attend(
            query,
            key,
            value,
            bias,
            float32_logits=self.float32_logits,
            dropout=dropout,
            dot_general=self.dot_general,
        )
        return self.out(mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1))

    def project(
        self, x: Float[Array, "b l e"]
    ) -> tuple[Float[Array, "b h l d"], Float[Array, "b h l d"]]:
        """Keys and values of x."""
        return self._split(self.key(x)), self._split(self.value(x))

    def _split(self, x):
        x = keep_kernel(x).reshape(*x.shape[:2], self.num_heads, self.head_dim)
        return x.transpose(0, 2, 1, 3)


def padding_bias(valid: Bool[Array, "b l"]) -> Float[Array, "b 1 1 l"]:
    """0 where a key may be read, `MASKED` elsewhere."""
    return jnp.where(valid, 0.0, MASKED)[:, None, None, :]


def positions_apart(num_queries: int, num_keys: int) -> Int[np.ndarray, "q k"]:
    """Key position minus query position."""
    return np.arange(num_keys)[None, :] - np.arange(num_queries)[:, None]
