"""What load_params says when a checkpoint is not the one the model wants."""

import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, load_params
from spec_jax.checkpoints.validation import flatten, unflatten
from tests.golden import golden_path

DRAFT = "hf/t5_1_1_assistant"
TARGET = "hf/t5_1_1_gated_gelu"
TIED = "hf/t5_1_0_relu_tied"


def shapes(path, **changes):
    """The tree a model would expect, with shapes changed or None for removed."""
    flat = {
        name: jax.ShapeDtypeStruct(array.shape, np.float32)
        for name, array in flatten(load_params(golden_path(path))).items()
    }
    for name, shape in changes.items():
        flat[name] = jax.ShapeDtypeStruct(shape, np.float32)
    return unflatten(flat)


def test_a_checkpoint_of_the_wrong_size_names_everything():
    """BEHAVIOURS 29: the parameter, the path, both shapes, whose checkpoint it is."""
    path = golden_path("t5x_draft/legacy_float32")
    name = "decoder/layers_1/mlp/wo/kernel"
    for whose in ("target", "draft"):
        with pytest.raises(CheckpointError) as error:
            load_params(path, shapes(DRAFT, **{name: (64, 33)}), whose)
        message = str(error.value)
        assert f"does not fit the {whose} model" in message
        assert str(path / "checkpoint_1000") in message
        assert f"{name}: (64, 32) in the checkpoint, (64, 33) in the model" in message
        assert "missing" not in message and "not in the model" not in message


def test_missing_and_surplus_keys_are_listed():
    """BEHAVIOURS 29."""
    with pytest.raises(CheckpointError) as error:
        load_params(golden_path(DRAFT), shapes(TARGET), "draft")
    message = str(error.value)
    assert "missing from the checkpoint (32):" in message
    assert "decoder/layers_2/encoder_decoder_attention/key/kernel (64, 64)" in message
    assert "... and 28 more" in message
    with pytest.raises(CheckpointError, match=r"not in the model \(32\)"):
        load_params(golden_path(TARGET), shapes(DRAFT), "target")


def test_hint_at_tied_and_untied_embeddings():
    """BEHAVIOURS 29."""
    head = "decoder/logits_dense/kernel"
    with pytest.raises(CheckpointError, match=r"v1\.0.*logits_via_embedding=True") as e:
        load_params(golden_path(TIED), shapes(TIED, **{head: (48, 256)}))
    assert f"{head} (48, 256)" in str(e.value)
    tied = shapes(DRAFT)
    del tied["decoder"]["logits_dense"]
    with pytest.raises(CheckpointError, match=r"v1\.1.*logits_via_embedding=False"):
        load_params(golden_path(DRAFT), tied)


@pytest.mark.parametrize(
    ("path", "other", "hint"),
    [(TIED, DRAFT, r"\('relu',\)"), (DRAFT, TIED, r"\('gelu', 'linear'\)")],
)
def test_hint_at_gated_layers(path, other, hint):
    with pytest.raises(CheckpointError, match=f"mlp_activations={hint}"):
        load_params(golden_path(path), shapes(other))


@pytest.mark.parametrize("rows", [250, 260])
def test_tables_of_another_padding(rows):
    """Behaviour 28: one tokenizer, tables of different size."""
    tables = {
        "token_embedder/embedding": (rows, 32),
        "decoder/logits_dense/kernel": (32, rows),
    }
    want = shapes(DRAFT, **tables)
    with pytest.raises(CheckpointError, match="only the vocabulary differs"):
        load_params(golden_path(DRAFT), want, "draft")
    whole = load_params(golden_path(DRAFT))
    got = load_params(golden_path(DRAFT), want, "draft", resize_vocabulary=True)
    assert {k: v.shape for k, v in flatten(got).items()} == {
        k: v.shape for k, v in flatten(want).items()
    }
    kept = min(rows, 256)
    embedding = got["token_embedder"]["embedding"]
    np.testing.assert_array_equal(
        embedding[:kept], whole["token_embedder"]["embedding"][:kept]
    )
    assert not embedding[kept:].any()


def test_resizing_the_vocabulary_hides_no_other_difference():
    tables = {"token_embedder/embedding": (260, 33)}
    with pytest.raises(CheckpointError, match=r"embedding: \(260, 32\).*\(260, 33\)"):
        load_params(
            golden_path(DRAFT),
            shapes(DRAFT, **tables),
            resize_vocabulary=True,
        )


def test_dtype_is_the_stored_one_unless_asked_for():
    want = shapes(DRAFT)
    for dtype in (None, ml_dtypes.bfloat16, np.float64):
        got = load_params(golden_path(DRAFT), want, dtype=dtype)
        assert {leaf.dtype for leaf in jax.tree.leaves(got)} == {
            np.dtype(dtype or np.float32)
        }
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(got))


@pytest.mark.parametrize("name", ["nothing_here", "empty"])
def test_no_checkpoint_at_the_path(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CheckpointError, match=rf"no checkpoint at .*{name}; wanted"):
        load_params(tmp_path / name)


def test_a_url_that_tensorstore_does_not_know():
    with pytest.raises(CheckpointError, match="nonsense"):
        load_params("nonsense://bucket/model")


def test_loading_needs_no_foreign_framework():
    code = (
        "import sys, spec_jax.checkpoints;"
        "print({'torch', 'transformers', 't5x', 'tensorflow'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
