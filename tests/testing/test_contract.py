"""The contract check lets right decoders pass and sees every planted fault."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.models.padded_prefix import PaddedPrefixDecoder
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer
from spec_jax.testing.contract import check_decoder
from spec_jax.testing.tables import TableDecoder

V, E, LIMIT = 11, 8, 16
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, V, (3, 6))
KEYS = dict(zip("embed position query key value out side".split(), range(7)))
SHAPES = {"embed": (V, E), "position": (LIMIT, E), "out": (E, V)}
PARAMS = {
    name: 0.5 * jax.random.normal(jax.random.key(i), SHAPES.get(name, (E, E)))
    for name, i in KEYS.items()
}
INPUTS = jax.random.normal(jax.random.key(9), (3, E))


@dataclasses.dataclass(frozen=True)
class AttentionDecoder:
    """One attention layer over learned positions, right unless a fault is named.

    `inputs` [b, e] are added to every embedding.
    """

    fault: str = ""
    vocab_size: int = V
    max_length: int | None = LIMIT

    def init_cache(self, params, inputs, batch, max_length):
        if self.fault == "no room past the limit" and max_length > LIMIT:
            raise ValueError("too long")
        empty = jnp.zeros((batch, max_length, E))
        side = inputs @ params["side"]
        if self.fault == "inputs of other rows":
            side = jnp.flip(side, 0)
        cache = {"key": empty, "value": empty, "side": side}
        if self.fault == "index inside the cache":
            cache["index"] = jnp.zeros((), jnp.int32)
        return cache

    def extend(self, params, cache, tokens, start):
        fault, width = self.fault, tokens.shape[1]
        if fault == "position as a Python number":
            start = start + int(start[0])
        if fault == "params from around":
            params = PARAMS
        if fault == "index inside the cache":
            start = jnp.full_like(start, cache["index"])
        if fault == "one start for all rows":
            start = jnp.full_like(start, start[0])
        position = start[:, None] + jnp.arange(width)
        embed_at = position
        if fault == "position off by one in calls of several tokens":
            embed_at = position + (width > 1)
        if fault == "position of the call, not of the row":
            embed_at = jnp.arange(width) + 0 * position

        mode = "fill" if fault == "NaN past the limit" else "clip"
        x = params["embed"][tokens] + cache["side"][:, None]
        x = x + params["position"].at[embed_at].get(mode=mode)
        if fault == "tokens of other rows":
            x = x + 0.1 * jnp.roll(x, 1, 0)

        cache = dict(cache)
        slot = jnp.arange(cache["key"].shape[1])
        here = slot[:, None] == position[:, None]
        if fault == "last token of a long call not written" and width > 1:
            here = here.at[..., -1].set(False)
        for name in ("key", "value"):
            new = jnp.einsum("blt,bte->ble", here.astype(x.dtype), x @ params[name])
            old = cache[name]
            if fault == "a second write adds":
                cache[name] = old + new
            elif fault == "a second write is dropped":
                written = (old != 0).any(-1, keepdims=True)
                cache[name] = jnp.where(here.any(-1)[..., None] & ~written, new, old)
            else:
                cache[name] = jnp.where(here.any(-1)[..., None], new, old)

        seen = slot <= position[..., None]
        if fault == "no causal mask":
            seen = slot < (start + width)[:, None, None]
        if fault == "stale slots":
            seen |= slot >= (start + width)[:, None, None]
        if fault == "the last slot":
            seen |= slot == len(slot) - 1
        if fault == "mask of the longest row":
            seen = slot <= position.max(0)[:, None]
        scores = jnp.einsum("bte,ble->btl", x @ params["query"], cache["key"])
        if fault == "mask too weak":
            scores = scores - 30.0 * ~seen
        else:
            scores = jnp.where(seen, scores, -jnp.inf)
        if fault == "room in the cache":
            scores = scores / len(slot)
        mixed = jax.nn.softmax(scores) @ cache["value"]
        logits = (x + mixed) @ params["out"]
        if fault == "index inside the cache":
            cache["index"] += width
        if fault == "the last token's logits":
            logits = logits[:, -1:]
        if fault == "whole numbers":
            logits = logits.astype(jnp.int32)
        if fault == "a cache of another type":
            cache["value"] = cache["value"].astype(jnp.bfloat16)
        if fault == "a cache of another structure":
            cache["length"] = start
        return logits, cache


def check(decoder, inputs=INPUTS, tokens=TOKENS, params=PARAMS, tolerance=1e-4):
    check_decoder(decoder, params, inputs, tokens, tolerance=tolerance)


def test_an_attention_decoder_passes():
    check(AttentionDecoder())


FAULTS = {
    "no causal mask": "any split",
    "position off by one in calls of several tokens": "any split",
    "position of the call, not of the row": "any split",
    "last token of a long call not written": "any split",
    "room in the cache": "room to spare",
    "stale slots": "any split",
    "the last slot": "any split",
    "a second write adds": "rollback",
    "a second write is dropped": "rollback",
    "index inside the cache": r"rollback.*\['index'\].*is it an index",
    "one start for all rows": "different starts",
    "mask of the longest row": "different starts",
    "mask too weak": "never read",
    "tokens of other rows": "rows do not influence",
    "inputs of other rows": "rows in another order",
    "NaN past the limit": "past max_length = 16.*before it",
    "no room past the limit": "past max_length = 16.*ValueError: too long",
    "params from around": "parameters are arguments",
    "position as a Python number": "traced by jax.jit.*Concretization",
    "the last token's logits": r"logits have the shape.*\[3, 1, 11\]",
    "whole numbers": "logits are floating: got int32",
    "a cache of another type": r"\['value'\] was float32.*became bfloat16",
    "a cache of another structure": "structure",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen_and_named(fault):
    with pytest.raises(AssertionError, match=f"(?s){FAULTS[fault]}"):
        check(AttentionDecoder(fault))


@pytest.mark.parametrize("max_length", [None, 9])
def test_a_table_passes_to_the_last_bit(max_length):
    table = jax.random.normal(jax.random.key(0), (V, V, V))
    check(TableDecoder(V, max_length), None, params=table, tolerance=0.0)


class Staircase(TableDecoder):
    """Reads the slots ahead of a call: what an earlier one left behind."""

    def extend(self, params, cache, tokens, start):
        logits, cache = super().extend(params, cache, tokens, start)
        ahead = jnp.arange(cache.shape[1]) >= (start + tokens.shape[1])[:, None]
        stale = jnp.nansum(jnp.where(ahead, cache, 0), 1)
        return logits + stale[:, None, None], cache


def test_stale_slots_are_seen_where_empty_ones_are_harmless():
    table = jax.random.normal(jax.random.key(0), (V, V, V))
    with pytest.raises(AssertionError, match="rollback leaves no trace"):
        check(Staircase(V), None, params=table)


class Peephole(TableDecoder):
    """Reads the last slot, as long as nothing can have been written there."""

    def extend(self, params, cache, tokens, start):
        logits, cache = super().extend(params, cache, tokens, start)
        ahead = start + tokens.shape[1] < cache.shape[1]
        last = jnp.where(ahead, jnp.nan_to_num(cache[:, -1]), 0)
        return logits + last[:, None, None], cache


def test_slots_that_nothing_wrote_are_poisoned():
    table = jax.random.normal(jax.random.key(0), (V, V, V))
    with pytest.raises(AssertionError, match="never read"):
        check(Peephole(V), None, params=table)


class Bigram:
    """The README's decoder: no memory at all."""

    vocab_size, max_length = V, None

    def init_cache(self, params, inputs, batch, max_length):
        return ()

    def extend(self, params, cache, tokens, start):
        return params[tokens], cache


