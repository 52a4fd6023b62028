"""What describe_checkpoint says of whole and of damaged checkpoints."""

import pathlib
import shutil
import zipfile

import numpy as np
import pytest

from spec_jax.checkpoints import (
    CheckpointError,
    TrainingCheckpoints,
    load_params,
    loading,
    save,
    save_t5x,
    save_weights,
)
from spec_jax.checkpoints import describe as module
from spec_jax.checkpoints.describe import DECODER_ONLY, describe_checkpoint
from spec_jax.checkpoints.vocabulary_files import vocabulary_files
from tests.golden import golden_path

KERNEL = "target.decoder.layers_1.mlp.wi_0.kernel"
GOLDEN = {
    "t5x_draft/legacy_float32": (loading.LEGACY, 1000, 55744, "float32"),
    "t5x_tied/legacy_bfloat16": (loading.LEGACY, 1000, 86848, "bfloat16"),
    "t5x_draft/legacy_float32/checkpoint_1000/checkpoint": (
        *(loading.LEGACY, 1000, 55744, "float32"),
    ),
    "t5x_tied/orbax": (loading.T5X_ORBAX, 1000, 86848, "float32"),
    "t5x_one_file/checkpoint_0": (loading.ONE_FILE, 0, 8288, "float32"),
    "hf/t5_1_1_gated_gelu": (loading.HUGGINGFACE, None, 329024, "float32"),
    "causal_lm/llama": (DECODER_ONLY, None, None, "float32"),
    "causal_lm/gpt2": (DECODER_ONLY, None, 17952, "float32"),
}


@pytest.fixture
def legacy(tmp_path):
    source = golden_path("t5x_draft/legacy_float32")
    return pathlib.Path(shutil.copytree(source, tmp_path / "model"))


@pytest.mark.parametrize("path", GOLDEN)
def test_golden_checkpoints(path):
    kind, step, size, dtype = GOLDEN[path]
    summary = describe_checkpoint(golden_path(path))
    assert (summary.kind, summary.step) == (kind, step)
    assert summary.problems == () and summary.was_read
    assert list(summary.dtypes) == [dtype]
    if size is not None:
        assert summary.num_parameters == sum(a.size for a in summary.arrays) == size
    itemsize = 2 if dtype == "bfloat16" else 4
    assert summary.num_bytes == itemsize * summary.num_parameters
    assert summary.disk_bytes > 1000
    assert summary.config["emb_dim"] in (8, 24, 32, 48, 64)


def test_our_own_forms(tmp_path):
    params = load_params(golden_path("hf/t5_1_0_relu_tied"))
    save(tmp_path / "orbax", params)
    save_weights(tmp_path / "a.safetensors", params)
    with TrainingCheckpoints(tmp_path / "run") as run:
        run.save(7, {"params": params}, {})
    save_t5x(tmp_path / "t5x", params)
    for name, kind, step in (
        ("orbax", loading.OWN_ORBAX, None),
        ("a.safetensors", loading.WEIGHTS_FILE, None),
        ("run", loading.TRAINING, 7),
        ("t5x", loading.LEGACY, 0),
    ):
        summary = describe_checkpoint(tmp_path / name)
        assert (summary.kind, summary.step) == (kind, step)
        assert summary.num_parameters == 86848 and summary.problems == ()
        assert summary.config_from == "the arrays"
        assert summary.config["mlp_activations"] == ("relu",)


def test_the_shipped_target():
    folder = pathlib.Path(module.__file__).parent.parent / "pretrained/target"
    summary = describe_checkpoint(folder)
    assert summary.kind == loading.OWN and summary.config_from == "t5_config.json"
    assert summary.dtypes == {"bfloat16": 12_493_312}
    assert summary.vocabulary == (str(folder.parent / "vocabulary.model"),)


def test_a_url_is_not_read_unless_asked_to(legacy, tmp_path):
    summary = describe_checkpoint(f"file://{legacy}")
    assert summary.was_read  # a file is local, however it is named
    file = tmp_path / "model.zip"
    with zipfile.ZipFile(file, "w", strict_timestamps=False) as archive:
        for path in legacy.rglob("*"):
            archive.write(path, path.relative_to(legacy))
    summary = describe_checkpoint(f"file://{file}|zip:")
    assert not summary.was_read and summary.disk_bytes is None
    assert summary.num_parameters == 55744 and summary.vocabulary == ()


def test_a_large_checkpoint_is_not_read_unless_asked_to(legacy, monkeypatch):
    (legacy / "checkpoint_1000" / KERNEL / "0.0").write_bytes(b"")
    monkeypatch.setattr(module, "READ_BYTES", 1000)
    summary = describe_checkpoint(legacy)
    assert not summary.was_read and summary.problems == ()
    assert describe_checkpoint(legacy, read=True).problems
    monkeypatch.setattr(module, "READ_BYTES", 10**9)
    assert not describe_checkpoint(legacy, read=False).problems


