"""Examples of a task as batches of few shapes, whose rows do not know each other."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from spec_jax.data.batches import pad, round_up
from spec_jax.data.datasets import TaskData, TaskExample
from spec_jax.data.examples import truncate
from spec_jax.data.vocabulary import EOS_ID
from spec_jax.pairs import START_ID


@dataclasses.dataclass(frozen=True)
class Input:
    """One example: its index in the task, and its encoder tokens."""

    index: int
    tokens: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class InputBatch:
    """Examples of one compiled shape; rows past `members` are padding.

    Attributes:
      members: the examples of the leading rows.
      inputs: encoder tokens.
      prompt: the decoder's start token.
      keys: of the rows, each from its example's index alone.
      limits: the most new tokens; 0 for a row of padding, which never runs.
      max_new_tokens: the most of any row.
    """

    members: tuple[Input, ...]
    inputs: Int[Array, "b s"]
    prompt: Int[Array, "b 1"]
    keys: Key[Array, "b"]
    limits: Int[np.ndarray, "b"]
    max_new_tokens: int

    @property
    def padding(self) -> int:
        """Rows that are no example."""
        return len(self.limits) - len(self.members)


def cut_inputs(
    examples: Iterable[TaskExample], longest: int
) -> tuple[list[Input], int]:
    """What the encoder reads of each example, and how many of them were cut.

    Args:
      examples: of a task.
      longest: encoder tokens; a cut input still ends with the end of sequence.
    """
    inputs, cut = [], 0
    for example in examples:
        tokens = tuple(truncate(example.inputs, longest))
        cut += len(tokens) < len(example.inputs)
        inputs.append(Input(example.index, tokens))
    return inputs, cut


def shapes_up_to(lengths: Sequence[int], longest: int) -> tuple[int, ...]:
    """Padded lengths of inputs: those below the longest, and the longest itself."""
    return (*sorted(length for length in lengths if length < longest), longest)


def make_batches(
    examples: Sequence[Input],
    *,
    batch: int,
    input_lengths: Sequence[int],
    max_new_tokens: int,
    seed: int,
) -> list[InputBatch]:
    """Batches whose rows share a compiled shape, short inputs first.

    Args:
      examples: in any order.
      batch: rows of each.
      input_lengths: encoder tokens that a shape holds.
      max_new_tokens: of each example.
      seed: a row's key is fold_in(key(seed), the example's index).

    Raises:
      ValueError: if an input is longer than all shapes.
    """
    shapes: dict[int, list[Input]] = {}
    for example in examples:
        length = round_up(len(example.tokens), input_lengths)
        shapes.setdefault(length, []).append(example)
    key = jax.random.key(seed)
    batches = []
    for length in sorted(shapes):
        for at in range(0, len(shapes[length]), batch):
            members = tuple(shapes[length][at : at + batch])
            empty = batch - len(members)
            index = jnp.array([member.index for member in members] + [0] * empty)
            # A row of padding is an empty text: something to attend to.
            texts = [member.tokens for member in members] + [(EOS_ID,)] * empty
            batches.append(
                InputBatch(
                    members=members,
                    inputs=jnp.asarray(pad(texts, length, batch)),
                    prompt=jnp.full((batch, 1), START_ID, jnp.int32),
                    keys=jax.vmap(lambda i: jax.random.fold_in(key, i))(index),
                    limits=np.array([max_new_tokens] * len(members) + [0] * empty),
                    max_new_tokens=max_new_tokens,
                )
            )
    return batches


def task_batches(data: TaskData, settings: Any) -> tuple[list[InputBatch], int]:
    """The batches of a task, and how many of its inputs were cut.

    Args:
      data: of the task.
      settings: has `batch`, `input_lengths` and `seed`; see `EvaluateSettings`.

    Raises:
      ValueError: if there is no example.
    """
    if not data.examples:
        raise ValueError(f"want at least one row of the task {data.name}, got none")
    shapes = shapes_up_to(settings.input_lengths, data.max_input_length)
    examples, cut = cut_inputs(data.examples, shapes[-1])
    batches = make_batches(
        examples,
        batch=settings.batch,
        input_lengths=shapes,
        max_new_tokens=data.max_target_length,
        seed=settings.seed,
    )
    return batches, cut


def in_one_shape(batches: Sequence[InputBatch]) -> Iterator[InputBatch]:
    """The batches padded to one input length: one program where none is timed."""
    longest = max(batch.inputs.shape[1] for batch in batches)
    return (padded_to(batch, longest) for batch in batches)


def padded_to(batch: InputBatch, length: int) -> InputBatch:
    """The same batch with longer padding of its inputs."""
    more = length - batch.inputs.shape[1]
    inputs = jnp.pad(batch.inputs, ((0, 0), (0, more)))
    return dataclasses.replace(batch, inputs=inputs)
