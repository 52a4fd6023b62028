"""Which random number belongs to which row, position and purpose, and what it draws.

Every row has one key that is never consumed: a draw folds into it where it
stands. So a row's output depends on its own key and prompt, not on neighbours,
batch size or padding, and no state of a generator is carried.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt

from spec_jax.base import DraftSource

BLOCK = 128
"""Entries of the vocabulary that share one sum in `draw`."""

DRAFT = 0
"""Role of the draws that make a proposal, one key for each of its tokens."""

VERIFY = 1
"""Role of the draws that judge it: the accepted count and the next token."""


def row_keys(
    key: Key[Array, "*rows"] | UInt[Array, "..."], batch: int
) -> Key[Array, "b"]:
    """One key a row.

    Args:
      key: one key (row i gets fold_in(key, i)) or one key a row.
      batch: b.

    Returns:
      The keys of the rows.

    Raises:
      ValueError: if the shape is neither () nor (b,), or the generator is not
        threefry: rbg draws other numbers under vmap than alone, and a row
        would depend on its neighbours.
    """
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise ValueError(
            f"want a key made by jax.random.key(seed), got an array of {key.dtype}; "
            "wrap raw key data with jax.random.wrap_key_data"
        )
    name = str(jax.random.key_impl(key))
    if "threefry" not in name:
        raise ValueError(
            f"want a threefry key, got {name}: its numbers change under vmap; "
            "make it with jax.random.key(seed, impl='threefry2x32')"
        )
    if key.shape == ():
        return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(batch))
    if key.shape != (batch,):
        raise ValueError(f"want one key or {batch} keys, got shape {key.shape}")
    return key


def position_keys(keys: Key[Array, "b"], position: Int[Array, "b"]) -> Key[Array, "b"]:
    """The keys of plain draws: fold_in(row key, position of the drawn token)."""
    return jax.vmap(jax.random.fold_in)(keys, position)


def step_keys(
    keys: Key[Array, "b"], length: Int[Array, "b"], role: int, count: int
) -> Key[Array, "b k"]:
    """The keys of a speculative step, folded from length, index and role.

    Args:
      keys: the rows' keys.
      length: the rows' lengths at the start of the step.
      role: DRAFT or VERIFY.
      count: k, how many keys a row needs; their indices are 0 .. k - 1.

    Returns:
      The keys.
    """

    def one(key, length, index):
        # Index and role as one number: a fold less to compute and to compile.
        return jax.random.fold_in(jax.random.fold_in(key, length), 2 * index + role)

    over_index = jax.vmap(one, (None, None, 0))
    return jax.vmap(over_index, (0, 0, None))(keys, length, jnp.arange(count))


def block_keys(
    keys: Key[Array, "b"], length: Int[Array, "b"], count: int
) -> Key[Array, "b k"]:
    """`position_keys` of the k positions from `length` on."""
    positions = length[:, None] + jnp.arange(count)
    return jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)))(keys, positions)


def draft_keys(
    draft: DraftSource, keys: Key[Array, "b"], length: Int[Array, "b"]
) -> Key[Array, "b g"]:
    """The keys of a proposal's draws: of positions for Gumbel noise, else of the step.

    Args:
      draft: says its gamma and noise.
      keys: the rows' keys.
      length: the rows' lengths at the start of the step.
    """
    if draft.noise == "gumbel":
        return block_keys(keys, length, draft.gamma)
    return step_keys(keys, length, DRAFT, draft.gamma)


def uniforms(keys: Key[Array, "*b"], count: int) -> Float[Array, "*b k"]:
    """`count` float32 uniforms in [0, 1) for each key; 0 occurs, 1 does not."""
    flat = jax.vmap(lambda key: jax.random.uniform(key, (count,), jnp.float32))(
        keys.reshape(-1)
    )
    return flat.reshape(*keys.shape, count)


def pick(u: Float[Array, ""], weights: Float[Array, "k"]) -> Int[Array, ""]:
    """The entry that a uniform falls on; never one of weight zero.

    Args:
      u: a uniform in [0, 1).
      weights: not negative, at least one positive; they need not sum to 1.

    Returns:
      The first positive entry whose cumulative weight exceeds u times the total,
      or the last positive one where rounding leaves none.
    """
    size = weights.shape[0]
    index = jnp.arange(size, dtype=jnp.int32)
    cumulative = jnp.cumsum(weights)
    positive = weights > 0
    hit = (cumulative > u * cumulative[-1]) & positive
    last = jnp.where(positive, index, 0).max()
    return jnp.minimum(jnp.where(hit, index, size).min(), last)


def draw(u: Float[Array, "2"], probs: Float[Array, "v"]) -> Int[Array, ""]:
    """Draws a token with two uniforms: a block of 128 entries, then the entry.

    One float32 uniform over 32k entries would distort the distribution by 3e-4
    and never reach part of it; in two levels it is below 1e-5.

    Args:
      u: two uniforms in [0, 1).
      probs: weights of the tokens; they need not sum to 1.

    Returns:
      A token of positive probability.
    """
    if probs.shape[0] <= BLOCK:
        return pick(u[1], probs)
    blocks = jnp.pad(probs, (0, -probs.shape[0] % BLOCK)).reshape(-1, BLOCK)
    block = pick(u[0], blocks.sum(1))
    return block * BLOCK + pick(u[1], blocks[block])


def gumbel(keys: Key[Array, "*b"], size: int) -> Float[Array, "*b v"]:
    """Standard Gumbel noise, -log(-log(1 - u)), `size` values for each key.

    u is drawn in steps of 2^-32 and small u decide the race, so tokens of
    probability 1e-8 still get their share; with a float32 uniform near 1, whose
    steps are 2^-24, those below 1e-7 would hardly ever be drawn.
    """

    def one(key):
        bits = jax.random.bits(key, (size,), jnp.uint32).astype(jnp.float32)
        u = jnp.minimum((bits + 0.5) * 2.0**-32, 1 - 2.0**-24)
        return -jnp.log(-jnp.log1p(-u))

    return jax.vmap(one)(keys.reshape(-1)).reshape(*keys.shape, size)


def draw_gumbel(
    keys: Key[Array, "*b"], probs: Float[Array, "*b v"]
) -> Int[Array, "*b"]:
    """Draws tokens by the largest log p + Gumbel noise.

    The noise depends on the key alone: two distributions drawn with one key agree
    as often as they are alike.

    Args:
      keys: of the draws.
      probs: weights of the tokens; they need not sum to 1.

    Returns:
      Tokens of positive probability.
    """
    return first_argmax(jnp.log(probs) + gumbel(keys, probs.shape[-1]))


def first_argmax(x: Float[Array, "*b v"]) -> Int[Array, "*b"]:
    """Like jnp.argmax over the last axis, v - 1 for a row with a NaN.

    Two plain reductions are vectorized; XLA's argmax on CPU is not, and takes 8
    times as long (65 against 8 microseconds for 5 rows of 4,096).
    """
    size = x.shape[-1]
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
    is_largest = x == x.max(-1, keepdims=True)
    return jnp.where(is_largest, index, size - 1).min(-1)
