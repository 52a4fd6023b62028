"""GGUF files of Llama-style models, as llama.cpp reads them.

The package `gguf` (an extra) parses the file and turns quantized blocks into
float32, bit for bit what transformers loads.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from spec_jax.checkpoints.storage import CheckpointError, StoredArray
from spec_jax.checkpoints.validation import EMBEDDING, HEAD

INSTALL = (
    "reading GGUF files needs the package gguf: pip install gguf, or spec_jax with "
    "its extra gguf"
)
TABLE = {
    EMBEDDING: "token_embd.weight",
    "decoder/decoder_norm/scale": "output_norm.weight",
}
OUTPUT = "output.weight"
LAYER = {
    "pre_self_attention_layer_norm/scale": "attn_norm",
    "pre_mlp_layer_norm/scale": "ffn_norm",
    "self_attention/query/kernel": "attn_q",
    "self_attention/key/kernel": "attn_k",
    "self_attention/value/kernel": "attn_v",
    "self_attention/out/kernel": "attn_output",
    "mlp/wi_0/kernel": "ffn_gate",
    "mlp/wi_1/kernel": "ffn_up",
    "mlp/wo/kernel": "ffn_down",
}
# What a file may lack, and what is then meant.
DEFAULTS = {"rope.freq_base": 10_000.0}


@dataclasses.dataclass(frozen=True)
class GGUFModel:
    """What a GGUF file holds.

    Attributes:
      arrays: parameters by our name, none of them read.
      fields: CausalLMConfig's arguments.
      metadata: the file's own keys, among them the tokenizer's.
    """

    arrays: dict[str, StoredArray]
    fields: dict[str, Any]
    metadata: dict[str, Any]


def open_gguf(path: str | os.PathLike) -> GGUFModel:
    """Find the parameters of a GGUF file.

    Args:
      path: the file.

    Raises:
      CheckpointError: if it is missing, damaged, or holds another kind of model.
      ImportError: if the package gguf is not installed.
    """
    file = pathlib.Path(path).expanduser()
    # A pipe exists too, but would be waited for.
    if not file.is_file():
        raise CheckpointError(f"there is no file {file}")
    gguf = _package()
    try:
        reader = gguf.GGUFReader(str(file))
        metadata = {name: field.contents() for name, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except Exception as error:  # whatever a damaged file leads the parser to
        raise CheckpointError(f"{file} is no GGUF file, or damaged: {error}") from error
    fields = gguf_config(metadata, tensors, str(file))
    table = gguf_names(fields)
    missing = sorted(set(table.values()) - tensors.keys())
    surplus = sorted(tensors.keys() - set(table.values()))
    if missing or surplus:
        raise CheckpointError(
            f"the tensors in {file} are not what its metadata describe; "
            f"missing ({len(missing)}): {missing[:10]}; "
            f"surplus ({len(surplus)}): {surplus[:10]}"
        )
    heads = {"query": fields["num_heads"], "key": fields["num_kv_heads"]}
    arrays = {}
    for ours, theirs in table.items():
        turned = heads.get(ours.split("/")[-2])
        arrays[ours] = _stored(gguf, file, tensors[theirs], turned)
    return GGUFModel(arrays, fields, metadata)


def gguf_config(
    metadata: Mapping[str, Any], tensors: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """CausalLMConfig's keyword arguments from a file's metadata.

    Args:
      metadata: the file's keys.
      tensors: the file's, by name; their presence alone is asked for.
      where: the file, for messages.

    Raises:
      CheckpointError: if this is another kind of model, or one that the network
        cannot express.
    """
    kind = metadata.get("general.architecture")
    if kind != "llama":
        raise CheckpointError(f"{where}: architecture {kind!r}; wanted 'llama'")

    def of(name, wanted):
        value = metadata.get(f"llama.{name}", DEFAULTS.get(name))
        if not isinstance(value, wanted) or not value > 0:
            raise CheckpointError(
                f"{where}: llama.{name} {value!r}; wanted a positive {wanted.__name__}"
            )
        return value

    heads, width = of("attention.head_count", int), of("embedding_length", int)
    has_key_heads = "llama.attention.head_count_kv" in metadata
    key_heads = of("attention.head_count_kv", int) if has_key_heads else heads
    has_head_dim = "llama.attention.key_length" in metadata
    head_dim = of("attention.key_length", int) if has_head_dim else width // heads
    turned = metadata.get("llama.rope.dimension_count", head_dim)
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if turned != head_dim or scaling != "none" or "rope_freqs.weight" in tensors:
        raise CheckpointError(
            f"{where}: RoPE of {turned} dimensions, scaling {scaling!r}"
            f"{', own frequencies' * ('rope_freqs.weight' in tensors)}; the network "
            f"turns all {head_dim} and scales nothing"
        )
    if metadata.get("llama.expert_count"):
        raise CheckpointError(f"{where}: a mixture of experts; wanted a dense model")
    vocab = metadata.get("llama.vocab_size")
    if vocab is None:
        vocab = len(metadata.get("tokenizer.ggml.tokens") or ())
    return {
        "vocab_size": vocab,
        "emb_dim": width,
        "num_heads": heads,
        "num_kv_heads": key_heads,
        "head_dim": head_dim,
        "mlp_dim": of("feed_forward_length", int),
        "num_layers": of("block_count", int),
        "max_length": of("context_length", int),
        "positions": "rope",
        "rope_base": of("rope.freq_base", float),
        "norm": "rms",
        "norm_epsilon": _shortest(of("attention.layer_norm_rms_epsilon", float)),
        "mlp_activations": ("silu", "linear"),
        "use_bias": False,
        "logits_via_embedding": OUTPUT not in tensors,
    }


def gguf_names(fields: Mapping[str, Any]) -> dict[str, str]:
    """Every parameter of a Llama in a GGUF file, by our name.

    Args:
      fields: CausalLMConfig's arguments.
    """
    table = dict(TABLE)
    if not fields["logits_via_embedding"]:
        table[HEAD] = OUTPUT
    for i in range(fields["num_layers"]):
        for ours, theirs in LAYER.items():
            table[f"decoder/layers_{i}/{ours}"] = f"blk.{i}.{theirs}.weight"
    return table


def _package():
    try:
        import gguf
        import gguf.quants
    except ImportError as error:
        raise ImportError(INSTALL) from error
    return gguf


def _stored(gguf: Any, file: pathlib.Path, tensor: Any, heads: int | None):
    """Describes one tensor; `heads` where llama.cpp's order of pairs is undone."""
    shape = tuple(int(size) for size in reversed(tensor.shape))
    where = f"{tensor.name} in {file}"
    if heads is not None and (len(shape) != 2 or shape[0] % (2 * heads)):
        raise CheckpointError(f"{where}: shape {shape}; wanted {heads} heads of pairs")

    def start(wanted: np.dtype) -> Callable[[], np.ndarray]:
        def wait() -> np.ndarray:
            value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            value = value.reshape(shape)
            return np.array(value if heads is None else _unpaired(value, heads), wanted)

        return wait

    return StoredArray(str(file), shape, np.dtype(np.float32), start)


def _unpaired(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from pairs side by side to halves, as our RoPE has them."""
    pairs = weight.reshape(heads, -1, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)


def _shortest(value: float) -> float:
    """The shortest decimal with this float32, which is what the file's writer had."""
    return float(str(np.float32(value)))
