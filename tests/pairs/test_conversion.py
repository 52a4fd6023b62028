"""Checkpoints turned into other forms and back, bit for bit."""

import json
import os
import shutil

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from spec_jax.checkpoints import (
    load_huggingface,
    load_params,
    save,
    save_weights,
    weights_metadata,
)
from spec_jax.checkpoints.loading import HUGGINGFACE, LEGACY, OWN, OWN_ORBAX
from spec_jax.checkpoints.validation import flatten, unflatten
from spec_jax.models.t5 import T5Config, Transformer
from spec_jax.pairs import parameter_shapes, save_model
from spec_jax.pairs.conversion import FORMS, convert
from spec_jax.pairs.folders import read_model_config
from spec_jax.pairs.vocabularies import find_vocabulary
from tests.golden import golden_path

SOURCES = {
    "legacy": "t5x_draft/legacy_float32",
    "legacy tied": "t5x_tied/legacy_float32",
    "legacy bfloat16 tied": "t5x_tied/legacy_bfloat16",
    "legacy bfloat16": "t5x_variants/draft_legacy_bfloat16_params_only_many_chunks",
    "orbax": "t5x_draft/orbax",
    "one file": "t5x_one_file/checkpoint_0",
    "hf": "hf/t5_1_1_assistant",
    "hf tied": "hf/t5_1_0_relu_tied",
}

SMALL = {
    "vocab_size": 16,
    "emb_dim": 8,
    "num_heads": 1,
    "head_dim": 8,
    "mlp_dim": 8,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
}


def save_own(folder, config):
    shapes = parameter_shapes(config)
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), shapes)
    save_model(folder, params, config, "float32")


def equal(got, want):
    got, want = flatten(load_params(got)), flatten(load_params(want))
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name].dtype == value.dtype, name
        np.testing.assert_array_equal(got[name], value, name)


@pytest.mark.parametrize("source", SOURCES)
def test_round_trip_through_every_form(source, tmp_path):
    start = golden_path(SOURCES[source])
    last = start
    for number, form in enumerate((*FORMS, "own", "huggingface", "t5x")):
        done = convert(last, tmp_path / str(number), form)
        equal(done.destination, start)
        last = tmp_path / str(number)
    assert not [name for name in os.listdir(tmp_path) if "tmp" in name]


@pytest.mark.parametrize("folder", ["t5_1_1_assistant", "t5_1_0_relu_tied"])
def test_hugging_face_to_t5x_and_back_is_the_same_file(folder, tmp_path):
    start = golden_path(f"hf/{folder}")
    convert(start, tmp_path / "t5x", "t5x", step=3)
    convert(tmp_path / "t5x", tmp_path / "hf", "huggingface")
    ours, theirs = (
        (place / "model.safetensors").read_bytes() for place in (tmp_path / "hf", start)
    )
    assert ours == theirs
    assert load_huggingface(tmp_path / "hf")[1] == load_huggingface(start)[1]


@pytest.mark.parametrize("folder", ["t5_1_1_assistant", "t5_1_0_relu_tied"])
def test_hugging_face_to_ours_gives_its_logits(folder, tmp_path):
    start = golden_path(f"hf/{folder}")
    convert(start, tmp_path / "ours", "own")
    config = read_model_config(tmp_path / "ours")
    with np.load(start / "golden.npz") as golden:
        logits = Transformer(config).apply(
            {"params": load_params(tmp_path / "ours")},
            jnp.asarray(golden["input_ids"]),
            jnp.asarray(golden["decoder_input_ids"]),
        )
        valid = golden["valid_decoder_positions"].astype(bool)
        np.testing.assert_allclose(
            np.asarray(logits)[valid], golden["logits"][valid], rtol=0, atol=1e-3
        )


def test_what_it_says_it_did(tmp_path):
    done = convert(golden_path(SOURCES["legacy"]), tmp_path / "a", "t5x")
    assert done.kind == LEGACY and done.copied == ()
    assert done.source == str(golden_path("t5x_draft/legacy_float32/checkpoint_1000"))
    assert done.destination == str(tmp_path / "a/checkpoint_1000")
    assert (done.num_parameters, done.num_bytes) == (55744, 4 * 55744)
    assert done.dtypes == ("float32",)
    assert done.config.num_decoder_layers == 2 and done.config.dtype == jnp.float32


