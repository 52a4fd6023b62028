"""Shapes of a training: as many tokens as are wanted, up to the longest example."""

import pytest

from spec_jax.training.buckets import BUCKET_LENGTHS, make_buckets


@pytest.mark.parametrize("longest", [None, (8, 8), (256, 128), (512, 200)])
def test_buckets_go_up_to_the_longest_example(longest):
    buckets = make_buckets(1024, longest)
    lengths = [(bucket.inputs, bucket.targets) for bucket in buckets]
    assert len(set(lengths)) == len(lengths)
    if longest is None:
        assert tuple(lengths) == BUCKET_LENGTHS
        return
    assert lengths[-1] == longest
    inputs, targets = longest
    assert all(i <= inputs and t <= targets for i, t in lengths)
    # Nothing that would hold a shorter example with less padding is left out.
    fitting = {(i, t) for i, t in BUCKET_LENGTHS if i <= inputs and t <= targets}
    assert fitting <= set(lengths)
    for bucket in buckets:
        assert bucket.rows % 8 == 0 and bucket.rows >= 8
        assert bucket.rows == 8 or bucket.rows * bucket.targets <= 1024
