"""An equinox language model as a decoder: learned positions, one row under vmap."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp

from spec_jax import ModelDraft, SamplingPolicy, Speculative, generate


class Model(eqx.Module):
    """Layers of attention with four heads and a feed-forward, over one row."""

    embed: eqx.nn.Embedding
    position: eqx.nn.Embedding
    layers: tuple[tuple[eqx.Module, ...], ...]  # tuples: lists could not be hashed
    head: eqx.nn.Linear

    def __init__(self, vocab_size, max_length, width, num_layers, key):
        keys = iter(jax.random.split(key, 3 + 3 * num_layers))
        self.embed = eqx.nn.Embedding(vocab_size, width, key=next(keys))
        self.position = eqx.nn.Embedding(max_length, width, key=next(keys))
        self.head = eqx.nn.Linear(width, vocab_size, key=next(keys))

        def layer():
            qkv = eqx.nn.Linear(width, 3 * width, key=next(keys))
            out = eqx.nn.Linear(width, width, key=next(keys))
            return qkv, out, eqx.nn.MLP(width, width, 2 * width, 1, key=next(keys))

        self.layers = tuple(layer() for _ in range(num_layers))

    def __call__(self, tokens, cache, start):
        position, after = start + jnp.arange(len(tokens)), []
        seen = jnp.arange(len(cache[0])) <= position[:, None]
        x = jax.vmap(self.embed)(tokens) + jax.vmap(self.position)(position)
        for (qkv, out, mlp), kv in zip(self.layers, cache):
            new = jax.vmap(qkv)(x).reshape(len(x), 3, 4, -1)
            kv = jax.lax.dynamic_update_slice(kv, new[:, 1:], (start, 0, 0, 0))
            heads = new[:, 0], kv[:, 0], kv[:, 1]
            mixed = jax.nn.dot_product_attention(*heads, mask=seen[None])
            x = x + jax.vmap(out)(mixed.reshape(x.shape))
            x = x + jax.vmap(mlp)(x)
            after.append(kv)
        return jax.vmap(self.head)(x), after


@dataclasses.dataclass(frozen=True)
class EquinoxDecoder:
    """Static is what eqx.partition leaves; the arrays beside it are the params."""

    static: Model
    vocab_size: int
    max_length: int

    def init_cache(self, params, inputs, batch, max_length):
        shape = (batch, max_length, 2, 4, params.embed.embedding_size // 4)
        return [jnp.zeros(shape) for _ in params.layers]

    def extend(self, params, cache, tokens, start):
        return jax.vmap(eqx.combine(params, self.static))(tokens, cache, start)


def speculative(temperature=0.0, vocab_size=16, max_length=32):
    """Random weights; the draft is the same model, its weights rounded to 8 bits."""
    model = Model(vocab_size, max_length, 32, 2, jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_array)
    rounded = jax.tree.map(lambda x: x.astype(jnp.float8_e5m2).astype(x.dtype), params)
    policy = SamplingPolicy(temperature=temperature)
    model = EquinoxDecoder(static, vocab_size, max_length)
    algorithm = Speculative(model, ModelDraft(model, policy, 3), policy, eos_id=None)
    return algorithm, {"target": params, "draft": rounded}


if __name__ == "__main__":
    prompt, key = jnp.array([[1, 2, 3], [4, 5, 6]]), jax.random.key(0)
    out = generate(*speculative(), None, prompt, key, max_new_tokens=20)
    print(out.tokens, f"\ntokens per target run: {out.stats.tokens_per_target_run:.2f}")
