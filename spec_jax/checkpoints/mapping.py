"""Names and configuration of Hugging Face T5 in t5x's terms. Pure tables."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.checkpoints.storage import CheckpointError
from spec_jax.checkpoints.validation import EMBEDDING, HEAD, flatten, unflatten

# t5x's own code fixes these.
FIXED = {
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "layer_norm_epsilon": 1e-6,
}
FIELDS = {
    "vocab_size": "vocab_size",
    "emb_dim": "d_model",
    "num_heads": "num_heads",
    "num_encoder_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "head_dim": "d_kv",
    "mlp_dim": "d_ff",
}
# transformers' "gated-gelu" is gelu_new, the tanh form, as is flax's gelu.
ACTIVATIONS = {"relu": ("relu",), "gated-gelu": ("gelu", "linear")}
# Copies of `shared.weight`, and a table that early T5 files hold and never use.
IGNORED = frozenset(
    (
        "encoder.embed_tokens.weight",
        "decoder.embed_tokens.weight",
        "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",
    )
)


@dataclasses.dataclass(frozen=True)
class Names:
    """One parameter's two names.

    Attributes:
      t5x: path below `target`, joined by `/`.
      huggingface: key in the state dict.
      transpose: whether the two layouts are each other's transpose.
    """

    t5x: str
    huggingface: str
    transpose: bool


def t5_names(
    num_encoder_layers: int,
    num_decoder_layers: int,
    mlp_activations: Sequence[str] = ("gelu", "linear"),
    logits_via_embedding: bool = False,
) -> tuple[Names, ...]:
    """Every parameter of a T5 by both names.

    Args:
      num_encoder_layers: layers of the encoder.
      num_decoder_layers: layers of the decoder.
      mlp_activations: one for T5 v1.0, two for the gated v1.1.
      logits_via_embedding: whether the logits share the embedding (v1.0).

    Returns:
      The table.
    """
    gated = len(mlp_activations) > 1
    rows = [Names(EMBEDDING, "shared.weight", False)]
    if not logits_via_embedding:
        rows.append(Names(HEAD, "lm_head.weight", True))
    for stack, layers in (
        ("encoder", num_encoder_layers),
        ("decoder", num_decoder_layers),
    ):
        rows += [
            Names(
                f"{stack}/relpos_bias/rel_embedding",
                f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                True,
            ),
            Names(
                f"{stack}/{stack}_norm/scale", f"{stack}.final_layer_norm.weight", False
            ),
        ]
        layer = _encoder_layer if stack == "encoder" else _decoder_layer
        for index in range(layers):
            rows += [
                Names(
                    f"{stack}/layers_{index}/{t5x}",
                    f"{stack}.block.{index}.{huggingface}.weight",
                    t5x.endswith("kernel"),
                )
                for t5x, huggingface in layer(gated).items()
            ]
    return tuple(rows)


def check_layers(num_layers: int, num_arrays: int, where: str) -> None:
    """Sees to it that no list is made of more layers than a file can hold.

    Args:
      num_layers: of a stack, as a config says.
      num_arrays: how many are there; a layer has at least one.
      where: the config, for the message.

    Raises:
      CheckpointError: if it says more layers than there are arrays.
    """
    if num_layers > num_arrays:
        raise CheckpointError(
            f"{where}: {num_layers} layers, but there are {num_arrays} arrays in all"
        )


def t5_config(config: Mapping[str, Any], has_lm_head: bool) -> dict[str, Any]:
    """T5Config's keyword arguments, by t5x's names, from a `config.json`.

    Args:
      config: as transformers 4 or 5 wrote it.
      has_lm_head: whether the weights have their own `lm_head.weight`.

    Returns:
      vocab_size, emb_dim, num_heads, num_encoder_layers, num_decoder_layers,
      head_dim, mlp_dim, mlp_activations, logits_via_embedding.

    Raises:
      CheckpointError: if this is no T5, or one that t5x's network cannot express.
    """
    if config.get("model_type") == "umt5":
        raise CheckpointError(
            "config.json: model_type 'umt5': every layer has its own table of relative "
            "positions, and t5x's T5 has one a stack; wanted 't5' or 'mt5'"
        )
    if config.get("model_type", "t5") not in ("t5", "mt5"):
        raise CheckpointError(
            f"config.json: model_type {config['model_type']!r}; wanted 't5' or 'mt5'"
        )
    # transformers leaves it out where both stacks are of one depth.
    layers = config.get("num_decoder_layers")
    config = {
        **config,
        "num_decoder_layers": config.get("num_layers") if layers is None else layers,
    }
    absent = [name for name in FIELDS.values() if not isinstance(config.get(name), int)]
    if absent:
        raise CheckpointError(f"config.json lacks the whole numbers {absent}")
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise CheckpointError(
                f"config.json: {name} {config[name]}; t5x's T5 has {value} always"
            )
    default = "gated-gelu" if config.get("model_type") == "mt5" else "relu"
    activation = config.get("feed_forward_proj", default)
    if activation not in list(ACTIVATIONS):
        raise CheckpointError(
            f"config.json: feed_forward_proj {activation!r}; wanted one of "
            f"{list(ACTIVATIONS)}"
        )
    fields = {ours: config[theirs] for ours, theirs in FIELDS.items()}
    return fields | {
        "mlp_activations": ACTIVATIONS[activation],
        "logits_via_embedding": _tied(config, has_lm_head),
    }


def to_huggingface_config(fields: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """A `config.json` that transformers 4 and 5 take alike.

    Args:
      fields: T5Config's arguments.
      dtype: of the weights.

    Returns:
      What JSON can hold.

    Raises:
      CheckpointError: if transformers has no such T5.
    """
    activations = tuple(fields["mlp_activations"])
    names = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    if activations not in names:
        raise CheckpointError(
            f"mlp_activations {activations}: Hugging Face's T5 has one of {list(names)}"
        )
    described = {
        "relative_attention_num_buckets": fields.get(
            "relative_attention_num_buckets", FIXED["relative_attention_num_buckets"]
        ),
        "relative_attention_max_distance": fields.get(
            "relative_attention_max_distance", FIXED["relative_attention_max_distance"]
        ),
        "layer_norm_epsilon": FIXED["layer_norm_epsilon"],
    }
    tied = bool(fields["logits_via_embedding"])
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        **{theirs: fields[ours] for ours, theirs in FIELDS.items()},
        **described,
        "feed_forward_proj": names[activations],
        "dropout_rate": fields.get("dropout_rate", 0.0),
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "use_cache": True,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
        # transformers 4 acts on the first, 5 on the second.
        "tie_word_embeddings": tied,
        "scale_decoder_outputs": tied,
        # The same for the two.
        "torch_dtype": dtype,
        "dtype": dtype,
    }


def resize_vocabulary(params: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Give the tables of the vocabulary another number of rows.

    Tables of one tokenizer differ in their padding (32100 pieces, 32128 rows), and
    verification needs one size. Added rows are zero, so are the logits they give:
    the sampling policy's vocabulary limit must mask ids the tokenizer lacks, as it
    must for rows that were padding from the start.

    Args:
      params: t5x's tree of arrays.
      vocab_size: rows wanted; fewer than there are cuts the last ones.

    Returns:
      The same tree with `token_embedder/embedding` [vocab_size, emb] and, where
      there is one, `decoder/logits_dense/kernel` [emb, vocab_size].
    """
    if vocab_size < 1:
        raise ValueError(f"vocab_size must be at least 1, got {vocab_size}")
    flat = flatten(params)
    for name, axis in ((EMBEDDING, 0), (HEAD, 1)):
        if name in flat:
            table = np.asarray(flat[name])
            kept = table.take(range(min(table.shape[axis], vocab_size)), axis)
            width = [(0, 0), (0, 0)]
            width[axis] = (0, vocab_size - kept.shape[axis])
            flat[name] = np.pad(kept, width)
    return unflatten(flat)


