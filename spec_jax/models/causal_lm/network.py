"""Decoder-only transformers in flax.linen: Llama's parts and GPT's in one network.

Touvron et al. 2023, https://arxiv.org/abs/2302.13971; Radford et al. 2019 (GPT-2).
Parameter names are t5x's; weights are [out, in], see `Dense`.
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.partitioning import param_with_axes
from jaxtyping import Array, Bool, Float, Int

from spec_jax.models.attention import MASKED
from spec_jax.models.causal_lm.config import CausalLMConfig
from spec_jax.models.kv_cache import update_rows

KeysValues = tuple[Float[Array, "b k l d"], Float[Array, "b k l d"]]
CausalLMCache = tuple[KeysValues, ...]

_ACTIVATIONS = {
    "relu": nn.relu,
    "gelu": functools.partial(nn.gelu, approximate=True),
    "gelu_exact": functools.partial(nn.gelu, approximate=False),
    "silu": nn.silu,
    "linear": lambda x: x,
}


class Places(NamedTuple):
    """Where the t tokens of a call stand, the same for every layer.

    Attributes:
      visible: which slots each token may see: those up to its own.
      reached: which slots any token of the row may see.
      turn: RoPE's cosines and sines, None without RoPE.
    """

    visible: Bool[Array, "b t l"]
    reached: Bool[Array, "b l"]
    turn: tuple[Float[Array, "b t c"], Float[Array, "b t c"]] | None


class Dense(nn.Module):
    """A product over the last axis with an [out, in] kernel.

    Contracted on its last axis a weight is read once, in order. On one CPU thread,
    SmolLM2's layers (106M float32 parameters, one row) so take 31 ms with jax 0.12
    and 0.10; [in, out] takes 34 and 134 ms.
    """

    features: int
    kernel_axes: tuple[str, str]
    config: CausalLMConfig
    use_bias: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "b t i"]) -> Float[Array, "b t o"]:
        dtype = self.config.dtype
        kernel = param_with_axes(
            "kernel",
            nn.initializers.variance_scaling(
                1.0, "fan_in", "truncated_normal", in_axis=1, out_axis=0
            ),
            (self.features, x.shape[-1]),
            jnp.float32,
            axes=self.kernel_axes,
        )
        out = _product(x.astype(dtype), kernel).astype(dtype)
        if not self.use_bias:
            return out
        bias = param_with_axes(
            "bias",
            nn.initializers.zeros,
            (self.features,),
            jnp.float32,
            axes=self.kernel_axes[:1],
        )
        return out + bias.astype(dtype)


class Norm(nn.Module):
    """Root mean square norm or layer norm, in float32."""

    config: CausalLMConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b t e"]) -> Float[Array, "b t e"]:
        config = self.config
        vector = functools.partial(
            param_with_axes, shape=(x.shape[-1],), dtype=jnp.float32, axes=("embed",)
        )
        scale = vector("scale", nn.initializers.ones)
        x = x.astype(jnp.float32)
        if config.norm == "layer":
            x = x - x.mean(-1, keepdims=True)
        mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        normed = x * jax.lax.rsqrt(mean_square + config.norm_epsilon)
        if config.norm == "layer":
            bias = vector("bias", nn.initializers.zeros)
            normed = normed * scale.astype(jnp.float32) + bias.astype(jnp.float32)
            return normed.astype(config.dtype)
        return normed.astype(config.dtype) * scale.astype(config.dtype)


class Table(nn.Module):
    """Rows by token or by position."""

    rows: int
    axis: str
    config: CausalLMConfig

    def setup(self):
        self.embedding = param_with_axes(
            "embedding",
            nn.initializers.normal(0.02),
            (self.rows, self.config.emb_dim),
            jnp.float32,
            axes=(self.axis, "embed"),
        )

    def __call__(self, index: Int[Array, "b t"]) -> Float[Array, "b t e"]:
        # Positions past the table's end are never used, and must not fail.
        rows = jnp.take(self.embedding, index, axis=0, mode="clip")
        return rows.astype(self.config.dtype)

    def attend(self, x: Float[Array, "b t e"]) -> Float[Array, "b t v"]:
        return _product(x, self.embedding)


class Attention(nn.Module):
    """Causal self-attention; key heads may be fewer than query heads."""

    config: CausalLMConfig

    @nn.compact
    def __call__(self, x, places: Places, own: KeysValues | None, start):
        config = self.config
        dense = functools.partial(Dense, config=config, use_bias=config.use_bias)

        def heads(name, count):
            width = count * config.head_dim
            project = dense(width, kernel_axes=("joined_kv", "embed"), name=name)
            split = project(x).reshape(*x.shape[:2], count, config.head_dim)
            return split.transpose(0, 2, 1, 3)

        query = heads("query", config.num_heads)
        key = heads("key", config.num_kv_heads)
        value = heads("value", config.num_kv_heads)
        if places.turn is not None:
            query, key = _turned(query, places.turn), _turned(key, places.turn)
        if own is not None:
            key = update_rows(own[0], key, start)
            value = update_rows(own[1], value, start)
        mixed = attend_in_groups(query, key, value, places.visible, places.reached)
        mixed = mixed.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1)
        out = dense(config.emb_dim, kernel_axes=("embed", "joined_kv"), name="out")
        return out(mixed), (key, value)


class MlpBlock(nn.Module):
    """Feed-forward: the product of each activation's own projection."""

    config: CausalLMConfig

    @nn.compact
    def __call__(self, x):
        config = self.config
        dense = functools.partial(Dense, config=config, use_bias=config.use_bias)
        gated = len(config.mlp_activations) > 1
        hidden = 1
        for i, activation in enumerate(config.mlp_activations):
            name = f"wi_{i}" if gated else "wi"
            project = dense(config.mlp_dim, kernel_axes=("mlp", "embed"), name=name)
            hidden = hidden * _ACTIVATIONS[activation](project(x))
        return dense(config.emb_dim, kernel_axes=("embed", "mlp"), name="wo")(hidden)


