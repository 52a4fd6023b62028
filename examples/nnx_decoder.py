"""A flax.nnx language model as a decoder: rotary positions, a cache of pairs."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from spec_jax import ModelDraft, SamplingPolicy, Speculative, generate


def _rotated(x, position):
    half = x.shape[-1] // 2
    angle = position[..., None, None] / 10_000 ** (jnp.arange(half) / half)
    a, b, sin, cos = x[..., :half], x[..., half:], jnp.sin(angle), jnp.cos(angle)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


class Model(nnx.Module):
    """Layers of attention with four heads and a feed-forward."""

    def __init__(self, vocab_size, width, layers, rngs):
        def linears(*shape):
            return nnx.List([nnx.Linear(*shape, rngs=rngs) for _ in range(layers)])

        self.embed = nnx.Embed(vocab_size, width, rngs=rngs)
        self.qkv, self.out = linears(width, 3 * width), linears(width, width)
        self.up, self.down = linears(width, 2 * width), linears(2 * width, width)
        self.head = nnx.Linear(width, vocab_size, rngs=rngs)

    def __call__(self, tokens, cache, start):
        position = start[:, None] + jnp.arange(tokens.shape[1])
        slot = jnp.arange(len(tokens))[:, None], position  # each row at its own place
        seen = jnp.arange(cache[0][0].shape[1]) <= position[..., None]
        x, after = self.embed(tokens), []
        layers = zip(self.qkv, self.out, self.up, self.down, cache)
        for qkv, out, up, down, (keys, values) in layers:
            q, k, v = jnp.split(qkv(x).reshape(*tokens.shape, 12, -1), 3, axis=2)
            q, k = _rotated(q, position), _rotated(k, position)
            pair = keys.at[slot].set(k), values.at[slot].set(v)
            mixed = jax.nn.dot_product_attention(q, *pair, mask=seen[:, None])
            x = x + out(mixed.reshape(x.shape))
            x = x + down(nnx.gelu(up(x)))
            after.append(pair)
        return self.head(x), after


@dataclasses.dataclass(frozen=True)
class NNXDecoder:
    """Static is the graph of nnx.split; the state beside it is the params."""

    graph: nnx.GraphDef
    vocab_size: int
    max_length: int | None = None

    def init_cache(self, params, inputs, batch, max_length):
        model = nnx.merge(self.graph, params)
        empty = jnp.zeros((batch, max_length, 4, model.embed.features // 4))
        return [(empty, empty) for _ in model.qkv]

    def extend(self, params, cache, tokens, start):
        return nnx.merge(self.graph, params)(tokens, cache, start)


def speculative(temperature=0.0, vocab_size=16):
    """Random weights; the draft is the same model, its weights rounded to 8 bits."""
    graph, params = nnx.split(Model(vocab_size, 32, 2, nnx.Rngs(0)))
    rounded = jax.tree.map(lambda x: x.astype(jnp.float8_e5m2).astype(x.dtype), params)
    policy = SamplingPolicy(temperature=temperature)
    model = NNXDecoder(graph, vocab_size)
    algorithm = Speculative(model, ModelDraft(model, policy, 3), policy, eos_id=None)
    return algorithm, {"target": params, "draft": rounded}


if __name__ == "__main__":
    prompt, key = jnp.array([[1, 2, 3], [4, 5, 6]]), jax.random.key(0)
    out = generate(*speculative(), None, prompt, key, max_new_tokens=20)
    print(out.tokens, f"\ntokens per target run: {out.stats.tokens_per_target_run:.2f}")
