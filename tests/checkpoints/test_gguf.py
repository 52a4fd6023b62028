"""GGUF files, written here: quantized blocks, the order of pairs, metadata."""

import builtins

import gguf
import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError
from spec_jax.checkpoints.causal_lm import open_causal_lm
from spec_jax.checkpoints.gguf import LAYER, open_gguf
from spec_jax.checkpoints.storage import read_arrays
from tests.golden import golden_path

HEADS, KEY_HEADS, WIDTH, HEAD_DIM, MLP, VOCAB = 4, 2, 32, 8, 64, 16
FIELDS = {
    "vocab_size": VOCAB,
    "emb_dim": WIDTH,
    "num_heads": HEADS,
    "num_kv_heads": KEY_HEADS,
    "head_dim": HEAD_DIM,
    "mlp_dim": MLP,
    "num_layers": 1,
    "max_length": 64,
    "positions": "rope",
    "rope_base": 500.0,
    "norm": "rms",
    "norm_epsilon": 1e-5,
    "mlp_activations": ("silu", "linear"),
    "use_bias": False,
    "logits_via_embedding": True,
}
SHAPES = {
    "token_embd": (VOCAB, WIDTH),
    "output_norm": (WIDTH,),
    "blk.0.attn_norm": (WIDTH,),
    "blk.0.ffn_norm": (WIDTH,),
    "blk.0.attn_q": (HEADS * HEAD_DIM, WIDTH),
    "blk.0.attn_k": (KEY_HEADS * HEAD_DIM, WIDTH),
    "blk.0.attn_v": (KEY_HEADS * HEAD_DIM, WIDTH),
    "blk.0.attn_output": (WIDTH, HEADS * HEAD_DIM),
    "blk.0.ffn_gate": (MLP, WIDTH),
    "blk.0.ffn_up": (MLP, WIDTH),
    "blk.0.ffn_down": (WIDTH, MLP),
}
Q8_0, Q4_1 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1
KINDS = {"token_embd": Q8_0, "blk.0.ffn_up": Q4_1, "blk.0.attn_q": Q4_1}


def weights():
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape, np.float32) for name, shape in SHAPES.items()
    }


