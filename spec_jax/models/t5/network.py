"""T5 in flax.linen. Parameter names, shapes and logical axes are t5x's.

Raffel et al. 2020, https://arxiv.org/abs/1910.10683; version 1.1 (gated gelu,
untied logits): Shazeer 2020, https://arxiv.org/abs/2002.05202.
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.partitioning import param_with_axes
from jaxtyping import Array, Float, Int

from spec_jax.models.attention import (
    MASKED,
    DenseGeneral,
    DotGeneral,
    MultiHeadAttention,
    RelativePositionBiases,
    padding_bias,
    positions_apart,
)
from spec_jax.models.kv_cache import slice_rows, update_rows
from spec_jax.models.t5.config import T5Config

# Up to this many queries take their biases as slices, which cost next to nothing; a
# long prefill would make a long program of them, and gathers.
_SLICED_TOKENS = 16

KeysValues = tuple[Float[Array, "b h l d"], Float[Array, "b h l d"]]

_ACTIVATIONS = {
    "relu": nn.relu,
    "gelu": functools.partial(nn.gelu, approximate=True),
    "silu": nn.silu,
    "linear": lambda x: x,
}


class T5Cache(NamedTuple):
    """What a T5 decoder keeps between calls. Nothing in it says a position.

    Attributes:
      own: keys and values of each layer's self-attention, by position.
      cross: keys and values of the encoder's output, by layer; never written.
      cross_bias: additive mask over the encoder's positions.
      distance_bias: bias of position length - 1 - j's distance at entry j, then
        `MASKED` for what lies ahead of a query: any query's row is a slice of it.
    """

    own: tuple[KeysValues, ...]
    cross: tuple[KeysValues, ...]
    cross_bias: Float[Array, "b 1 1 s"]
    distance_bias: Float[Array, "h m"]


class LayerNorm(nn.Module):
    """Root mean square norm in float32: no mean, no bias."""

    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "*b e"]) -> Float[Array, "*b e"]:
        scale = param_with_axes(
            "scale", nn.initializers.ones, (x.shape[-1],), jnp.float32, axes=("embed",)
        )
        x = x.astype(jnp.float32)
        mean_square = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        normed = (x * jax.lax.rsqrt(mean_square + 1e-6)).astype(self.dtype)
        return normed * scale.astype(self.dtype)


class Embedding(nn.Module):
    """The token table; `attend` gives tied logits."""

    config: T5Config

    def setup(self):
        self.embedding = param_with_axes(
            "embedding",
            nn.initializers.normal(1.0),
            (self.config.vocab_size, self.config.emb_dim),
            jnp.float32,
            axes=("vocab", "embed"),
        )

    def __call__(self, tokens: Int[Array, "b t"]) -> Float[Array, "b t e"]:
        rows = jnp.take(self.embedding, tokens, axis=0, mode="clip")
        return rows.astype(self.config.dtype)

    def attend(self, x: Float[Array, "b t e"]) -> Float[Array, "b t v"]:
        return _float32_product(x, self.embedding.T, jax.lax.dot_general)


class MlpBlock(nn.Module):
    """Feed-forward: the product of each activation's own projection."""

    config: T5Config
    dot_general: DotGeneral

    @nn.compact
    def __call__(self, x, deterministic):
        config = self.config
        dense = functools.partial(
            DenseGeneral, dtype=config.dtype, dot_general=self.dot_general
        )
        gated = len(config.mlp_activations) > 1
        hidden = 1
        for i, activation in enumerate(config.mlp_activations):
            project = dense(
                features=config.mlp_dim,
                kernel_axes=("embed", "mlp"),
                name=f"wi_{i}" if gated else "wi",
            )
            hidden = hidden * _ACTIVATIONS[activation](project(x))
        hidden = _dropout(config)(hidden, deterministic=deterministic)
        out = dense(features=x.shape[-1], kernel_axes=("mlp", "embed"), name="wo")
        return out(hidden)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each after a norm, added to the stream."""

    config: T5Config
    dot_general: DotGeneral

    @nn.compact
    def __call__(self, x, bias, deterministic):
        drop = _dropout(self.config)
        attention = _attention(self.config, self.dot_general, "attention")
        normed = LayerNorm(self.config.dtype, name="pre_attention_layer_norm")(x)
        mixed = attention(normed, *attention.project(normed), bias)
        x = x + drop(mixed, deterministic=deterministic)
        normed = LayerNorm(self.config.dtype, name="pre_mlp_layer_norm")(x)
        mlp = MlpBlock(self.config, self.dot_general, name="mlp")
        return x + drop(mlp(normed, deterministic), deterministic=deterministic)


class DecoderLayer(nn.Module):
    """As in the encoder, with attention to the encoder's output between."""

    config: T5Config
    dot_general: DotGeneral

    def setup(self):
        config = self.config
        self.pre_self_attention_layer_norm = LayerNorm(config.dtype)
        self.self_attention = _attention(config, self.dot_general)
        self.pre_cross_attention_layer_norm = LayerNorm(config.dtype)
        self.encoder_decoder_attention = _attention(config, self.dot_general)
        self.pre_mlp_layer_norm = LayerNorm(config.dtype)
        self.mlp = MlpBlock(config, self.dot_general)
        self.drop = _dropout(config)

    def __call__(
        self, x, bias, cross, cross_bias, own=None, start=None, deterministic=True
    ):
        """One layer over t tokens; with `own`, over the cache that it returns."""
        drop = functools.partial(self.drop, deterministic=deterministic)
        normed = self.pre_self_attention_layer_norm(x)
        key, value = self.self_attention.project(normed)
        if own is not None:
            key = update_rows(own[0], key, start)
            value = update_rows(own[1], value, start)
        x = x + drop(self.self_attention(normed, key, value, bias))
        normed = self.pre_cross_attention_layer_norm(x)
        x = x + drop(self.encoder_decoder_attention(normed, *cross, cross_bias))
        normed = self.pre_mlp_layer_norm(x)
        return x + drop(self.mlp(normed, deterministic)), (key, value)

    def project_cross(self, encoded) -> KeysValues:
        return self.encoder_decoder_attention.project(encoded)


