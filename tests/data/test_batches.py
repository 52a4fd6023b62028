"""Buckets: every example once, in a shape that holds it, in an order one can resume."""

import itertools

import numpy as np
import pytest

from spec_jax.data.batches import (
    Bucket,
    collate,
    plan_epoch,
    round_up,
    training_batches,
)
from spec_jax.data.examples import Example

BUCKETS = [Bucket(16, 16, 4), Bucket(8, 8, 8), Bucket(32, 8, 2)]


def some_examples(rng, count=57):
    sizes = rng.integers(2, 9, (count, 2))
    sizes[::5, 0] = rng.integers(17, 33, len(sizes[::5]))
    sizes[1::5] = rng.integers(9, 17, sizes[1::5].shape)
    return [
        Example(tuple(rng.integers(2, 99, i)), tuple(rng.integers(2, 99, t)))
        for i, t in sizes
    ]


def test_a_plan_has_every_example_once_in_a_bucket_that_holds_it():
    examples = some_examples(np.random.default_rng(0))
    plan = plan_epoch(examples, BUCKETS, np.random.default_rng(1))
    members = np.concatenate([batch.members for batch in plan])
    assert sorted(members) == list(range(len(examples)))
    for batch in plan:
        assert len(batch.members) <= batch.bucket.rows
        for i in batch.members:
            assert len(examples[i].inputs) <= batch.bucket.inputs
            assert len(examples[i].targets) <= batch.bucket.targets


def test_a_batch_is_shifted_padded_and_weighed():
    examples = [Example((5, 6, 1), (7, 8, 1)), Example((9, 1), (4, 1))]
    (planned,) = plan_epoch(examples, [Bucket(4, 5, 3)], np.random.default_rng(0))
    batch = collate(examples, planned)
    row = int(np.flatnonzero(planned.members == 0)[0])
    assert batch["encoder_input_tokens"][row].tolist() == [5, 6, 1, 0]
    assert batch["decoder_input_tokens"][row].tolist() == [0, 7, 8, 1, 0]
    assert batch["decoder_target_tokens"][row].tolist() == [7, 8, 1, 0, 0]
    assert batch["decoder_loss_weights"][row].tolist() == [1, 1, 1, 0, 0]
    assert batch["decoder_loss_weights"][2].sum() == 0  # a row without an example
    assert batch["decoder_loss_weights"].sum() == 5


@pytest.mark.parametrize("start", [0, 1, 7, 40])
def test_batches_after_a_restart_are_those_of_an_undisturbed_run(start):
    def stream(start_step):
        return training_batches(some_examples, BUCKETS, seed=3, start_step=start_step)

    undisturbed = list(itertools.islice(stream(0), start + 25))[start:]
    resumed = list(itertools.islice(stream(start), 25))
    assert {epoch for epoch, _ in undisturbed} >= {0} or start > 0
    for (epoch, batch), (same_epoch, same) in zip(undisturbed, resumed, strict=True):
        assert epoch == same_epoch
        for name in batch:
            np.testing.assert_array_equal(batch[name], same[name])


def test_epochs_have_different_orders():
    batches = list(
        itertools.islice(
            training_batches(
                lambda rng: some_examples(np.random.default_rng(0)),
                [Bucket(32, 16, 57)],
                seed=0,
                start_step=0,
            ),
            2,
        )
    )
    first, second = (b["encoder_input_tokens"] for _, b in batches)
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first, axis=0), np.sort(second, axis=0))


def test_what_fits_no_bucket_is_an_error():
    long = Example((3,) * 40, (3,) * 4)
    with pytest.raises(ValueError, match="40 input and 4 target tokens fits no bucket"):
        plan_epoch([long], BUCKETS, np.random.default_rng(0))
    with pytest.raises(ValueError, match="9 tokens exceeds the longest bucket, 8"):
        round_up(9, (4, 8))
    assert round_up(5, (8, 16)) == 8


def test_the_first_epoch_goes_from_short_to_long():
    def lengths(epoch, **options):
        stream = training_batches(
            lambda rng: some_examples(rng, 400),
            BUCKETS,
            seed=1,
            start_step=0,
            **options,
        )
        batches = (b for e, b in itertools.islice(stream, 500) if e == epoch)
        return [
            b["encoder_input_tokens"].shape[1] + b["decoder_target_tokens"].shape[1]
            for b in batches
        ]

    def rise(sizes):
        half = len(sizes) // 2
        return np.mean(sizes[half:]) - np.mean(sizes[:half])

    first, second = lengths(0), lengths(1)
    assert sorted(first)[0] == 16 and rise(first) > 6
    assert abs(rise(second)) < 4
    assert rise(lengths(0, short_first=False)) < 5
