"""Batches of examples: shapes, cuts, padding and keys."""

import jax
import numpy as np
import pytest

from spec_jax.data.datasets import TaskExample
from spec_jax.data.vocabulary import EOS_ID
from spec_jax.experiments.inputs import (
    Input,
    cut_inputs,
    in_one_shape,
    make_batches,
    shapes_up_to,
)

LENGTHS = (4, 8)


def example(index, length):
    return Input(index, (*range(5, 4 + length), EOS_ID))


def batches(lengths, batch):
    examples = [example(i, length) for i, length in enumerate(lengths)]
    return make_batches(
        examples, batch=batch, input_lengths=LENGTHS, max_new_tokens=6, seed=3
    )


def told(text, index=0):
    return TaskExample(index, text, None, {})


def test_long_inputs_are_cut_and_end_with_eos():
    examples, cut = cut_inputs([told((7, EOS_ID)), told((*range(2, 40), 1), 1)], 20)
    assert cut == 1
    assert [e.tokens for e in examples] == [(7, EOS_ID), (*range(2, 21), EOS_ID)]
    assert [e.index for e in examples] == [0, 1]


def test_an_input_that_just_fits_is_not_cut():
    whole = (5, 6, 7, EOS_ID)
    (same,), cut = cut_inputs([told(whole)], len(whole))
    assert (same.tokens, cut) == (whole, 0)


def test_the_longest_input_has_a_shape_of_its_own():
    assert shapes_up_to((32, 64, 128), 100) == (32, 64, 100)
    assert shapes_up_to((64, 32), 64) == (32, 64)
    assert shapes_up_to((32,), 512) == (32, 512)


def test_every_example_is_in_one_batch_of_its_shape():
    made = batches([3, 8, 4, 5, 2], batch=2)
    members = [[m.index for m in b.members] for b in made]
    assert members == [[0, 2], [4], [1, 3]]
    assert [b.inputs.shape for b in made] == [(2, 4), (2, 4), (2, 8)]
    assert [b.limits.tolist() for b in made] == [[6, 6], [6, 0], [6, 6]]
    assert [b.padding for b in made] == [0, 1, 0]
    np.testing.assert_array_equal(made[0].inputs[0], [5, 6, EOS_ID, 0])
    np.testing.assert_array_equal(made[1].inputs[1], [EOS_ID, 0, 0, 0])


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_key_belongs_to_the_example(batch):
    keys = {
        member.index: jax.random.key_data(made.keys[row])
        for made in batches([3, 8, 4, 5, 2], batch)
        for row, member in enumerate(made.members)
    }
    for index in range(5):
        want = jax.random.fold_in(jax.random.key(3), index)
        np.testing.assert_array_equal(keys[index], jax.random.key_data(want))


def test_an_input_longer_than_all_shapes_is_an_error():
    with pytest.raises(ValueError, match="exceeds the longest bucket"):
        batches([9], batch=1)


def test_one_shape_pads_and_changes_nothing_else():
    made = batches([3, 8], batch=1)
    padded = list(in_one_shape(made))
    assert [b.inputs.shape for b in padded] == [(1, 8)] * 2
    np.testing.assert_array_equal(padded[0].inputs[:, :4], made[0].inputs)
    assert not padded[0].inputs[:, 4:].any()
    assert [b.members for b in padded] == [b.members for b in made]
