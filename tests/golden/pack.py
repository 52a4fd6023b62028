"""Pack the tests' golden data from the folder that t5x and transformers wrote.

Usage: python tests/golden/pack.py GOLDEN_FOLDER

The archives are deterministic: the same input gives the same bytes.
"""

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile

import msgpack
import numpy as np

OUTPUT = pathlib.Path(__file__).parent
MODELS = ("t5_1_1_target", "t5_1_1_draft", "t5_1_0_tied")
FORWARD = (
    "encoder_input_tokens",
    "decoder_input_tokens",
    "decoder_target_tokens",
    "decoder_loss_weights",
    "encoder_output",
    "decoder_logits",
    "loss_sum",
    "score_batch",
    "decoder_logits_bf16_checkpoint_params_f32_compute",
)
DECODE = (
    "encoder_input_tokens",
    "max_decode_length",
    "greedy_tokens",
    "greedy_scores_logprob",
    "greedy_lengths_including_eos",
    "greedy_step_logits",
    "prompt_decoder_input_tokens",
    "prompt_lengths",
    "prompted_greedy_tokens",
)
HF_ARRAYS = (
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "valid_decoder_positions",
    "logits",
    "encoder_last_hidden_state",
    "greedy_sequences",
)
MANIFEST = ("shape", "sha256_float32", "sha256_bfloat16")
TINY_ROWS = 256


def npz(path: pathlib.Path, keep) -> bytes:
    """The arrays of an .npz whose name `keep` accepts, as a new .npz."""
    buffer = io.BytesIO()
    with np.load(path) as arrays:
        np.savez_compressed(buffer, **{k: arrays[k] for k in arrays if keep(k)})
    return buffer.getvalue()


def manifest(path: pathlib.Path) -> bytes:
    """The configuration and each array's shape and sums, without the rest."""
    whole = json.loads(path.read_text())
    params = {
        name: {key: entry[key] for key in MANIFEST}
        for name, entry in whole["params"].items()
    }
    return json.dumps({"config": whole["config"], "params": params}).encode()


def tree(folder: pathlib.Path, inside: str) -> dict[str, bytes]:
    """Every file of a folder, by its name in the archive."""
    return {
        f"{inside}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tiny_one_file(path: pathlib.Path) -> tuple[bytes, bytes]:
    """t5x's `test_t5_tiny` with its tables cut to their first rows.

    Returns:
      The msgpack file and a JSON map of `/`-joined name to sha256 of the bytes.
    """

    def cut(array):
        axes = tuple(
            slice(TINY_ROWS) if size > TINY_ROWS else slice(None)
            for size in array.shape
        )
        return np.ascontiguousarray(array[axes])

    sums = {}

    def walk(node, name):
        if isinstance(node, dict):
            return {k: walk(v, f"{name}/{k}" if name else k) for k, v in node.items()}
        if isinstance(node, msgpack.ExtType) and node.code == 1:
            shape, dtype, data = msgpack.unpackb(node.data, raw=False)
            array = cut(np.frombuffer(data, dtype).reshape(shape))
            sums[name] = hashlib.sha256(array.tobytes()).hexdigest()
            packed = msgpack.packb((array.shape, dtype, array.tobytes()))
            return msgpack.ExtType(1, packed)
        return node

    whole = msgpack.unpackb(gzip.decompress(path.read_bytes()), raw=False)
    return msgpack.packb(walk(whole, "")), json.dumps(sums).encode()


def contents(golden: pathlib.Path) -> dict[str, dict[str, bytes]]:
    """What each archive holds."""
    t5x, hf = golden / "t5x", golden / "hf"
    models = {"relpos.npz": npz(t5x / "relpos.npz", lambda name: True)}
    for model in MODELS:
        source = t5x / model
        models[f"{model}/manifest.json"] = manifest(source / "manifest.json")
        models[f"{model}/forward.npz"] = npz(
            source / "forward.npz", FORWARD.__contains__
        )
        models[f"{model}/decode.npz"] = npz(source / "decode.npz", DECODE.__contains__)
    models["t5_1_1_target/long_packed.npz"] = npz(
        t5x / "t5_1_1_target/long_packed.npz", lambda name: True
    )
    models["t5_1_0_tied/long_packed.npz"] = npz(
        t5x / "t5_1_0_tied/long_packed.npz", lambda name: not name.startswith("packed")
    )

    folders = {"t5x_to_hf_names.json": (hf / "t5x_to_hf_names.json").read_bytes()}
    for folder in ("t5_1_1_gated_gelu", "t5_1_1_assistant", "t5_1_0_relu_tied"):
        for file in ("config.json", "config.v4_style.json", "model.safetensors"):
            folders[f"{folder}/{file}"] = (hf / folder / file).read_bytes()
        folders[f"{folder}/golden.npz"] = npz(
            hf / folder / "golden.npz", HF_ARRAYS.__contains__
        )

    draft = {}
    for kind in ("legacy_float32", "orbax"):
        draft |= tree(t5x / "t5_1_1_draft" / kind, kind)
    tied = {}
    for kind in ("legacy_float32", "legacy_bfloat16", "orbax"):
        tied |= tree(t5x / "t5_1_0_tied" / kind, kind)
    tiny, sums = tiny_one_file(golden / "t5x_testdata/test_t5_tiny.checkpoint_0.gz")
    return {
        "models": models,
        "hf": folders,
        "t5x_draft": draft,
        "t5x_tied": tied,
        "t5x_variants": tree(t5x / "variants", "."),
        "t5x_one_file": {"checkpoint_0": tiny, "sha256.json": sums},
    }


def write_archive(path: pathlib.Path, files: dict[str, bytes]) -> None:
    """A .tar.gz without times, owners or any other trace of the machine."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name.removeprefix("./"))
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    path.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


if __name__ == "__main__":
    for archive, files in contents(pathlib.Path(sys.argv[1])).items():
        write_archive(OUTPUT / f"{archive}.tar.gz", files)