def test_dtype(tmp_path):
    start = golden_path(SOURCES["legacy"])
    want = flatten(load_params(start, dtype=ml_dtypes.bfloat16))
    for form in FORMS:
        done = convert(start, tmp_path / form, form, dtype="bfloat16")
        assert done.dtypes == ("bfloat16",) and done.num_bytes == 2 * 55744
        for name, value in flatten(load_params(tmp_path / form)).items():
            assert value.dtype == ml_dtypes.bfloat16
            np.testing.assert_array_equal(value, want[name])
    assert read_model_config(tmp_path / "own").dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("destination", "step", "written"),
    [
        ("a", None, "a/checkpoint_1000"),
        ("a", 5, "a/checkpoint_5"),
        ("a/", 0, "a/checkpoint_0"),
        ("a/checkpoint_7", None, "a/checkpoint_7"),
        ("checkpoint_7/", 7, "checkpoint_7"),
    ],
)
def test_steps(destination, step, written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = convert(golden_path(SOURCES["legacy"]), destination, "t5x", step=step)
    assert done.destination == str(tmp_path / written)
    assert (tmp_path / written / "checkpoint").is_file()


def test_two_steps_side_by_side(tmp_path):
    for step in (1, 2):
        convert(golden_path(SOURCES["legacy"]), tmp_path / "a", "t5x", step=step)
    assert sorted(os.listdir(tmp_path / "a")) == ["checkpoint_1", "checkpoint_2"]


def test_the_vocabulary_goes_along(tmp_path):
    start = shutil.copytree(golden_path("t5x_draft/legacy_float32"), tmp_path / "start")
    (start / "tokenizer.json").write_text("{}")
    (start / "tokenizer_config.json").write_text("[]")
    (start / "README.md").write_text("not a vocabulary")
    last = start
    for form in (*FORMS, "own"):
        done = convert(last, tmp_path / "models" / f"{form}-{last.name}", form)
        assert done.copied == ("tokenizer.json", "tokenizer_config.json")
        last = tmp_path / "models" / f"{form}-{last.name}"
    assert (last / "tokenizer_config.json").read_text() == "[]"
    assert not (last / "README.md").exists()


def test_ours_keeps_what_only_it_knows(tmp_path):
    """The vocabulary that a model was trained with, and fields no array tells."""
    convert(golden_path(SOURCES["hf"]), tmp_path / "a", "own")
    file = tmp_path / "a/t5_config.json"
    fields = json.loads(file.read_text()) | {"float32_attention_logits": True}
    file.write_text(json.dumps(fields))
    weights = tmp_path / "a/params.safetensors"
    save_weights(weights, load_params(weights), {"vocabulary_sha256": "abc"})
    convert(tmp_path / "a", tmp_path / "b", "own")
    assert json.loads((tmp_path / "b/t5_config.json").read_text()) == fields
    metadata = weights_metadata(tmp_path / "b/params.safetensors")
    assert metadata == {"vocabulary_sha256": "abc"}


def test_our_orbax(tmp_path):
    save(tmp_path / "orbax", load_params(golden_path(SOURCES["hf tied"])))
    done = convert(tmp_path / "orbax", tmp_path / "own", "own")
    assert done.kind == OWN_ORBAX and done.config.logits_via_embedding
    equal(tmp_path / "own", golden_path(SOURCES["hf tied"]))
    assert convert(tmp_path / "own", tmp_path / "x", "t5x").kind == OWN


def test_half_precision_of_a_network_that_cannot_compute_in_it(tmp_path):
    params, _ = load_huggingface(golden_path(SOURCES["hf"]), np.float16)
    save_weights(tmp_path / "a.safetensors", params)
    done = convert(tmp_path / "a.safetensors", tmp_path / "b", "own")
    assert done.dtypes == ("float16",)
    assert read_model_config(tmp_path / "b").dtype == jnp.bfloat16
    # t5x's own tree has no config: HF's kind is read by its own.
    assert (
        convert(golden_path(SOURCES["hf"]), tmp_path / "c", "t5x").kind == HUGGINGFACE
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"form": "gguf"}, "want one of the forms own, t5x, huggingface, got 'gguf'"),
        ({"dtype": "int8"}, "want one of the dtypes float32, bfloat16, got 'int8'"),
        ({"form": "own", "step": 3}, "a step is t5x's alone"),
        ({"destination": "checkpoint_7", "step": 8}, "checkpoint_7 is another step"),
        ({"step": -1}, "step -1; wanted"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {
        "source": golden_path(SOURCES["legacy"]),
        "destination": "a",
        "form": "t5x",
    }
    with pytest.raises(ValueError, match=message):
        convert(**given | arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("form", FORMS)
def test_arrays_that_are_not_those_of_the_config(form, tmp_path):
    convert(golden_path(SOURCES["hf"]), tmp_path / "a", "own")
    file = tmp_path / "a/t5_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"mlp_dim": 65}))
    with pytest.raises(ValueError, match=r"wi_0/kernel: \(32, 64\) in the checkpoint"):
        convert(tmp_path / "a", tmp_path / "b", form)
    assert os.listdir(tmp_path) == ["a"]


def test_shapes_alone_are_checked_before_anything_is_read(tmp_path):
    params = load_params(golden_path(SOURCES["hf"]))
    del params["decoder"]["decoder_norm"]
    save_weights(tmp_path / "a.safetensors", params)
    with pytest.raises(ValueError, match=r"missing [^/]*decoder/decoder_norm/scale"):
        convert(tmp_path / "a.safetensors", tmp_path / "b", "own")


def test_a_config_that_is_no_t5s(tmp_path):
    convert(golden_path(SOURCES["hf"]), tmp_path / "a", "own")
    (tmp_path / "a/t5_config.json").write_text('{"vocab_size": 256, "wings": 2}')
    with pytest.raises(ValueError, match=r"is no T5: .*wings"):
        convert(tmp_path / "a", tmp_path / "b", "own")


def test_the_vocabulary_is_found_again(tmp_path):
    """Also where the path names the folder of the steps."""
    convert("spec_jax://pretrained/draft", tmp_path / "models/t5x", "t5x", step=3)
    copied = tmp_path / "models/t5x/checkpoint_3/vocabulary.model"
    for path in (tmp_path / "models/t5x", copied.parent):
        assert find_vocabulary(path).path == str(copied)


@pytest.mark.parametrize("name", ["spiece.model", "special_tokens_map.json"])
@pytest.mark.parametrize("form", FORMS)
def test_a_link_out_of_the_checkpoint_is_not_copied(name, form, tmp_path):
    start = shutil.copytree(golden_path(SOURCES["hf"]), tmp_path / "a")
    (start / "tokenizer.json").write_text("{}")
    (tmp_path / "secret").write_text("x")
    (start / name).symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match=f"{name} is a link that leads out") as caught:
        convert(start, tmp_path / "b", form)
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["a", "secret"]


def test_the_links_of_a_hub_s_cache_are_followed(tmp_path):
    start = tmp_path / "snapshots/abc"
    shutil.copytree(golden_path(SOURCES["hf"]), start)
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs/1").write_text("{}")
    (start / "tokenizer.json").symlink_to("../../blobs/1")
    assert convert(start, tmp_path / "b", "own").copied == ("tokenizer.json",)
    assert not (tmp_path / "b/tokenizer.json").is_symlink()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mlp_activations": ["silu", "linear"]}, r"mlp_activations \('silu', 'lin"),
        ({"relative_attention_max_distance": 64}, r"max_distance 64 \(T5: 128\)"),
        ({"relative_attention_num_buckets": 16}, r"num_buckets 16 \(T5: 32\)"),
    ],
)
def test_what_t5x_cannot_hold_is_not_lost_silently(fields, message, tmp_path):
    config = T5Config(**{**SMALL, **fields})
    save_own(tmp_path / "a", config)
    with pytest.raises(ValueError, match=f"t5x's format holds no config, .*{message}"):
        convert(tmp_path / "a", tmp_path / "b", "t5x")
    assert os.listdir(tmp_path) == ["a"]
    assert convert(tmp_path / "a", tmp_path / "b", "own").config == config
    if "mlp_activations" in fields:
        with pytest.raises(ValueError, match="Hugging Face's T5 has one of"):
            convert(tmp_path / "a", tmp_path / "c", "huggingface")
    else:
        convert(tmp_path / "a", tmp_path / "c", "huggingface")
        described = json.loads((tmp_path / "c/config.json").read_text())
        assert described.items() >= fields.items()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("stored", "dtype", "large"),
    [("float32", "bfloat16", 3.4e38), ("float64", "float32", 1e300)],
)
@pytest.mark.filterwarnings("error")
def test_numbers_beyond_the_range_are_not_made_infinite(
    form, stored, dtype, large, tmp_path
):
    params = flatten(load_params(golden_path(SOURCES["hf"])))
    params = {name: value.astype(stored) for name, value in params.items()}
    scale = params["encoder/encoder_norm/scale"]
    scale[1:3] = -large, np.inf
    save_weights(tmp_path / "a.safetensors", unflatten(params))
    message = f"encoder.*norm.* holds numbers beyond the range of {dtype}"
    with pytest.raises(ValueError, match=message):
        convert(tmp_path / "a.safetensors", tmp_path / "b", form, dtype=dtype)
    assert os.listdir(tmp_path) == ["a.safetensors"]
    scale[1] = 1
    save_weights(tmp_path / "a.safetensors", unflatten(params))
    convert(tmp_path / "a.safetensors", tmp_path / "b", form, dtype=dtype)


