"""Which network a checkpoint's arrays belong to: their names and shapes tell it."""

import re
from collections.abc import Mapping
from typing import Any

from spec_jax.checkpoints.mapping import FIXED, t5_names
from spec_jax.checkpoints.storage import CheckpointError
from spec_jax.checkpoints.validation import EMBEDDING, HEAD

LAYER = re.compile(r"(encoder|decoder)/layers_(\d+)/")
BUCKETS = FIXED["relative_attention_num_buckets"]
RELATIVE = "encoder/relpos_bias/rel_embedding"


def infer_config(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """T5Config's keyword arguments, from the arrays of a T5.

    What no shape tells is taken as T5 has it: ungated networks have `relu`, gated ones
    `gelu` and `linear`, and distances from 128 on share a bucket.

    Args:
      arrays: by t5x's name; only `.shape` is used.

    Returns:
      vocab_size, emb_dim, num_heads, head_dim, mlp_dim, num_encoder_layers,
      num_decoder_layers, mlp_activations, logits_via_embedding,
      relative_attention_num_buckets.

    Raises:
      CheckpointError: if these are not the arrays of a T5, or too few of them are there
        to tell.
    """
    vocab_size, emb_dim = _shape(arrays, EMBEDDING)
    heads, buckets = _shape(arrays, RELATIVE)
    joined = _shape(arrays, "encoder/layers_0/attention/query/kernel")[1]
    if not heads or joined % heads:
        raise CheckpointError(
            f"{RELATIVE} tells of {heads} heads, which do not share the {joined} "
            "columns of encoder/layers_0/attention/query/kernel; these are not the "
            "arrays of a T5"
        )
    gated = any("/mlp/wi_0/" in name for name in arrays)
    wi = "wi_0" if gated else "wi"
    return {
        "vocab_size": vocab_size,
        "emb_dim": emb_dim,
        "num_heads": heads,
        "head_dim": joined // heads,
        "mlp_dim": _shape(arrays, f"encoder/layers_0/mlp/{wi}/kernel")[1],
        "num_encoder_layers": count_layers(arrays, "encoder"),
        "num_decoder_layers": count_layers(arrays, "decoder"),
        "mlp_activations": ("gelu", "linear") if gated else ("relu",),
        "logits_via_embedding": HEAD not in arrays,
        "relative_attention_num_buckets": buckets,
    }


def count_layers(arrays: Mapping[str, Any], stack: str) -> int:
    """One more than the last layer that some array is of.

    Args:
      arrays: by t5x's name.
      stack: "encoder" or "decoder".
    """
    found = [
        int(layer[2])
        for name in arrays
        if (layer := LAYER.match(name)) and layer[1] == stack
    ]
    return max(found, default=-1) + 1


def expected_shapes(fields: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The arrays that a T5 of these sizes has, by t5x's name.

    Args:
      fields: T5Config's arguments.
    """
    emb, mlp = fields["emb_dim"], fields["mlp_dim"]
    heads = fields["num_heads"]
    joined = heads * fields["head_dim"]
    buckets = fields.get("relative_attention_num_buckets", BUCKETS)
    endings = {
        EMBEDDING: (fields["vocab_size"], emb),
        HEAD: (emb, fields["vocab_size"]),
        "rel_embedding": (heads, buckets),
        "scale": (emb,),
        "out/kernel": (joined, emb),
        "wo/kernel": (mlp, emb),
        **{f"{name}/kernel": (emb, joined) for name in ("query", "key", "value")},
        **{f"{name}/kernel": (emb, mlp) for name in ("wi", "wi_0", "wi_1")},
    }
    table = t5_names(
        fields["num_encoder_layers"],
        fields["num_decoder_layers"],
        fields["mlp_activations"],
        fields["logits_via_embedding"],
    )
    return {
        row.t5x: next(
            shape
            for ending, shape in endings.items()
            if row.t5x == ending or row.t5x.endswith(f"/{ending}")
        )
        for row in table
    }


def _shape(arrays: Mapping[str, Any], name: str) -> tuple[int, int]:
    if name not in arrays:
        raise CheckpointError(
            f"there is no {name} among the {len(arrays)} arrays; wanted those of a T5"
        )
    shape = tuple(arrays[name].shape)
    if len(shape) != 2:
        raise CheckpointError(f"{name} has shape {shape}; wanted a matrix")
    return shape