def _tied(config: Mapping[str, Any], has_lm_head: bool) -> bool:
    # transformers 5 always writes tie_word_embeddings true; what it acts on is this.
    scaled = config.get("scale_decoder_outputs")
    # An mT5 is never tied; what its config.json leaves out, transformers takes so.
    default = config.get("model_type") != "mt5"
    tied = config.get("tie_word_embeddings", default) if scaled is None else scaled
    if not tied and not has_lm_head:
        raise CheckpointError(
            "config.json says that the logits have their own layer (T5 v1.1), but "
            "there is no lm_head.weight; a T5 v1.0 needs scale_decoder_outputs or "
            "tie_word_embeddings true"
        )
    return bool(tied)


def _attention(t5x: str, huggingface: str) -> dict[str, str]:
    letters = {"query": "q", "key": "k", "value": "v", "out": "o"}
    return {
        f"{t5x}/{name}/kernel": f"{huggingface}.{letter}"
        for name, letter in letters.items()
    }


def _mlp(layer: str, gated: bool) -> dict[str, str]:
    names = ("wi_0", "wi_1", "wo") if gated else ("wi", "wo")
    return {"pre_mlp_layer_norm/scale": f"{layer}.layer_norm"} | {
        f"mlp/{name}/kernel": f"{layer}.DenseReluDense.{name}" for name in names
    }


def _encoder_layer(gated: bool) -> dict[str, str]:
    return (
        {"pre_attention_layer_norm/scale": "layer.0.layer_norm"}
        | _attention("attention", "layer.0.SelfAttention")
        | _mlp("layer.1", gated)
    )


def _decoder_layer(gated: bool) -> dict[str, str]:
    return (
        {"pre_self_attention_layer_norm/scale": "layer.0.layer_norm"}
        | _attention("self_attention", "layer.0.SelfAttention")
        | {"pre_cross_attention_layer_norm/scale": "layer.1.layer_norm"}
        | _attention("encoder_decoder_attention", "layer.1.EncDecAttention")
        | _mlp("layer.2", gated)
    )
