"""What a run keeps in memory, from shapes alone: nothing is loaded or computed."""

import dataclasses
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.base import Params
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import ModelDraft
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer
from spec_jax.models.t5.network import T5Cache
from spec_jax.pairs import START_ID, Pair
from spec_jax.training.loop import LoopSettings, initial_state, make_optimizer

GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Arrays:
    """Arrays of one shape, as the layers of a network have them.

    Attributes:
      name: the place in a tree; `layers_*` are all layers, braces hold siblings.
      shape: of each.
      dtype: of each.
      count: how many there are.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    count: int = 1

    @property
    def size(self) -> int:
        """Numbers in all of them."""
        return self.count * int(np.prod(self.shape, dtype=np.int64))

    @property
    def bytes(self) -> int:
        """Of all of them."""
        return self.size * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Holding:
    """Something that a run keeps.

    Attributes:
      name: what it is.
      arrays: of which it consists.
    """

    name: str
    arrays: tuple[Arrays, ...]

    @property
    def dtype(self) -> str:
        """Of its arrays; '' where they differ."""
        names = {one.dtype.name for one in self.arrays}
        return names.pop() if len(names) == 1 else ""

    @property
    def size(self) -> int:
        """Numbers in all arrays."""
        return sum(one.size for one in self.arrays)

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return sum(one.bytes for one in self.arrays)


def tree_arrays(tree: Any) -> tuple[Arrays, ...]:
    """The arrays of a tree; those of all layers, and siblings alike, are together.

    Args:
      tree: of arrays or jax.ShapeDtypeStruct, in dicts.

    Example:
      >>> kernel = jax.ShapeDtypeStruct((8, 4), jnp.float32)
      >>> layer = {"key": {"kernel": kernel}, "value": {"kernel": kernel}}
      >>> (both,) = tree_arrays({"layers_0": layer, "layers_1": layer})
      >>> both.name, both.count, both.bytes
      ('layers_*/{key,value}/kernel', 4, 512)
    """
    alike: dict[tuple, list[str]] = defaultdict(list)
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        place = jax.tree_util.keystr(path, simple=True, separator="/")
        place = re.sub(r"\blayers_\d+\b", "layers_*", place)
        *parents, sibling, last = ["", *place.split("/")]
        parent = "/".join(filter(None, parents))
        alike[parent, last, leaf.shape, np.dtype(leaf.dtype)].append(sibling)
    found = []
    for (parent, last, shape, dtype), siblings in alike.items():
        name = "/".join(filter(None, (parent, _braced(siblings), last)))
        found.append(Arrays(name, shape, dtype, len(siblings)))
    return tuple(found)


def _braced(names: Sequence[str]) -> str:
    """Names as one: what differs stands between braces."""
    different = list(dict.fromkeys(names))
    if len(different) == 1:
        return different[0]
    begin = _common(different)
    rest = [name.removeprefix(begin) for name in different]
    end = _common([name[::-1] for name in rest])[::-1]
    middles = ",".join(name.removesuffix(end) for name in rest)
    return f"{begin}{{{middles}}}{end}"


def _common(names: Sequence[str]) -> str:
    """What all names begin with."""
    columns = itertools.takewhile(lambda column: len({*column}) == 1, zip(*names))
    return "".join(column[0] for column in columns)


def parameters(name: str, params: Params, dtype: Any = None) -> Holding:
    """A model's parameters.

    Args:
      name: whose.
      params: a tree of shapes.
      dtype: in which they are held; None: their own.
    """
    arrays = tree_arrays(params)
    if dtype is not None:
        held = np.dtype(dtype)
        arrays = tuple(dataclasses.replace(one, dtype=held) for one in arrays)
    return Holding(name, arrays)


def decoding(
    pair: Pair,
    dtype: Any,
    *,
    batch: int,
    input_length: int,
    max_new_tokens: int,
    gamma: int,
) -> Holding:
    """What speculative decoding carries from step to step, and what a step judges by.

    Args:
      pair: its parameters may be shapes.
      dtype: of activations, and so of caches.
      batch: b, rows.
      input_length: s, encoder tokens.
      max_new_tokens: of an output.
      gamma: g, drafted tokens of a step.

    Returns:
      The caches of both models, the tokens and all else in the state, and a step's
      logits and probabilities above temperature 0.
    """
    target, draft = (
        T5Decoder(dataclasses.replace(model.config, dtype=dtype))
        for model in (pair.target, pair.draft)
    )
    policy = SamplingPolicy()
    algorithm = Speculative(target, ModelDraft(draft, policy, gamma), policy)

    def begin(params, inputs):
        prompt = jnp.full((batch, 1), START_ID, jnp.int32)
        one = jnp.ones((batch,), jnp.int32)
        key, length = jax.random.key(0), 1 + max_new_tokens
        return algorithm.init(params, inputs, prompt, one, key, one, length)

    inputs = jax.ShapeDtypeStruct((batch, input_length), jnp.int32)
    state = jax.eval_shape(begin, pair.params, inputs)
    vocabulary = target.vocab_size
    rows = {
        "target logits": gamma + 1,
        "target probabilities": gamma + 1,
        "draft probabilities": gamma,
    }
    return Holding(
        f"batch {batch}, {input_length} input tokens, {max_new_tokens} new tokens, "
        f"gamma {gamma}",
        (
            *_cache("target", state.target_cache),
            *_cache("draft", state.draft_state.cache),
            *_alike("encoder tokens", inputs),
            *_alike("tokens", state.tokens),
            *(
                Arrays(name, (batch, n, vocabulary), np.dtype("float32"))
                for name, n in rows.items()
            ),
        ),
    )


def training(
    config: T5Config, settings: LoopSettings
) -> tuple[Holding, Holding, Holding]:
    """Parameters, their gradient and the optimizer's state, all float32."""
    network, optimizer = Transformer(config), make_optimizer(settings)
    state = jax.eval_shape(lambda: initial_state(network, optimizer, settings.seed))
    arrays = tree_arrays(state.params)
    return (
        Holding("parameters", arrays),
        Holding("gradient", arrays),
        Holding("optimizer state", _alike("moments and counts", state.opt_state)),
    )


def training_batch(rows: int, inputs: int, targets: int) -> Holding:
    """A batch of training.

    Args:
      rows: of the batch.
      inputs: encoder tokens of a row.
      targets: decoder tokens of a row.
    """
    int32, float32 = np.dtype("int32"), np.dtype("float32")
    return Holding(
        f"batch {rows}, {inputs} input tokens, {targets} target tokens",
        (
            Arrays("encoder_input_tokens", (rows, inputs), int32),
            Arrays("decoder_{input,target}_tokens", (rows, targets), int32, 2),
            Arrays("decoder_loss_weights", (rows, targets), float32),
        ),
    )


def _cache(role: str, cache: T5Cache) -> tuple[Arrays, ...]:
    """A model's cache by its parts."""
    return (
        *_alike(f"{role} self-attention cache", cache.own),
        *_alike(f"{role} cross-attention cache", cache.cross),
        *_alike(f"{role} masks and biases", (cache.cross_bias, cache.distance_bias)),
    )


def _alike(name: str, tree: Any) -> tuple[Arrays, ...]:
    """A tree's arrays by shape, under one name."""
    counts = Counter((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))
    return tuple(
        Arrays(name, shape, np.dtype(dtype), count)
        for (shape, dtype), count in counts.items()
    )
