"""`spec-jax distill`: what it reads, what it leaves, and what it refuses."""

import json

import numpy as np
import pytest

from spec_jax.checkpoints import load_params
from spec_jax.cli.distill import without_held_out
from spec_jax.data.examples import Example, read_rows
from spec_jax.pairs import load_pair
from spec_jax.training.distill import HeldOut

SMALL = [
    "--gin.BATCH_TOKENS=64",
    "--gin.CHECKPOINT_PERIOD=2",
    "--gin.EVAL_PERIOD=2",
    "--gin.NUM_VALIDATION=2",
    "--gin.DTYPE=float32",
    "--gin.TASK_FEATURE_LENGTHS={'inputs': 24, 'targets': 12}",
]


@pytest.fixture
def task_file(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text("".join(f"Open file {i}.\tDatei {i}\n" for i in range(8)))
    return path


def checkpoints(pair_flags):
    named = dict(flag.partition("=")[::2] for flag in pair_flags)
    return named["--gin.TARGET_CHECKPOINT"], named["--gin.DRAFT_CHECKPOINT"]


@pytest.mark.slow
@pytest.mark.parametrize("outputs", ["target", "task"])
def test_a_draft_is_distilled_and_decodes(
    run, fails, pair_flags, vocabulary_path, task_file, tmp_path, outputs
):
    folder = tmp_path / "model"
    command = [
        "distill",
        *pair_flags,
        *SMALL,
        f"--gin.TASK_FILE={task_file}",
        f"--gin.OUTPUTS={outputs}",
        f"--gin.MODEL_DIR={folder}",
    ]
    first = run(*command, "--gin.TRAIN_STEPS=2")
    assert first.status == 0, first
    second = run(*command, "--gin.TRAIN_STEPS=3", "--gin.LEARNING_RATE=0.5")
    assert second.status == 0, second
    assert "LEARNING_RATE was 0.005, is 0.5" in second.err
    steps = [json.loads(x)["step"] for x in (folder / "metrics.jsonl").open()]
    assert steps == [0, 2, 3]
    assert "already at step 3, TRAIN_STEPS is 2" in fails(
        *command, "--gin.TRAIN_STEPS=2"
    )
    target, draft = checkpoints(pair_flags)
    pair = load_pair(target, folder, vocabulary_path, dtype="float32")
    before = load_params(draft)["decoder"]["decoder_norm"]["scale"]
    after = pair.params["draft"]["decoder"]["decoder_norm"]["scale"]
    assert np.isfinite(after).all() and (np.asarray(before) != after).any()

    kept = sorted(folder.glob("outputs/*.jsonl.gz"))
    if outputs == "task":
        assert not kept
        return
    # Both runs read the same answers: to two held-out inputs, and to six.
    known = ["mine-t-T0", "mine-t-T1", "mine-v-T0", "mine-v-T1"]
    assert [path.name.rpartition("-")[0] for path in kept] == known
    rows = [read_rows(path) for path in kept]
    assert [len(some) for some in rows] == [3, 3, 1, 1]
    for row in (row for some in rows for row in some):
        assert row["inputs"][-1] == 1 and 1 <= len(row["targets"]) <= 12
        assert 1 not in row["targets"][:-1]
        assert set(row["targets"]) <= set(range(600))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gin.OUTPUTS=draft"], "want OUTPUTS of target, task, got 'draft'"),
        (["--divergence=kl"], "divergence must be one of forward_kl, reverse_kl"),
        (["--on_policy=2"], "on_policy must be in [0, 1], got 2"),
        (["--gin.TARGET_TEMPERATURES=()"], "want at least one of TARGET_TEMPERATURES"),
        (["--gin.TARGET_TEMPERATURES=(-1.0,)"], "temperature"),
        (["--gin.NUM_VALIDATION=0"], "want num_validation >= 1, got 0"),
        (["--gin.NUM_VALIDATION=8"], "want more than the 8 examples that are held out"),
        (["--gin.NUM_EXAMPLES={'ende': 3}"], "want NUM_EXAMPLES of mine, got that"),
        (["--gin.TRAIN_STEPS=0"], "steps must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    fails, pair_flags, task_file, tmp_path, flags, said
):
    folder = tmp_path / "model"
    message = fails(
        "distill",
        *pair_flags,
        *SMALL,
        f"--gin.TASK_FILE={task_file}",
        f"--gin.MODEL_DIR={folder}",
        *flags,
    )
    assert said in message
    assert not folder.exists()


def test_the_corpora_are_named_where_they_are_missing(fails, tmp_path):
    message = fails("distill", f"--gin.MODEL_DIR={tmp_path / 'm'}")
    assert "SPLIT 'train': give DATA_DIR" in message
    message = fails("distill")
    assert "distill needs MODEL_DIR (for checkpoints, metrics" in message


def test_what_is_held_out_is_not_learnt():
    """The fault: an input that a file has twice was in both parts."""
    first, second = Example((5, 1), (7, 1)), Example((6, 1), (8, 1))
    again = Example((5, 1), (9, 1))
    held_out = {"mine": HeldOut([first], 0.0)}
    assert without_held_out([again, second, first], held_out) == [second]


def test_a_folder_that_cannot_be_is_named_before_anything_is_made(
    fails, pair_flags, task_file, tmp_path
):
    folder = tmp_path / "model"
    flags = [f"--gin.TASK_FILE={task_file}", f"--gin.MODEL_DIR={folder}"]
    said = fails("distill", *pair_flags, *SMALL, *flags, "--gin.OUTPUTS_DIR=/dev/null")
    assert "/dev/null is not a folder" in said and not folder.exists()