class Encoder(nn.Module):
    """All encoder layers and the final norm."""

    config: T5Config
    dot_general: DotGeneral

    @nn.compact
    def __call__(self, embedded, valid, deterministic):
        config = self.config
        length = embedded.shape[1]
        relative = _relative_positions(config, bidirectional=True, name="relpos_bias")
        bias = relative(positions_apart(length, length))[None] + padding_bias(valid)
        drop = _dropout(config)
        x = drop(embedded, deterministic=deterministic)
        for i in range(config.num_encoder_layers):
            layer = EncoderLayer(config, self.dot_general, name=f"layers_{i}")
            x = layer(x, bias, deterministic)
        x = LayerNorm(config.dtype, name="encoder_norm")(x)
        return drop(x, deterministic=deterministic)


class Decoder(nn.Module):
    """All decoder layers; over whole sequences, or over a cache."""

    config: T5Config
    dot_general: DotGeneral

    def setup(self):
        config = self.config
        self.relpos_bias = _relative_positions(config, bidirectional=False)
        self.layers = [
            DecoderLayer(config, self.dot_general)
            for _ in range(config.num_decoder_layers)
        ]
        self.decoder_norm = LayerNorm(config.dtype)
        self.drop = _dropout(config)
        if not config.logits_via_embedding:
            self.logits_dense = LogitsDense(config, self.dot_general)

    def __call__(self, embedded, encoded, encoder_valid, deterministic):
        """All positions at once, causally masked: training and scoring."""
        length = embedded.shape[1]
        apart = positions_apart(length, length)
        causal = jnp.where(apart <= 0, 0.0, MASKED)
        bias = (self.relpos_bias(apart) + causal)[None]
        cross_bias = padding_bias(encoder_valid)
        x = self.drop(embedded, deterministic=deterministic)
        for layer in self.layers:
            cross = layer.project_cross(encoded)
            x, _ = layer(x, bias, cross, cross_bias, deterministic=deterministic)
        return self.drop(self.decoder_norm(x), deterministic=deterministic)

    def init_cache(self, encoded, encoder_valid, max_length) -> T5Cache:
        config = self.config
        shape = (encoded.shape[0], config.num_heads, max_length, config.head_dim)
        empty = jnp.zeros(shape, config.dtype)
        behind = -positions_apart(1, max_length)[0][::-1]  # length - 1, .., 0 back
        bias = self.relpos_bias(behind)
        ahead = jnp.full((config.num_heads, max_length), MASKED, jnp.float32)
        return T5Cache(
            own=tuple((empty, empty) for _ in self.layers),
            cross=tuple(layer.project_cross(encoded) for layer in self.layers),
            cross_bias=padding_bias(encoder_valid),
            distance_bias=jnp.concatenate([bias, ahead], axis=1),
        )

    def extend(self, embedded, cache: T5Cache, start):
        """t tokens a row at positions start .. start + t - 1."""
        bias = _cached_bias(cache, start, embedded.shape[1])
        x, own = embedded, []
        for i, layer in enumerate(self.layers):
            x, written = layer(
                x, bias, cache.cross[i], cache.cross_bias, cache.own[i], start
            )
            own.append(written)
        return self.decoder_norm(x), cache._replace(own=tuple(own))

    def logits(self, x, embedding: Embedding) -> Float[Array, "b t v"]:
        if self.config.logits_via_embedding:
            return embedding.attend(x) / jnp.sqrt(jnp.float32(self.config.emb_dim))
        return self.logits_dense(x)


