"""Batches of examples: shapes, cuts, padding and keys."""

import jax
import numpy as np
import pytest

from spec_jax.data.examples import get_task
from spec_jax.data.vocabulary import EOS_ID, SentencePieceVocabulary
from spec_jax.experiments.inputs import (
    Input,
    encode_examples,
    in_one_shape,
    make_batches,
)
from spec_jax.pairs import resolve

TASK = get_task("ende")
LENGTHS = (4, 8)


@pytest.fixture(scope="module")
def vocabulary():
    return SentencePieceVocabulary(resolve("spec_jax://pretrained/vocabulary.model"))


def example(index, length):
    return Input(index, (*range(5, 4 + length), EOS_ID), "")


def batches(lengths, batch):
    examples = [example(i, length) for i, length in enumerate(lengths)]
    return make_batches(
        examples, batch=batch, input_lengths=LENGTHS, max_new_tokens=6, seed=3
    )


def test_long_inputs_are_cut_and_end_with_eos(vocabulary):
    rows = [{"en": "Save.", "de": "a"}, {"en": "Save the file. " * 9, "de": "b"}]
    examples, cut = encode_examples(rows, TASK, vocabulary, 20)
    assert cut == 1
    assert len(examples[0].tokens) < len(examples[1].tokens) == 20
    assert [e.tokens[-1] for e in examples] == [EOS_ID] * 2
    whole = vocabulary.encode(TASK.prefix + rows[1]["en"])
    assert list(examples[1].tokens[:-1]) == whole[:19]
    assert [(e.index, e.reference) for e in examples] == [(0, "a"), (1, "b")]


def test_an_input_that_just_fits_is_not_cut(vocabulary):
    rows = [{"en": "Save the file.", "de": "a"}]
    (whole,), _ = encode_examples(rows, TASK, vocabulary, 256)
    (same,), cut = encode_examples(rows, TASK, vocabulary, len(whole.tokens))
    assert (same, cut) == (whole, 0)


def test_no_row_is_an_error(vocabulary):
    with pytest.raises(ValueError, match="at least one row of the task ende"):
        encode_examples([], TASK, vocabulary, 256)


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
