"""Decoder-only models of Hugging Face: Llama's and GPT-2's folders.

config.json as transformers 4 or 5 writes it, and safetensors in one file or several.
Neither transformers nor torch is needed, and no pickle is opened.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from spec_jax.checkpoints.huggingface import (
    CONFIG,
    read_json,
    stored_tensor,
    tensor_files,
)
from spec_jax.checkpoints.mapping import check_layers
from spec_jax.checkpoints.storage import (
    CheckpointError,
    StoredArray,
    inside,
    names_the_path,
    read_arrays,
)
from spec_jax.checkpoints.validation import EMBEDDING, HEAD

GENERATION_CONFIG = "generation_config.json"
LM_HEAD = "lm_head.weight"
ACTIVATIONS = {
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu_exact",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
}
# Buffers that older files hold beside the weights.
IGNORED = re.compile(r"(.*\.)?(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)")
GPT2_PREFIX = "transformer."


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a parameter of ours lies in Hugging Face's files.

    Attributes:
      name: its key there.
      transpose: whether the two layouts are each other's transpose.
      part: which third of the tensor it is, None for all of it.
    """

    name: str
    transpose: bool = False
    part: int | None = None


@names_the_path
def open_causal_lm(
    path: str | os.PathLike,
) -> tuple[dict[str, StoredArray], dict[str, Any]]:
    """Find the parameters of a Llama or GPT-2 folder.

    Args:
      path: the folder, local.

    Returns:
      Parameters by our name, none of them read, and CausalLMConfig's arguments.

    Raises:
      CheckpointError: if a file is missing, cut, or does not hold such a model.
    """
    folder = pathlib.Path(path).expanduser().resolve()
    config = read_json(folder, CONFIG)
    files = tensor_files(folder)
    fields = causal_lm_config(config)
    check_layers(fields["num_layers"], len(files), str(folder / CONFIG))
    if config["model_type"] == "gpt2":
        table = gpt2_names(fields)
        # Published files were saved from the model with a head or from its trunk.
        if f"{GPT2_PREFIX}wte.weight" not in files:
            table = {
                ours: dataclasses.replace(
                    source, name=source.name.removeprefix(GPT2_PREFIX)
                )
                for ours, source in table.items()
            }
    else:
        table = llama_names(fields)
    _check_names(files, table, folder)
    if fields["logits_via_embedding"] and LM_HEAD in files:
        _check_same_table(files, table[EMBEDDING].name, folder)
    return {
        ours: stored_tensor(
            files[source.name], source.name, source.transpose, source.part
        )
        for ours, source in table.items()
    }, fields


@names_the_path
def read_eos_ids(path: str | os.PathLike) -> tuple[int, ...]:
    """The tokens that end a text, from generation_config.json or config.json.

    Args:
      path: the folder, local.

    Returns:
      Their ids; none where neither file tells.

    Raises:
      CheckpointError: if a file cannot be read or holds something else.
    """
    folder = pathlib.Path(path).expanduser().resolve()
    for name in (GENERATION_CONFIG, CONFIG):
        if not inside(folder, name).is_file():
            continue
        ids = read_json(folder, name).get("eos_token_id")
        ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
        if not all(isinstance(one, int) for one in ids):
            raise CheckpointError(
                f"{folder / name}: eos_token_id {ids}; wanted whole numbers"
            )
        if ids:
            return tuple(ids)
    return ()


def causal_lm_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """CausalLMConfig's keyword arguments from a `config.json`.

    Args:
      config: as transformers 4 or 5 wrote it.

    Raises:
      CheckpointError: if this is another kind of model, or one that the network
        cannot express.
    """
    kind = config.get("model_type")
    if kind not in ("llama", "gpt2"):
        raise CheckpointError(
            f"config.json: model_type {kind!r}; wanted 'llama' or 'gpt2'"
        )
    return _llama_config(config) if kind == "llama" else _gpt2_config(config)


def llama_names(fields: Mapping[str, Any]) -> dict[str, Source]:
    """Every parameter of a Llama, by our name.

    Args:
      fields: CausalLMConfig's arguments.
    """
    table = {
        EMBEDDING: Source("model.embed_tokens.weight"),
        "decoder/decoder_norm/scale": Source("model.norm.weight"),
    }
    if not fields["logits_via_embedding"]:
        table[HEAD] = Source(LM_HEAD)
    products = {
        **{
            f"self_attention/{ours}": f"self_attn.{letter}_proj"
            for ours, letter in zip(("query", "key", "value", "out"), "qkvo")
        },
        "mlp/wi_0": "mlp.gate_proj",
        "mlp/wi_1": "mlp.up_proj",
        "mlp/wo": "mlp.down_proj",
    }
    norms = {
        "pre_self_attention_layer_norm": "input_layernorm",
        "pre_mlp_layer_norm": "post_attention_layernorm",
    }
    for i in range(fields["num_layers"]):
        ours, theirs = f"decoder/layers_{i}", f"model.layers.{i}"
        for name, their in norms.items():
            table[f"{ours}/{name}/scale"] = Source(f"{theirs}.{their}.weight")
        for name, their in products.items():
            table[f"{ours}/{name}/kernel"] = Source(f"{theirs}.{their}.weight")
            if fields["use_bias"]:
                table[f"{ours}/{name}/bias"] = Source(f"{theirs}.{their}.bias")
    return table