def test_more_layers_than_there_are_arrays(tmp_path):
    save_own(tmp_path / "a", T5Config(**SMALL))
    file = tmp_path / "a/t5_config.json"
    fields = json.loads(file.read_text()) | {"num_encoder_layers": 3_000_000}
    file.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="3000000 layers, but there are 29 arrays"):
        convert(tmp_path / "a", tmp_path / "b", "own")


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_destination(form):
    with pytest.raises(ValueError, match="want a path to write to, got an empty one"):
        convert("spec_jax://pretrained/draft", "", form)


def test_transformers_finds_the_vocabulary_by_its_name(tmp_path):
    source = "spec_jax://pretrained/draft"
    start = find_vocabulary(source)
    done = convert(source, tmp_path / "models/hf", "huggingface")
    assert done.copied == ("spiece.model", "tokenizer_config.json")
    content = json.loads((tmp_path / "models/hf/tokenizer_config.json").read_text())
    assert content == {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}
    for form in ("own", "t5x", "huggingface"):
        assert not (tmp_path / "models/hf/vocabulary.model").exists()
        assert find_vocabulary(done.destination) == start
        done = convert(done.destination, tmp_path / f"models/{form}", form)
        assert done.copied == ("spiece.model", "tokenizer_config.json")


def test_settings_beside_a_vocabulary_are_kept(tmp_path):
    start = shutil.copytree(golden_path(SOURCES["hf"]), tmp_path / "a")
    shutil.copy(find_vocabulary("spec_jax://pretrained/draft").path, start)
    (start / "tokenizer_config.json").write_text('{"extra_ids": 7}')
    done = convert(start, tmp_path / "b", "huggingface")
    assert done.copied == ("spiece.model", "tokenizer_config.json")
    assert (tmp_path / "b/tokenizer_config.json").read_text() == '{"extra_ids": 7}'
    assert find_vocabulary(tmp_path / "b") == find_vocabulary(start)


@pytest.mark.needs_t5x
@pytest.mark.parametrize("source", ["legacy", "legacy tied", "legacy bfloat16 tied"])
def test_t5x_reads_its_own_parameters_again(source, tmp_path):
    from t5x.checkpoints import load_t5x_checkpoint

    start = golden_path(SOURCES[source]) / "checkpoint_1000"
    convert(start, tmp_path / "own", "own")
    done = convert(tmp_path / "own", tmp_path / "t5x", "t5x", step=1000)
    want = flatten(load_t5x_checkpoint(str(start))["target"])
    got = load_t5x_checkpoint(done.destination)
    assert got["state"].keys() == {"step"} and int(got["state"]["step"]) == 1000
    got = flatten(got["target"])
    assert got.keys() == want.keys()
    for name, value in want.items():
        assert got[name].dtype == value.dtype, name
        np.testing.assert_array_equal(got[name], value)