@pytest.mark.parametrize("kept", [None, 0, 100])
def test_a_missing_or_cut_chunk(legacy, kept):
    chunk = legacy / "checkpoint_1000" / KERNEL / "0.0"
    data = chunk.read_bytes()
    chunk.unlink()
    if kept is not None:
        chunk.write_bytes(data[:kept])
    (problem,) = describe_checkpoint(legacy).problems
    assert "decoder/layers_1/mlp/wi_0/kernel" in problem and "0.0" in problem


def test_missing_arrays(legacy):
    """Each is told, and the shape is still known from the others."""
    for name in (KERNEL, "target.encoder.encoder_norm.scale"):
        shutil.rmtree(legacy / "checkpoint_1000" / name)
    summary = describe_checkpoint(legacy)
    first, second = summary.problems
    assert first.startswith("decoder/layers_1/mlp/wi_0/kernel cannot be opened")
    assert second.startswith("encoder/encoder_norm/scale cannot be opened")
    assert summary.config["num_decoder_layers"] == 2
    assert summary.num_parameters == 55744 - 32 * 64 - 32


def test_arrays_that_do_not_fit_each_other(tmp_path):
    params = load_params(golden_path("hf/t5_1_1_assistant"))
    del params["decoder"]["layers_0"]["mlp"]
    params["decoder"]["layers_1"]["mlp"]["wo"]["kernel"] = np.ones((3, 32), np.float32)
    params["wings"] = np.ones(3, np.float32)
    save_weights(tmp_path / "a.safetensors", params)
    assert describe_checkpoint(tmp_path / "a.safetensors").problems == (
        "missing: decoder/layers_0/mlp/wi_0/kernel, decoder/layers_0/mlp/wi_1/kernel, "
        "decoder/layers_0/mlp/wo/kernel",
        "not of this network: wings",
        "decoder/layers_1/mlp/wo/kernel is (3, 32), wanted (64, 32)",
    )


def test_numbers_that_are_not_finite(tmp_path):
    params = load_params(golden_path("hf/t5_1_1_assistant"))
    params["decoder"]["decoder_norm"]["scale"][3:5] = np.nan, np.inf
    save_weights(tmp_path / "a.safetensors", params)
    (problem,) = describe_checkpoint(tmp_path / "a.safetensors").problems
    assert problem == "decoder/decoder_norm/scale has 2 numbers that are not finite"


def test_arrays_of_another_network(tmp_path):
    save_weights(tmp_path / "a.safetensors", {"a": np.ones((2, 3), np.int8)})
    summary = describe_checkpoint(tmp_path / "a.safetensors")
    assert summary.config is None and summary.num_bytes == 6
    assert "wanted those of a T5" in summary.problems[0]


def test_a_hugging_face_folder_that_lacks_tensors(tmp_path):
    folder = shutil.copytree(golden_path("hf/t5_1_1_assistant"), tmp_path / "a")
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"num_layers": 1', '"num_layers": 2'))
    summary = describe_checkpoint(folder)
    assert summary.config["num_encoder_layers"] == 2
    assert "missing (9): ['encoder.block.1.layer.0" in summary.problems[0]
    assert any(array.name == "shared.weight" for array in summary.arrays)


@pytest.mark.parametrize("content", [None, b"\x81"])
def test_what_cannot_be_opened_at_all(legacy, content):
    index = legacy / "checkpoint_1000/checkpoint"
    index.unlink()
    if content:
        index.write_bytes(content)
    with pytest.raises(CheckpointError, match="is cut" if content else "no checkpoint"):
        describe_checkpoint(legacy)


@pytest.mark.parametrize("where", ["model/checkpoint_1000", "model", None])
def test_the_vocabulary_beside_it(legacy, tmp_path, where):
    for name in ("tokenizer.json", "special_tokens_map.json"):
        (tmp_path / (where or ".") / name).write_text("{}")
    (tmp_path / "vocabulary.txt").write_text("")
    found = describe_checkpoint(legacy).vocabulary
    names = [pathlib.Path(file).name for file in found]
    assert names == (["tokenizer.json", "special_tokens_map.json"] if where else [])


def test_the_nearest_vocabulary_wins(tmp_path):
    (tmp_path / "model").mkdir()
    for folder in (tmp_path, tmp_path / "model"):
        (folder / "spiece.model").write_text("")
    (tmp_path / "sentencepiece.model").write_text("")
    assert vocabulary_files(tmp_path / "model") == (tmp_path / "model/spiece.model",)
    assert vocabulary_files(tmp_path / "model/a.safetensors") == (
        tmp_path / "model/spiece.model",
    )


def test_the_settings_of_a_byt5_are_its_vocabulary(tmp_path):
    file = tmp_path / "tokenizer_config.json"
    file.write_text('{"tokenizer_class": "T5Tokenizer"}')
    assert vocabulary_files(tmp_path) == ()
    file.write_text('{"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}')
    assert vocabulary_files(tmp_path) == (file,)
