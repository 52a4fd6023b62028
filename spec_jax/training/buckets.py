"""The compiled shapes of a training."""

from spec_jax.data.batches import Bucket

# Encoder x decoder lengths that the corpora's rows fall into with little padding.
BUCKET_LENGTHS = (
    (24, 24),
    (32, 32),
    (48, 48),
    (64, 64),
    (96, 96),
    (128, 128),
    (96, 16),
    (160, 24),
    (256, 24),
    (256, 64),
)


def make_buckets(
    batch_tokens: int, longest: tuple[int, int] | None = None
) -> list[Bucket]:
    """Buckets with about `batch_tokens` decoder tokens, a multiple of 8 rows each.

    Args:
      batch_tokens: padded decoder tokens of a batch.
      longest: encoder and decoder tokens that examples may have: there are buckets
        up to these, and one of just these; None: what the shipped corpora have.
    """
    lengths = BUCKET_LENGTHS
    if longest is not None:
        within = [(i, t) for i, t in lengths if i <= longest[0] and t <= longest[1]]
        lengths = tuple(dict.fromkeys((*within, longest)))
    buckets = []
    for inputs, targets in lengths:
        rows = batch_tokens / max(targets, inputs // 3)
        buckets.append(Bucket(inputs, targets, max(8, int(rows) // 8 * 8)))
    return buckets
