"""`spec-jax inspect` through the command line."""

import json
import pathlib
import shutil

import pytest

from spec_jax.checkpoints import (
    infer_config,
    load_params,
    save_t5x,
    save_weights,
)
from spec_jax.checkpoints.validation import flatten
from spec_jax.cli.configuration import shipped_folder
from spec_jax.cli.model_names import matching_models
from spec_jax.models.t5 import T5Config
from spec_jax.pairs import parameter_shapes
from tests.golden import golden_path

LEGACY = "t5x_draft/legacy_float32"
KERNEL = "target.decoder.layers_1.mlp.wi_0.kernel"


@pytest.fixture
def legacy(tmp_path):
    source = golden_path(f"{LEGACY}/checkpoint_1000")
    return pathlib.Path(shutil.copytree(source, tmp_path / "checkpoint_1000"))


def fact(out, name):
    """The text of one fact, in one line."""
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"{name} "))
    words = [lines[start].removeprefix(name).strip()]
    for line in lines[start + 1 :]:
        if not line.startswith(" ") or not line.strip():
            break
        words.append(line.strip())
    return " ".join(words)


def test_the_shipped_target(run):
    done = run("inspect", "spec_jax://pretrained/target")
    assert done.status == 0 and not done.err
    assert fact(done.out, "kind") == "folder of spec_jax"
    assert fact(done.out, "parameters") == (
        "12,493,312 (bfloat16), 25.0 MB; 25.0 MB on disk"
    )
    assert fact(done.out, "model") == (
        "T5 1.1, 3 encoder and 8 decoder layers, width 256, 8 heads of 32, MLP 640 "
        "gelu-linear, vocabulary 4096, logits apart from the embedding (from "
        "t5_config.json)"
    )
    assert "models/shipped_target.gin" in fact(done.out, "gin file")
    assert fact(done.out, "vocabulary").endswith("vocabulary.model")
    assert fact(done.out, "problems") == "none; every number was read"


def test_equal_layers_are_one_row(run):
    done = run("inspect", golden_path(LEGACY))
    assert fact(done.out, "kind") == "t5x's legacy format, step 1000"
    assert fact(done.out, "gin file") == "none of those shipped"
    assert fact(done.out, "vocabulary") == "none found beside it"
    lines = [line.split() for line in done.out.splitlines() if line.strip()]
    rows = {first: rest for first, *rest in lines}
    row = rows["decoder/layers_*/mlp/wi_0/kernel"]
    assert row == ["32", "x", "64", "float32", "2", "4,096"]
    assert rows["decoder/decoder_norm/scale"] == ["32", "float32", "32"]


def test_json(run):
    done = run("inspect", "--json", golden_path("hf/t5_1_0_relu_tied"))
    found = json.loads(done.out)
    assert found["num_parameters"] == 86848 and len(found["arrays"]) == 47
    assert found["config"]["logits_via_embedding"] is True
    assert found["gin_files"] == [] and found["problems"] == []


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_decoder_only_model_is_told(run, name):
    done = run("inspect", golden_path(f"causal_lm/{name}"))
    assert done.status == 0
    assert fact(done.out, "kind") == "Hugging Face folder of a decoder-only model"
    assert "decoder-only, 2 layers, width 24" in fact(done.out, "model")
    assert "gin file" not in done.out


def test_damage_is_shown_and_ends_in_an_error(run, legacy):
    chunk = legacy / KERNEL / "0.0"
    chunk.write_bytes(chunk.read_bytes()[:50])
    shutil.rmtree(legacy / "target.encoder.encoder_norm.scale")
    done = run("inspect", legacy)
    assert done.status == 2
    assert "wi_0/kernel" in fact(done.out, "problems")
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: {legacy}: encoder/encoder_norm/scale cannot be")
    assert line.endswith(", and 1 problem more")
    unread = run("inspect", legacy, "--nocheck")
    assert "wi_0/kernel" not in fact(unread.out, "problems") + unread.err


