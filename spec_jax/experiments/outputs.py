"""Decoding batches in several ways, timed in turns, and comparing the outputs."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.base import Algorithm
from spec_jax.core.draws import gumbel, position_keys
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.loop import Generation, generate
from spec_jax.decoding.sharded import on_every_host
from spec_jax.decoding.stats import Statistics
from spec_jax.experiments.clock import Timing, time_call, time_in_turns
from spec_jax.experiments.inputs import InputBatch
from spec_jax.experiments.record import Difference
from spec_jax.pairs import START_ID

Way = Callable[[InputBatch], Any]
"""Decodes a batch."""


@dataclasses.dataclass
class Decoded:
    """What one way of decoding gave for every example, and how long it took.

    Attributes:
      tokens: new tokens by the example's index.
      stats: of each batch, rows of padding left out.
      seconds: of each batch, one for each repeat; empty where it was not timed.
    """

    tokens: dict[int, np.ndarray] = dataclasses.field(default_factory=dict)
    stats: list[Statistics] = dataclasses.field(default_factory=list)
    seconds: list[tuple[float, ...]] = dataclasses.field(default_factory=list)

    def add(
        self,
        batch: InputBatch,
        generation: Generation,
        seconds: tuple[float, ...] | None = None,
    ) -> None:
        """Keeps a batch's outputs without its padding."""
        rows = len(batch.members)
        tokens, lengths = np.asarray(generation.tokens), np.asarray(generation.lengths)
        for row, member in enumerate(batch.members):
            self.tokens[member.index] = tokens[row, : lengths[row]]
        kept = jax.tree.map(lambda x: np.asarray(x)[:rows], generation.stats)
        self.stats.append(kept)
        if seconds is not None:
            self.seconds.append(seconds)

    @property
    def total(self) -> Statistics:
        """The statistics of all rows."""
        return jax.tree.map(lambda *x: np.concatenate(x), *self.stats)

    @property
    def num_tokens(self) -> int:
        """New tokens of all rows, EOS counted."""
        return sum(len(tokens) for tokens in self.tokens.values())

    @property
    def tokens_per_second(self) -> float:
        """New tokens over the sum of the batches' median times."""
        return self.num_tokens / sum(map(statistics.median, self.seconds))

    @property
    def unsteadiness(self) -> float:
        """The time of all batches in the slowest repeat over the fastest."""
        by_repeat = [sum(repeat) for repeat in zip(*self.seconds, strict=True)]
        return max(by_repeat) / min(by_repeat)


def decode(algorithm: Algorithm, params: Any, batch: InputBatch) -> Generation:
    """Decodes a batch, the rows of padding not at all."""
    return generate(
        algorithm,
        params,
        batch.inputs,
        batch.prompt,
        batch.keys,
        max_new_tokens=batch.limits,
        max_length=batch.prompt.shape[1] + batch.max_new_tokens,
    )


class Turns:
    """Ways of decoding a batch, timed in turn; calls that compile are timed apart.

    Args:
      ways: what decodes a batch, by name.
      repeats: timed calls of each batch and way.
    """

    def __init__(self, ways: Mapping[str, Way], repeats: int):
        self._ways, self._repeats = dict(ways), repeats
        self._compiled: set[int] = set()

    def is_new(self, batch: InputBatch) -> bool:
        """Whether the batch's shape is still to be compiled."""
        return batch.inputs.shape[1] not in self._compiled

    def time(self, batch: InputBatch) -> tuple[dict[str, Timing], float]:
        """Decodes a batch in every way.

        Returns:
          Results and times by way, and the seconds of the calls that compiled: the
          first of each way and shape, which decode the batch as well.
        """
        calls = {
            name: functools.partial(way, batch) for name, way in self._ways.items()
        }
        compiling = 0.0
        if self.is_new(batch):
            compiling = sum(time_call(call)[0] for call in calls.values())
            self._compiled.add(batch.inputs.shape[1])
        return time_in_turns(calls, self._repeats), compiling


def decode_in_turns(
    ways: Mapping[str, tuple[Algorithm, Any]],
    batches: Sequence[InputBatch],
    repeats: int,
) -> tuple[dict[str, Decoded], float]:
    """Decodes every batch in several ways, timed in turn.

    Args:
      ways: an algorithm and its parameters by name.
      batches: of any shapes.
      repeats: timed calls of each batch.

    Returns:
      What each way gave, and the seconds of the calls that compiled.
    """
    decoded = {name: Decoded() for name in ways}
    turns = Turns(
        {name: functools.partial(decode, *way) for name, way in ways.items()}, repeats
    )
    compiling = 0.0
    for batch in batches:
        timings, compiled = turns.time(batch)
        compiling += compiled
        for name, timing in timings.items():
            decoded[name].add(batch, timing.result, timing.seconds)
    return decoded, compiling


def decode_all(
    algorithm: Algorithm, params: Any, batches: Iterable[InputBatch]
) -> Decoded:
    """Decodes every batch once, untimed."""
    decoded = Decoded()
    for batch in batches:
        decoded.add(batch, decode(algorithm, params, batch))
    return decoded


def share_identical(one: Decoded, other: Decoded) -> float:
    """The share of examples with equal tokens."""
    equal = [np.array_equal(one.tokens[i], other.tokens[i]) for i in one.tokens]
    return sum(equal) / len(equal)


def find_differences(
    algorithm: Autoregressive,
    params: Any,
    batch: InputBatch,
    plain: Sequence[np.ndarray],
    speculative: Sequence[np.ndarray],
) -> dict[int, Difference]:
    """Where rows first differ, and how near the target's choice was there.

    Args:
      algorithm: plain decoding, greedy or with Gumbel noise.
      params: its parameters; the target is run on the plain output.
      batch: the examples.
      plain: its outputs, row by row.
      speculative: outputs that should be the same.

    Returns:
      By index, one entry for each example whose outputs differ.
    """
    found = {}
    for row, member in enumerate(batch.members):
        ours, theirs = plain[row], speculative[row]
        if np.array_equal(ours, theirs):
            continue
        shared = min(len(ours), len(theirs))
        unequal = np.flatnonzero(ours[:shared] != theirs[:shared])
        position = int(unequal[0]) if len(unequal) else shared
        before = jnp.asarray(np.concatenate([[START_ID], ours[:position]]))[None]
        gap = _top_gap(
            algorithm,
            params,
            batch.inputs[row : row + 1],
            before,
            batch.keys[row : row + 1],
        )
        tokens = (
            int(tokens[position]) if position < len(tokens) else None
            for tokens in (ours, theirs)
        )
        found[member.index] = Difference(member.index, position, *tokens, gap=gap)
    return found


def _top_gap(algorithm: Autoregressive, params, inputs, before, key) -> float:
    """Between the two largest logits that the policy may choose from.

    With noise it is that of log-probabilities with the position's noise added.
    """
    model, params, policy = algorithm.target, params["target"], algorithm.policy
    length = before.shape[1]
    cache = model.init_cache(params, inputs, 1, length)
    logits, _ = model.extend(params, cache, before, jnp.zeros((1,), jnp.int32))
    scores = logits[0, -1].astype(jnp.float32)[: policy.vocab_limit]
    if not policy.is_greedy():
        keys = position_keys(key, jnp.array([length]))
        scores = jnp.log(policy.probs(scores)) + gumbel(keys, scores.shape[0])[0]
    top = np.sort(np.asarray(on_every_host(scores)))[-2:]
    return float(np.nan_to_num(top[1] - top[0]))  # JSON has no infinity
