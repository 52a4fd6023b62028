"""Static shapes: examples of like length in batches of like size."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from spec_jax.data.examples import Example
from spec_jax.data.vocabulary import PAD_ID

Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Bucket:
    """One compiled shape.

    Attributes:
      inputs: encoder tokens of a row.
      targets: decoder tokens of a row.
      rows: batch size.
    """

    inputs: int
    targets: int
    rows: int


@dataclasses.dataclass(frozen=True)
class PlannedBatch:
    """Which examples of an epoch make a batch, and in which shape."""

    bucket: Bucket
    members: np.ndarray


def round_up(length: int, lengths: Sequence[int]) -> int:
    """The smallest of `lengths` that holds `length`.

    Raises:
      ValueError: if none does.
    """
    fitting = [bound for bound in lengths if bound >= length]
    if not fitting:
        raise ValueError(
            f"a length of {length} tokens exceeds the longest bucket, {max(lengths)}"
        )
    return min(fitting)


def pad(rows: Sequence[Sequence[int]], length: int, num_rows: int) -> np.ndarray:
    """int32 [num_rows, length]; what is not covered by `rows` is padding."""
    out = np.full((num_rows, length), PAD_ID, np.int32)
    for at, row in enumerate(rows):
        out[at, : len(row)] = row
    return out


def plan_epoch(
    examples: Sequence[Example],
    buckets: Sequence[Bucket],
    rng: np.random.Generator,
) -> list[PlannedBatch]:
    """A random order of batches in which every example occurs once.

    Args:
      examples: of one epoch.
      buckets: an example goes to the first, by size, that holds it.
      rng: the order's only source of chance.

    Raises:
      ValueError: if an example fits no bucket.
    """
    ordered = sorted(buckets, key=lambda b: b.inputs * b.targets)
    members: list[list[int]] = [[] for _ in ordered]
    for index in rng.permutation(len(examples)):
        example = examples[index]
        for bucket, chosen in zip(ordered, members, strict=True):
            if (
                len(example.inputs) <= bucket.inputs
                and len(example.targets) <= bucket.targets
            ):
                chosen.append(index)
                break
        else:
            raise ValueError(
                f"an example of {len(example.inputs)} input and "
                f"{len(example.targets)} target tokens fits no bucket of {ordered}"
            )
    batches = [
        PlannedBatch(bucket, np.array(chosen[at : at + bucket.rows]))
        for bucket, chosen in zip(ordered, members, strict=True)
        for at in range(0, len(chosen), bucket.rows)
    ]
    return [batches[i] for i in rng.permutation(len(batches))]


def collate(examples: Sequence[Example], planned: PlannedBatch) -> Batch:
    """A batch under t5x's feature names; rows without an example weigh nothing."""
    bucket = planned.bucket
    chosen = [examples[i] for i in planned.members]
    targets = pad([e.targets for e in chosen], bucket.targets, bucket.rows)
    shifted = np.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=PAD_ID)
    return {
        "encoder_input_tokens": pad(
            [e.inputs for e in chosen], bucket.inputs, bucket.rows
        ),
        "decoder_input_tokens": shifted,
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (targets != PAD_ID).astype(np.float32),
    }


def short_to_long(
    planned: Sequence[PlannedBatch], rng: np.random.Generator
) -> list[PlannedBatch]:
    """The same batches, those of short examples mostly before those of long ones.

    Reference: Platanios et al. 2019, https://arxiv.org/abs/1903.09848: what
    corresponds to what is easiest to learn where there is little of it.
    """
    size = np.log([b.bucket.inputs + b.bucket.targets for b in planned])
    late = size + rng.gumbel(scale=0.3, size=len(planned))
    return [planned[i] for i in np.argsort(late, kind="stable")]


def training_batches(
    make_epoch: Callable[[np.random.Generator], list[Example]],
    buckets: Sequence[Bucket],
    *,
    seed: int,
    start_step: int,
    short_first: bool = True,
) -> Iterator[tuple[int, Batch]]:
    """Endless (epoch, batch), from `start_step` as if never interrupted.

    Args:
      make_epoch: the examples of an epoch, from that epoch's own generator.
      buckets: the shapes.
      seed: with the epoch's number it decides everything.
      start_step: batches to pass over.
      short_first: whether the first epoch goes from short examples to long ones.
    """
    epoch, passed = 0, 0
    while True:
        rng = np.random.default_rng([seed, epoch])
        examples = make_epoch(rng)
        planned = plan_epoch(examples, buckets, rng)
        if not planned:
            raise ValueError("there is no training example")
        if epoch == 0 and short_first:
            planned = short_to_long(planned, rng)
        for batch in planned[max(start_step - passed, 0) :]:
            yield epoch, collate(examples, batch)
        passed += len(planned)
        epoch += 1