def gpt2_names(fields: Mapping[str, Any]) -> dict[str, Source]:
    """Every parameter of a GPT-2, by our name. Its weights are [in, out].

    Args:
      fields: CausalLMConfig's arguments.
    """
    table = {
        EMBEDDING: Source(f"{GPT2_PREFIX}wte.weight"),
        "position_embedder/embedding": Source(f"{GPT2_PREFIX}wpe.weight"),
    }
    if not fields["logits_via_embedding"]:
        table[HEAD] = Source(LM_HEAD)
    norms = {"decoder/decoder_norm": f"{GPT2_PREFIX}ln_f"}
    products = {}
    for i in range(fields["num_layers"]):
        ours, theirs = f"decoder/layers_{i}", f"{GPT2_PREFIX}h.{i}"
        norms[f"{ours}/pre_self_attention_layer_norm"] = f"{theirs}.ln_1"
        norms[f"{ours}/pre_mlp_layer_norm"] = f"{theirs}.ln_2"
        for part, name in enumerate(("query", "key", "value")):
            products[f"{ours}/self_attention/{name}"] = f"{theirs}.attn.c_attn", part
        products[f"{ours}/self_attention/out"] = f"{theirs}.attn.c_proj", None
        products[f"{ours}/mlp/wi"] = f"{theirs}.mlp.c_fc", None
        products[f"{ours}/mlp/wo"] = f"{theirs}.mlp.c_proj", None
    for ours, theirs in norms.items():
        table[f"{ours}/scale"] = Source(f"{theirs}.weight")
        table[f"{ours}/bias"] = Source(f"{theirs}.bias")
    for ours, (theirs, part) in products.items():
        table[f"{ours}/kernel"] = Source(f"{theirs}.weight", True, part)
        table[f"{ours}/bias"] = Source(f"{theirs}.bias", False, part)
    return table


def _llama_config(config: Mapping[str, Any]) -> dict[str, Any]:
    config = {
        **config,
        # transformers 4 has both at the top, 5 below rope_parameters.
        **(config.get("rope_parameters") or {}),
    }
    scaling = config.get("rope_scaling") or {}
    kind = config.get("rope_type") or scaling.get("rope_type") or scaling.get("type")
    _want(config, {"rope type": kind or "default"}, {"rope type": "default"})
    biases = {name: config.get(name, False) for name in ("attention_bias", "mlp_bias")}
    if len(set(biases.values())) > 1:
        raise CheckpointError(f"config.json: {biases}; wanted both alike")
    heads = _whole(config, "num_attention_heads")
    width = _whole(config, "hidden_size")
    return {
        "vocab_size": _whole(config, "vocab_size"),
        "emb_dim": width,
        "num_heads": heads,
        "num_kv_heads": _whole(config, "num_key_value_heads", heads),
        "head_dim": _whole(config, "head_dim", width // heads),
        "mlp_dim": _whole(config, "intermediate_size"),
        "num_layers": _whole(config, "num_hidden_layers"),
        "max_length": _whole(config, "max_position_embeddings"),
        "positions": "rope",
        "rope_base": float(config.get("rope_theta", 10_000.0)),
        "norm": "rms",
        "norm_epsilon": float(config.get("rms_norm_eps", 1e-6)),
        "mlp_activations": (_activation(config, "hidden_act", "silu"), "linear"),
        "use_bias": bool(config.get("attention_bias", False)),
        "logits_via_embedding": bool(config.get("tie_word_embeddings", False)),
    }


def _gpt2_config(config: Mapping[str, Any]) -> dict[str, Any]:
    _want(
        config,
        config,
        {
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
    )
    heads = _whole(config, "n_head")
    width = _whole(config, "n_embd")
    return {
        "vocab_size": _whole(config, "vocab_size"),
        "emb_dim": width,
        "num_heads": heads,
        "num_kv_heads": heads,
        "head_dim": width // heads,
        "mlp_dim": _whole(config, "n_inner", 4 * width),
        "num_layers": _whole(config, "n_layer"),
        "max_length": _whole(config, "n_positions"),
        "positions": "learned",
        "norm": "layer",
        "norm_epsilon": float(config.get("layer_norm_epsilon", 1e-5)),
        "mlp_activations": (_activation(config, "activation_function", "gelu_new"),),
        "use_bias": True,
        "logits_via_embedding": bool(config.get("tie_word_embeddings", True)),
    }


def _whole(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int) or value < 1:
        raise CheckpointError(
            f"config.json: {name} {value!r}; wanted a positive whole number"
        )
    return value


def _activation(config: Mapping[str, Any], name: str, default: str) -> str:
    value = config.get(name, default)
    if value not in list(ACTIVATIONS):
        raise CheckpointError(
            f"config.json: {name} {value!r}; wanted one of {list(ACTIVATIONS)}"
        )
    return ACTIVATIONS[value]


def _want(
    config: Mapping[str, Any], values: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    for name, value in wanted.items():
        if values.get(name, value) != value:
            raise CheckpointError(
                f"config.json: {name} {values[name]!r} of a {config['model_type']}; "
                f"the network has {value!r} alone"
            )


def _check_names(
    files: Mapping[str, pathlib.Path], table: Mapping[str, Source], folder: pathlib.Path
) -> None:
    wanted = {source.name for source in table.values()}
    missing = sorted(wanted - files.keys())
    surplus = sorted(
        name
        for name in files.keys() - wanted - {LM_HEAD}
        if not IGNORED.fullmatch(name)
    )
    if missing or surplus:
        raise CheckpointError(
            f"the weights in {folder} are not what its config.json describes; "
            f"missing ({len(missing)}): {missing[:10]}; "
            f"surplus ({len(surplus)}): {surplus[:10]}"
        )


def _check_same_table(
    files: Mapping[str, pathlib.Path], embedding: str, folder: pathlib.Path
) -> None:
    tables = read_arrays(
        {name: stored_tensor(files[name], name) for name in (LM_HEAD, embedding)}
    )
    if not np.array_equal(*tables.values()):
        raise CheckpointError(
            f"{folder}: config.json ties the logits to the embedding, but "
            f"{LM_HEAD} differs from {embedding}"
        )
