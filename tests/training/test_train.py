"""Training: it learns, and a killed run ends where an undisturbed one does."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.checkpoints import TrainingCheckpoints, load_params
from spec_jax.data.batches import plan_epoch
from spec_jax.data.examples import Example, ExampleMaker, TokenRow
from spec_jax.data.vocabulary import SentencePieceVocabulary
from spec_jax.models.t5 import T5Config, Transformer
from spec_jax.pairs import PACKAGE, resolve
from spec_jax.training import train as training
from spec_jax.training.buckets import make_buckets
from spec_jax.training.dot_general import row_major_dot_general
from spec_jax.training.train import (
    TrainSettings,
    cross_entropy,
    train,
    validation_loss,
)

VOCABULARY = PACKAGE + "pretrained/vocabulary.model"
CONFIG = T5Config(
    vocab_size=32,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=1,
)


def copying(rng, count=96):
    """Targets repeat inputs of five tokens: that few occur is learnt at once."""
    rows = rng.integers(3, 8, (count, 6))
    return [Example((*map(int, row), 1), (*map(int, row[:3]), 1)) for row in rows]


def settings(steps, **fields):
    defaults = {
        "batch_tokens": 24 * 32,
        "learning_rate": 5e-2,
        "warmup_steps": 5,
        "checkpoint_period": 5,
        "eval_period": 10,
        "log_period": 5,
    }
    return TrainSettings(steps=steps, **{**defaults, **fields})


def run(folder, steps, **fields):
    held_out = {"copy": copying(np.random.default_rng(9), 32)}
    return train(CONFIG, settings(steps, **fields), copying, held_out, folder)


def test_the_loss_falls_and_is_recorded(tmp_path):
    run(tmp_path, 40)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [r["step"] for r in records] == list(range(5, 41, 5))
    held_out = [r["validation_loss/copy"] for r in records if r["step"] % 10 == 0]
    assert len(held_out) == 4
    assert np.log(5) < held_out[0] < 1.3 * np.log(32)
    assert held_out[-1] < 1.2 * np.log(5)
    assert records[-1]["loss"] < records[0]["loss"]


def test_a_killed_run_ends_where_an_undisturbed_one_does(tmp_path, monkeypatch):
    """Same parameters to the bit: data order, optimizer and step all resume."""
    whole = run(tmp_path / "whole", 20)

    class Killed(Exception):
        pass

    real, calls = training.train_step, []

    def step_until_killed(*args, **kwargs):
        calls.append(1)
        if len(calls) == 14:  # past the checkpoint of step 10, before that of 15
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(training, "train_step", step_until_killed)
    with pytest.raises(Killed):
        run(tmp_path / "killed", 20)
    monkeypatch.setattr(training, "train_step", real)
    with TrainingCheckpoints(tmp_path / "killed") as checkpoints:
        assert checkpoints.latest_step() == 10
    resumed = run(tmp_path / "killed", 20)
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)
    loaded = load_params(tmp_path / "killed")
    jax.tree.map(np.testing.assert_array_equal, loaded, jax.device_get(whole))


def test_another_seed_is_another_run(tmp_path):
    one, other = run(tmp_path / "0", 5), run(tmp_path / "1", 5, seed=1)
    different = jax.tree.map(lambda a, b: bool((a != b).any()), one, other)
    assert different["token_embedder"]["embedding"]


def test_padding_weighs_nothing_in_a_validation_loss():
    network = Transformer(CONFIG)
    one = jnp.ones((1, 2), jnp.int32)
    params = network.init(jax.random.key(0), one, one)["params"]
    examples = copying(np.random.default_rng(3), 11)
    total = sum(
        validation_loss(params, network, [e], make_buckets(32)) * len(e.targets)
        for e in examples
    )
    mean = total / sum(len(e.targets) for e in examples)
    together = validation_loss(params, network, examples, make_buckets(768))
    assert together == pytest.approx(mean, rel=1e-5)


def test_cross_entropy_by_hand():
    logits = jnp.array([[[2.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])
    batch = {
        "decoder_target_tokens": jnp.array([[2, 1]]),
        "decoder_loss_weights": jnp.array([[1.0, 0.0]]),
    }
    log_z = np.log(np.exp([2.0, 0.0, 1.0]).sum())
    loss, weight = cross_entropy(logits, batch)
    assert (float(loss), float(weight)) == (pytest.approx(log_z - 1.0), 1.0)
    smooth, _ = cross_entropy(logits, batch, z_loss=0.5, label_smoothing=0.1)
    wanted = 0.9 * (log_z - 1.0) + 0.1 * (log_z - 1.0) + 0.5 * log_z**2
    assert float(smooth) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("kind", ["weight", "scores", "mixed", "float32 result"])
def test_the_fast_products_have_the_gradients_of_plain_ones(kind):
    key = jax.random.key(0)
    x = jax.random.normal(key, (2, 3, 5, 4))
    rows = ((0, 1), (0, 1))
    y, dims, out = {
        "weight": ((4, 6), (((3,), (0,)), ((), ())), None),
        "float32 result": ((4, 6), (((3,), (0,)), ((), ())), jnp.float32),
        "scores": ((2, 3, 7, 4), (((3,), (3,)), rows), None),
        "mixed": ((2, 3, 4, 7), (((3,), (2,)), rows), None),
    }[kind]
    y = jax.random.normal(jax.random.key(1), y)

    def loss(product, x, y):
        value = product(x, y, dims, preferred_element_type=out)
        return jnp.sum(jnp.sin(value)), value

    grads = jax.grad(loss, argnums=(1, 2), has_aux=True)
    got = jax.jit(lambda x, y: grads(row_major_dot_general, x, y))(x, y)
    wanted = grads(jax.lax.dot_general, x, y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got, wanted)


def test_other_products_are_refused():
    x = jnp.ones((3, 4))
    with pytest.raises(ValueError, match="only a product with a weight"):
        row_major_dot_general(x, x, (((0,), (0,)), ((), ())))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log_period", 0),
        ("warmup_steps", -1),
        ("seed", -1),
        ("learning_rate", float("inf")),
        ("learning_rate", float("nan")),
        ("clip_norm", 0.0),
        ("z_loss", float("nan")),
        ("label_smoothing", 1.0),
    ],
)
def test_settings_that_train_nothing_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .*, got {value}"):
        TrainSettings(**{name: value})


def test_bad_settings_say_so():
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        TrainSettings(steps=0)
    with pytest.raises(ValueError, match=r"joined must be in \[0, 1\], got 2"):
        TrainSettings(joined=2)


@pytest.mark.parametrize(("task", "longest"), [("ende", 128), ("summarize", 256)])
def test_every_example_fits_a_bucket(task, longest):
    """Translations at the limit of both lengths too."""
    maker = ExampleMaker(SentencePieceVocabulary(resolve(VOCABULARY)))
    lengths = [(i, o) for i in (*range(100, 131), 300) for o in (1, 60, 120, 130)]
    rows = [TokenRow(task, "", (5,) * i, (6,) * o) for i, o in lengths]
    examples = [example for row in rows if (example := maker.example(row))]
    assert max(len(example.inputs) for example in examples) == longest
    planned = plan_epoch(examples, make_buckets(1024), np.random.default_rng(0))
    assert sum(len(batch.members) for batch in planned) == len(examples)