@pytest.mark.parametrize("name", ["hf/t5_1_1_assistant", "causal_lm/llama"])
def test_no_list_is_made_of_layers_that_cannot_be_there(run, tmp_path, name):
    folder = shutil.copytree(golden_path(name), tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    config |= {"num_layers": 10**12, "num_hidden_layers": 10**12}
    (folder / "config.json").write_text(json.dumps(config))
    done = run("inspect", folder)
    assert done.status == 2
    assert "config.json: 1000000000000 layers, but there are " in done.err
    assert len(done.err.splitlines()) == 1


def test_no_list_is_made_of_layers_of_ours_that_cannot_be_there(run, tmp_path):
    run("convert", golden_path("hf/t5_1_1_assistant"), tmp_path / "a", "--to=own")
    file = tmp_path / "a/t5_config.json"
    fields = json.loads(file.read_text()) | {"num_decoder_layers": 10**12}
    file.write_text(json.dumps(fields))
    done = run("inspect", tmp_path / "a")
    assert "the config: 1000000000000 layers, but there are " in done.err


@pytest.mark.filterwarnings("error")
def test_large_numbers_of_double_precision_are_finite(run, tmp_path):
    params = load_params(golden_path("hf/t5_1_1_assistant"), dtype="float64")
    params["encoder"]["encoder_norm"]["scale"][:2] = 1e300, -1e300
    save_weights(tmp_path / "a.safetensors", params)
    done = run("inspect", tmp_path / "a.safetensors")
    assert fact(done.out, "problems") == "none; every number was read"


def test_a_vocabulary_that_leads_out_is_a_problem(run, tmp_path):
    folder = shutil.copytree(golden_path("hf/t5_1_1_assistant"), tmp_path / "a")
    (tmp_path / "secret").write_text("x")
    (folder / "spiece.model").symlink_to(tmp_path / "secret")
    done = run("inspect", folder)
    assert done.status == 2
    assert "spiece.model is a link that leads out" in done.err
    assert fact(done.out, "vocabulary") == "none found beside it"


def test_what_was_not_read_is_told(run):
    done = run("inspect", golden_path(LEGACY), "--nocheck")
    assert fact(done.out, "problems") == "none; no number was read: --check"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([""], "want a path, got an empty one"),
        ([], "want one PATH, got 0: spec-jax inspect"),
        (["a", "b"], "want one PATH, got 2"),
        (["nowhere"], "no checkpoint at"),
        (["empty"], "no checkpoint at"),
        (["checkpoint_1000/checkpoint"], "is cut short"),
        (["a.gguf"], "a.gguf"),
        (["nonsense://bucket"], "nonsense"),
        (["a.safetensors"], "a.safetensors is cut or damaged"),
        (["--jsn", "empty"], "did you mean --json?"),
    ],
)
def test_bad_input(fails, legacy, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    index = legacy / "checkpoint"
    index.write_bytes(index.read_bytes()[:100])
    assert message in fails("inspect", *words)


def test_every_shipped_model_is_found_by_its_sizes(run, tmp_path):
    """Through a checkpoint too, for one that is small enough to write."""
    folder = shipped_folder()
    files = [str(f.relative_to(folder)) for f in (folder / "models").rglob("*.gin")]
    known = {
        "models/shipped_draft.gin",
        *(f"models/t5_1_0/{size}.gin" for size in ("small", "base", "large")),
        *(f"models/t5_1_1/{size}.gin" for size in ("small", "base", "xxl")),
    }
    assert known <= set(files)
    small = {
        "vocab_size": 32128,
        "emb_dim": 512,
        "num_heads": 6,
        "head_dim": 64,
        "mlp_dim": 1024,
        "num_encoder_layers": 8,
        "num_decoder_layers": 8,
    }
    names = matching_models(small, folder)
    assert set(names) == {"models/flan_t5/small.gin", "models/t5_1_1/small.gin"}
    inferred = infer_config(flatten(parameter_shapes(T5Config(**small))))
    assert matching_models(inferred, folder) == names
    assert matching_models(small | {"mlp_dim": 1025}, folder) == ()
    old = small | {
        "num_heads": 8,
        "mlp_dim": 2048,
        "num_encoder_layers": 6,
        "num_decoder_layers": 6,
        "mlp_activations": ("relu",),
        "logits_via_embedding": True,
    }
    assert matching_models(old, folder) == ("models/t5_1_0/small.gin",)
    assert matching_models(small | {"vocab_size": 250112}, folder) == (
        "models/mt5/small.gin",
    )


def test_a_checkpoint_written_here(run, tmp_path):
    save_t5x(tmp_path, load_params(golden_path("hf/t5_1_0_relu_tied")), step=12)
    (tmp_path / "spiece.model").write_text("")
    done = run("inspect", tmp_path)
    assert fact(done.out, "kind") == "t5x's legacy format, step 12"
    assert fact(done.out, "vocabulary") == str(tmp_path / "spiece.model")
    assert fact(done.out, "model").startswith("T5 1.0, 2 encoder and 2 decoder layers")