class DecoderLayer(nn.Module):
    """Attention and feed-forward, each after a norm, added to the stream."""

    config: CausalLMConfig

    @nn.compact
    def __call__(self, x, places, own=None, start=None):
        config = self.config
        normed = Norm(config, name="pre_self_attention_layer_norm")(x)
        attention = Attention(config, name="self_attention")
        mixed, own = attention(normed, places, own, start)
        x = x + mixed
        normed = Norm(config, name="pre_mlp_layer_norm")(x)
        return x + MlpBlock(config, name="mlp")(normed), own


class Decoder(nn.Module):
    """All layers, the final norm, and the logits' own matrix if there is one."""

    config: CausalLMConfig

    def setup(self):
        config = self.config
        self.layers = [DecoderLayer(config) for _ in range(config.num_layers)]
        self.decoder_norm = Norm(config)
        if not config.logits_via_embedding:
            self.logits_dense = LogitsDense(config)

    def __call__(self, x, places, cache=None, start=None):
        written = []
        for i, layer in enumerate(self.layers):
            x, own = layer(x, places, cache and cache[i], start)
            written.append(own)
        return self.decoder_norm(x), tuple(written)

    def logits(self, x, embedder: Table) -> Float[Array, "b t v"]:
        if self.config.logits_via_embedding:
            return embedder.attend(x)
        return self.logits_dense(x)


class LogitsDense(nn.Module):
    """The untied output matrix, [vocabulary, width] as an embedding is."""

    config: CausalLMConfig

    @nn.compact
    def __call__(self, x):
        kernel = param_with_axes(
            "kernel",
            nn.initializers.variance_scaling(
                1.0, "fan_in", "truncated_normal", in_axis=1, out_axis=0
            ),
            (self.config.vocab_size, self.config.emb_dim),
            jnp.float32,
            axes=("vocab", "embed"),
        )
        return _product(x, kernel)


