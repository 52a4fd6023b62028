"""A decoder over google-deepmind's gemma: its cache, its positions from the loop.

Needs an environment of its own: pip install gemma (over a hundred packages).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gemma import gm

from spec_jax import (
    Autoregressive,
    ModelDraft,
    SamplingPolicy,
    Speculative,
    generate,
)
from spec_jax.testing.contract import check_decoder


@dataclasses.dataclass(frozen=True)
class GemmaDecoder:
    """Any `gm.nn` transformer (Gemma 2 and 3), text only.

    Gemma's cache has an `end_index`, one for all rows, that only goes forward. Here
    it is no part of the cache: each call sets it to the row's own `start`, with rows
    as batches of one under `vmap`. The cache holds every position also where
    attention slides, so what a rejected token wrote is written over.
    """

    model: gm.nn.Transformer
    max_length: int | None = None

    @property
    def vocab_size(self):
        return self.model.config.num_embed

    def init_cache(self, params, inputs, batch, max_length):
        dtype = params["embedder"]["input_embedding"].dtype
        cache = self.model.config.init_cache(batch, dtype, cache_length=max_length)
        kept = ("k", "v", "positions")
        return {
            layer: {name: arrays[name][:, None] for name in kept}
            for layer, arrays in cache.items()
        }

    def extend(self, params, cache, tokens, start):
        def one_row(cache, tokens, start):
            position = start + jnp.arange(tokens.shape[0])
            size = cache["layer_0"]["positions"].shape[1]
            out = self.model.apply(
                {"params": params},
                tokens[None],
                positions=position[None],
                attention_mask=(jnp.arange(size) <= position[:, None])[None],
                cache={
                    layer: arrays | {"end_index": start[None]}
                    for layer, arrays in cache.items()
                },
            )
            after = {
                layer: {name: out.cache[layer][name] for name in arrays}
                for layer, arrays in cache.items()
            }
            return out.logits[0].astype(jnp.float32), after

        return jax.vmap(one_row)(cache, tokens, start)


def tiny_gemma(num_layers: int) -> gm.nn.Transformer:
    """A small random Gemma 3: layers that slide over 4 positions, and global ones."""
    local, whole = gm.nn.AttentionType.LOCAL_SLIDING, gm.nn.AttentionType.GLOBAL
    config = gm.nn.config.TransformerConfig(
        num_embed=64,
        embed_dim=32,
        hidden_dim=64,
        num_heads=4,
        head_dim=8,
        num_kv_heads=2,
        final_logit_softcap=None,
        use_post_attn_norm=True,
        use_post_ffw_norm=True,
        use_qk_norm=True,
        attention_types=(local, whole)[:num_layers],
        sliding_window_size=4,
    )
    return gm.nn.Transformer(config=config, dtype=jnp.float32, tokens="tokens")


def tiny_pair(temperature: float = 0.0):
    """A Speculative over two layers and a draft of the first of them, with params."""
    target, draft = GemmaDecoder(tiny_gemma(2)), GemmaDecoder(tiny_gemma(1))
    tokens = jnp.ones((1, 4), jnp.int32)
    params = target.model.init(jax.random.key(0), tokens)["params"]
    params = jax.tree.map(lambda x: 4 * x, params)
    first = {name: params[name] for name in ("embedder", "layer_0", "final_norm")}
    policy = SamplingPolicy(temperature=temperature)
    algorithm = Speculative(
        target, ModelDraft(draft, policy, gamma=3), policy, eos_id=None
    )
    return algorithm, {"target": params, "draft": first}


def main():
    """The contract, then greedy decoding both ways."""
    algorithm, params = tiny_pair()
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 64, (3, 12))
    check_decoder(algorithm.target, params["target"], None, tokens)
    print("the contract holds: calls of several tokens, rows apart, rollback")

    plain = Autoregressive(algorithm.target, algorithm.policy, eos_id=None)
    arguments = {
        "prompt": tokens[:, :5],
        "prompt_length": np.array([5, 2, 3]),
        "key": jax.random.key(1),
        "max_new_tokens": 24,
    }
    out = generate(algorithm, params, None, **arguments)
    same = generate(plain, params, None, **arguments).tokens == out.tokens
    print("greedy tokens as in plain decoding:", bool(same.all()))
    print(f"tokens per target run: {out.stats.tokens_per_target_run:.2f}")


if __name__ == "__main__":
    main()