def test_a_decoder_without_memory_passes():
    check(Bigram(), None, params=jax.random.normal(jax.random.key(0), (V, V)))


def test_t5_passes():
    config = T5Config(
        vocab_size=61,
        emb_dim=16,
        num_heads=2,
        head_dim=8,
        mlp_dim=32,
        num_encoder_layers=1,
        num_decoder_layers=1,
    )
    inputs = jnp.array(RNG.integers(2, 61, (2, 5))).at[1, 3:].set(0)
    tokens = jnp.array(RNG.integers(2, 61, (2, 6)))
    params = Transformer(config).init(jax.random.key(1), inputs, tokens)["params"]
    params = jax.tree.map(lambda x: 1.5 * x, params)
    check(T5Decoder(config), inputs, tokens, params)


def causal_logits(params, tokens, inputs):
    x = params["embed"][tokens] + (inputs @ params["side"])[:, None]
    return jnp.cumsum(x, axis=1) @ params["out"]


def bidirectional_logits(params, tokens, inputs):
    x = params["embed"][tokens] + (inputs @ params["side"])[:, None]
    return (x + x.mean(1, keepdims=True)) @ params["out"]


@pytest.mark.parametrize("max_length", [None, 9])
def test_a_function_over_prefixes_passes(max_length):
    check(PaddedPrefixDecoder(causal_logits, V, max_length))


def test_a_function_that_is_not_causal_is_seen():
    with pytest.raises(AssertionError, match="any split"):
        check(PaddedPrefixDecoder(bidirectional_logits, V))


def test_a_decoder_that_cannot_be_hashed_is_seen():
    class Mutable(Bigram):
        def __eq__(self, other):
            return True

    with pytest.raises(AssertionError, match="hashable"):
        check(Mutable())


def test_a_decoder_that_lacks_a_part_is_seen():
    class Headless(Bigram):
        vocab_size = property()

    with pytest.raises(AssertionError, match="has vocab_size"):
        check(Headless())


def test_a_limit_too_long_to_compute_is_still_traced():
    check(TableDecoder(V, 10**6), None, params=jnp.ones((V, V, V)).at[0].set(2))

    class Strict(TableDecoder):
        def init_cache(self, params, inputs, batch, max_length):
            if max_length > self.max_length:
                raise ValueError("too long")
            return super().init_cache(params, inputs, batch, max_length)

    with pytest.raises(AssertionError, match="past max_length = 1000000"):
        check(Strict(V, 10**6), None, params=jnp.ones((V, V, V)).at[0].set(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": TOKENS[:1]}, "b >= 2 rows"),
        ({"tokens": TOKENS[:, :3]}, "t >= 4"),
        ({"tokens": np.ones((3, 6), int)}, "rows that differ"),
        ({"tolerance": -1.0}, "tolerance >= 0"),
        ({"tolerance": 1e3}, "larger random weights"),
    ],
    ids=["one row", "three tokens", "equal rows", "negative", "blind"],
)
def test_what_cannot_show_a_fault_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        check(AttentionDecoder(), **change)