class CausalTransformer(nn.Module):
    """A decoder-only transformer."""

    config: CausalLMConfig

    def setup(self):
        config = self.config
        self.token_embedder = Table(config.vocab_size, "vocab", config)
        if config.positions == "learned":
            self.position_embedder = Table(config.max_length, "abspos_buckets", config)
        self.decoder = Decoder(config)

    def __call__(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t v"]:
        """Logits after each token of whole sequences: training and scoring."""
        positions = jnp.arange(tokens.shape[1])[None]
        x, _ = self.decoder(
            self._embed(tokens, positions),
            self._places(positions, tokens.shape[1]),
        )
        return self.decoder.logits(x, self.token_embedder)

    def extend(
        self, cache: CausalLMCache, tokens: Int[Array, "b t"], start: Int[Array, "b"]
    ) -> tuple[Float[Array, "b t v"], CausalLMCache]:
        """Logits after each of t tokens at start .. start + t - 1, and the cache."""
        positions = start[:, None] + jnp.arange(tokens.shape[1])
        places = self._places(positions, cache[0][0].shape[2])
        x = self._embed(tokens, positions)
        x, cache = self.decoder(x, places, cache, start)
        return self.decoder.logits(x, self.token_embedder), cache

    def _embed(self, tokens, positions):
        embedded = self.token_embedder(tokens)
        if self.config.positions == "learned":
            embedded = embedded + self.position_embedder(positions)
        return embedded

    def _places(self, positions: Int[Array, "b t"], num_slots: int) -> Places:
        slots = jnp.arange(num_slots)
        turn = None
        if self.config.positions == "rope":
            turn = rope(positions, self.config.head_dim, self.config.rope_base)
        return Places(
            visible=slots <= positions[..., None],
            reached=slots <= positions[:, -1:],
            turn=turn,
        )


def rope(
    positions: Int[Array, "b t"], head_dim: int, base: float
) -> tuple[Float[Array, "b t c"], Float[Array, "b t c"]]:
    """Cosines and sines of each position's angles.

    Args:
      positions: of the tokens.
      head_dim: twice the number c of angles.
      base: angle i turns by base ** (-i / c) a position.

    Returns:
      float32, whatever the activations are.

    Reference: Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.2.2.
    """
    half = head_dim // 2
    frequency = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = positions[..., None].astype(jnp.float32) * frequency
    return jnp.cos(angles), jnp.sin(angles)


def attend_in_groups(
    query: Float[Array, "b h t d"],
    key: Float[Array, "b k l d"],
    value: Float[Array, "b k l d"],
    visible: Bool[Array, "#b t l"],
    reached: Bool[Array, "#b l"],
) -> Float[Array, "b h t d"]:
    """Scaled softmax attention of h query heads over k key heads.

    The query heads that share a key head are more rows of one product with it: no
    key or value is repeated. Slots that are not visible are never read, whatever
    they hold: a weight of zero would still pass on a NaN.

    Args:
      query: heads major, those of one key head side by side.
      key: one for every slot of the cache.
      value: the same.
      visible: which slots each query may see.
      reached: which slots any query of its row may see.

    Returns:
      The mixed values of each query head.

    Reference: Ainslie et al. 2023, https://arxiv.org/abs/2305.13245.
    """
    batch, heads, num_tokens, width = query.shape
    groups, slots = key.shape[1:3]
    folded = (batch, groups, heads // groups * num_tokens)
    rows = ((0, 1), (0, 1))
    query = (query * width**-0.5).reshape(*folded, width)
    scores = jax.lax.dot_general(
        query, key, (((3,), (3,)), rows), preferred_element_type=jnp.float32
    )
    scores = scores.reshape(batch, groups, -1, num_tokens, slots)
    scores = jnp.where(visible[:, None, None], scores, MASKED)
    weights = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    value = jnp.where(reached[:, None, :, None], value, 0)
    mixed = jax.lax.dot_general(
        weights.reshape(*folded, slots), value, (((3,), (2,)), rows)
    )
    return mixed.reshape(query.shape[0], heads, num_tokens, width)


def _turned(x: Float[Array, "b h t d"], turn) -> Float[Array, "b h t d"]:
    """Turns the pairs (x[i], x[i + d / 2]) by their angles."""
    cos, sin = (part[:, None] for part in turn)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def _product(
    x: Float[Array, "b t i"], kernel: Float[Array, "o i"]
) -> Float[Array, "b t o"]:
    """Operands in the activations' dtype, float32 sums."""
    alone = x.shape[:2] == (1, 1) and x.dtype == jnp.bfloat16
    if alone:
        # XLA's product of one bfloat16 row on CPU takes six times as long as one of
        # two (270 against 44 ms a step of SmolLM2-135M).
        x = jnp.concatenate([x, x], axis=1)
    contract = (((x.ndim - 1,), (1,)), ((), ()))
    out = jax.lax.dot_general(
        x, kernel.astype(x.dtype), contract, preferred_element_type=jnp.float32
    )
    return out[:, :1] if alone else out