def write(path, tensors, kinds=(), architecture="llama", without=(), **keys):
    writer = gguf.GGUFWriter(path, architecture)
    values = {
        "context_length": 64,
        "embedding_length": WIDTH,
        "block_count": 1,
        "feed_forward_length": MLP,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEY_HEADS,
        "vocab_size": VOCAB,
        "rope.dimension_count": HEAD_DIM,
    } | keys
    for name, value in values.items():
        if name not in without and not isinstance(value, str):
            writer.add_uint32(f"{architecture}.{name}", value)
        elif name not in without:
            writer.add_string(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.rope.freq_base", 500.0)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for name, tensor in tensors.items():
        kind = dict(kinds).get(name)
        if kind is None:
            writer.add_tensor(f"{name}.weight", tensor)
        else:
            data = gguf.quants.quantize(tensor, kind)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tiny.gguf"


def test_configuration_and_plain_tensors(file):
    tensors = weights()
    model = open_gguf(write(file, tensors))
    assert model.fields == FIELDS
    params = read_arrays(model.arrays)
    assert len(params) == len(tensors)
    for ours, theirs in LAYER.items():
        if theirs not in ("attn_q", "attn_k"):
            wanted = tensors[f"blk.0.{theirs}"]
            np.testing.assert_array_equal(params[f"decoder/layers_0/{ours}"], wanted)


def test_quantized_tensors_are_near_and_equal_their_blocks(file):
    tensors = weights()
    params = read_arrays(open_gguf(write(file, tensors, KINDS)).arrays)
    for ours, name, bits in (
        ("token_embedder/embedding", "token_embd", 7),
        ("decoder/layers_0/mlp/wi_1/kernel", "blk.0.ffn_up", 4),
    ):
        got, blocks = params[ours], tensors[name].reshape(-1, 32)
        # A block is parted into so many steps; half a step is the largest error.
        step = (blocks.max(1) - blocks.min(1)) / (2**bits - 2)
        error = np.abs(got.reshape(-1, 32) - blocks).max(1)
        assert got.dtype == np.float32 and (error < 1.1 * step).all()
        assert error.max() > 0  # the file does hold quantized blocks


def test_queries_and_keys_are_put_in_our_order_of_pairs(file):
    """llama.cpp turns neighbours (2 i, 2 i + 1), Hugging Face (i, i + d / 2)."""
    tensors = weights()
    params = read_arrays(open_gguf(write(file, tensors)).arrays)
    for name, theirs, heads in (("query", "attn_q", HEADS), ("key", "attn_k", 2)):
        got = params[f"decoder/layers_0/self_attention/{name}/kernel"]
        stored = tensors[f"blk.0.{theirs}"]
        for head in range(heads):
            for i in range(HEAD_DIM // 2):
                row = head * HEAD_DIM
                np.testing.assert_array_equal(got[row + i], stored[row + 2 * i])
                np.testing.assert_array_equal(
                    got[row + i + HEAD_DIM // 2], stored[row + 2 * i + 1]
                )


def test_the_same_model_as_in_a_folder_of_hugging_face(file):
    """Written as llama.cpp's converter writes it; the golden logits then hold."""
    folder = golden_path("causal_lm/llama")
    arrays, fields = open_causal_lm(folder)
    params = read_arrays(arrays)
    tensors = {
        "token_embd": params["token_embedder/embedding"],
        "output": params["decoder/logits_dense/kernel"],
        "output_norm": params["decoder/decoder_norm/scale"],
    }
    for i in range(2):
        for ours, theirs in LAYER.items():
            tensor = params[f"decoder/layers_{i}/{ours}"]
            if theirs in ("attn_q", "attn_k"):
                pairs = tensor.reshape(-1, 2, 4, tensor.shape[1]).swapaxes(1, 2)
                tensor = np.ascontiguousarray(pairs).reshape(tensor.shape)
            tensors[f"blk.{i}.{theirs}"] = tensor
    keys = {"attention.key_length": 8, "block_count": 2, "vocab_size": 96}
    keys |= {"embedding_length": 24, "feed_forward_length": 40}
    model = open_gguf(write(file, tensors, **keys))
    assert model.fields == fields
    got = read_arrays(model.arrays)
    assert got.keys() == params.keys()
    for key, value in params.items():
        np.testing.assert_array_equal(got[key], value)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"architecture": "bert"}, "architecture 'bert'; wanted 'llama'"),
        ({"without": ("block_count",)}, r"llama\.block_count None; wanted a positive"),
        ({"rope.dimension_count": 4}, "RoPE of 4 dimensions"),
        ({"rope.scaling.type": "yarn"}, "scaling 'yarn'"),
        ({"expert_count": 8}, "a mixture of experts"),
        ({"block_count": 2}, r"missing \(9\): .*blk\.1\.attn_k"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_what_the_network_cannot_express_is_refused(changes, message, file):
    write(file, weights(), **changes)
    with pytest.raises(CheckpointError, match=message):
        open_gguf(file)


def test_heads_that_do_not_divide_a_weight(file):
    tensors = weights()
    tensors["blk.0.attn_k"] = tensors["blk.0.attn_k"][:-1]
    with pytest.raises(CheckpointError, match=r"attn_k\.weight .* 2 heads of pairs"):
        open_gguf(write(file, tensors))


@pytest.mark.parametrize("size", [0, 3, 200, -300])
def test_a_cut_file_is_named(file, size):
    write(file, weights())
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"tiny\.gguf is no GGUF file, or dam"):
        open_gguf(file)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"no file .*nothing\.gguf"):
        open_gguf(tmp_path / "nothing.gguf")


def test_without_the_package_it_is_said_how_to_install_it(file, monkeypatch):
    write(file, weights())
    real = builtins.__import__

    def without_gguf(name, *args, **kwargs):
        if name == "gguf" or name.startswith("gguf."):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_gguf)
    with pytest.raises(ImportError, match="pip install gguf"):
        open_gguf(file)