class LogitsDense(nn.Module):
    """The untied output matrix; its result is float32."""

    config: T5Config
    dot_general: DotGeneral

    @nn.compact
    def __call__(self, x):
        kernel = param_with_axes(
            "kernel",
            nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal"),
            (self.config.emb_dim, self.config.vocab_size),
            jnp.float32,
            axes=("embed", "vocab"),
        )
        return _float32_product(x, kernel, self.dot_general)


class Transformer(nn.Module):
    """An encoder-decoder T5.

    Attributes:
      config: shape and numerics.
      dot_general: for every product with a weight; see `DenseGeneral`.
    """

    config: T5Config
    dot_general: DotGeneral = jax.lax.dot_general

    def setup(self):
        self.token_embedder = Embedding(self.config)
        self.encoder = Encoder(self.config, self.dot_general)
        self.decoder = Decoder(self.config, self.dot_general)

    def __call__(
        self,
        encoder_input_tokens: Int[Array, "b s"],
        decoder_input_tokens: Int[Array, "b t"],
        deterministic: bool = True,
    ) -> Float[Array, "b t v"]:
        """Logits after each decoder input token; token 0 of the encoder is padding."""
        encoded = self.encode(encoder_input_tokens, deterministic)
        x = self.decoder(
            self.token_embedder(decoder_input_tokens),
            encoded,
            encoder_input_tokens > 0,
            deterministic,
        )
        return self.decoder.logits(x, self.token_embedder)

    def encode(
        self, encoder_input_tokens: Int[Array, "b s"], deterministic: bool = True
    ) -> Float[Array, "b s e"]:
        """The encoder's output; meaningless where the input is padding."""
        embedded = self.token_embedder(encoder_input_tokens)
        return self.encoder(embedded, encoder_input_tokens > 0, deterministic)

    def init_cache(
        self, encoder_input_tokens: Int[Array, "b s"], max_length: int
    ) -> T5Cache:
        """Runs the encoder once and projects its output once, for all steps."""
        encoded = self.encode(encoder_input_tokens)
        return self.decoder.init_cache(encoded, encoder_input_tokens > 0, max_length)

    def extend(
        self, cache: T5Cache, tokens: Int[Array, "b t"], start: Int[Array, "b"]
    ) -> tuple[Float[Array, "b t v"], T5Cache]:
        """Logits after each of t tokens at start .. start + t - 1, and the cache."""
        x, cache = self.decoder.extend(self.token_embedder(tokens), cache, start)
        return self.decoder.logits(x, self.token_embedder), cache


def _cached_bias(cache: T5Cache, start, num_tokens: int):
    """Relative bias and causal mask of t queries over the whole cache."""
    length = cache.own[0][0].shape[2]
    # The last query's row begins furthest to the left; the others follow by one.
    first = length - start - num_tokens
    width = length + num_tokens - 1
    window = slice_rows(cache.distance_bias, first, width)
    shifts = num_tokens - 1 - np.arange(num_tokens)
    if num_tokens > _SLICED_TOKENS:
        return window[:, :, shifts[:, None] + np.arange(length)]
    rows = [window[:, :, shift : shift + length] for shift in shifts]
    return jnp.stack(rows, axis=2)


def _float32_product(x, kernel, dot_general):
    """Logits: operands as they are stored, float32 sums."""
    contract = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(
        x, kernel.astype(x.dtype), contract, preferred_element_type=jnp.float32
    )


def _attention(config, dot_general, name=None):
    return MultiHeadAttention(
        emb_dim=config.emb_dim,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        dtype=config.dtype,
        float32_logits=config.float32_attention_logits,
        dot_general=dot_general,
        name=name,
    )


def _relative_positions(config, *, bidirectional, name=None):
    return RelativePositionBiases(
        num_heads=config.num_heads,
        num_buckets=config.relative_attention_num_buckets,
        max_distance=config.relative_attention_max_distance,
        bidirectional=bidirectional,
        name=name,
    )


def _dropout(config):
    # One draw for all positions of a row, as in t5x.
    return nn.Dropout(config.dropout_rate, broadcast_dims=(-2,))
