"""Distillation: the draft nears its target, and a killed run ends like another."""

import json

import jax
import numpy as np
import pytest

from spec_jax.checkpoints import TrainingCheckpoints
from spec_jax.data.examples import Example
from spec_jax.data.vocabulary import EOS_ID
from spec_jax.models.t5 import T5Config
from spec_jax.training import distill as distilling
from spec_jax.training.buckets import make_buckets
from spec_jax.training.distill import (
    DistillSettings,
    HeldOut,
    Models,
    agreement,
    distill,
    own_outputs,
)
from spec_jax.training.divergences import DIVERGENCES
from spec_jax.training.loop import initial_state, make_optimizer

VOCAB_SIZE = 20
SHAPE = {"vocab_size": 32, "num_heads": 2, "head_dim": 8, "mlp_dim": 16}
SHAPE |= {"num_encoder_layers": 1, "dtype": "float32"}
MODELS = Models(
    T5Config(emb_dim=16, num_decoder_layers=2, **SHAPE),
    T5Config(emb_dim=8, num_decoder_layers=1, **SHAPE),
    VOCAB_SIZE,
)
BUCKETS = make_buckets(64, (8, 8))


def fresh(config, seed):
    network = distilling.Transformer(config)
    return initial_state(network, make_optimizer(settings()), seed).params


def settings(steps=20, **fields):
    defaults = {
        "batch_tokens": 64,
        "warmup_steps": 2,
        "learning_rate": 0.05,
        "checkpoint_period": 5,
        "eval_period": 10,
        "log_period": 4,
    }
    return DistillSettings(steps=steps, **{**defaults, **fields})


def examples(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Example((*rng.integers(2, VOCAB_SIZE, 6), EOS_ID), (*rng.integers(2, 9, 5), 1))
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def params():
    # A target with opinions: at random it would say everything equally.
    sharp = jax.tree.map(lambda x: 3 * x, fresh(MODELS.target, 0))
    return sharp, fresh(MODELS.draft, 1)


def run(params, folder, models=MODELS, **fields):
    held_out = {"some": HeldOut(examples(16, seed=1), 1.0)}
    return distill(
        models,
        settings(**fields),
        *params,
        examples(64),
        held_out,
        BUCKETS,
        folder,
    )


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_the_draft_nears_its_target(params, tmp_path, divergence):
    before = jax.tree.map(np.array, params[0])
    run(params, tmp_path, steps=60, divergence=divergence)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    alpha = {
        x["step"]: x["validation_alpha/some"] for x in lines if x["step"] % 20 == 0
    }
    assert set(alpha) == {0, 20, 40, 60}
    assert alpha[60] > alpha[0] + 0.1, alpha
    jax.tree.map(np.testing.assert_array_equal, before, params[0])  # frozen


def test_a_target_cannot_be_bettered_as_its_own_draft(params, tmp_path):
    """The fault: logits of draft and target that stand at different positions."""
    same = Models(MODELS.target, MODELS.target, VOCAB_SIZE)
    for temperature in (0.0, 1.0):
        held_out = HeldOut(examples(8), temperature)
        got = agreement(params[0], params[0], same, held_out, BUCKETS)
        assert got == pytest.approx(1.0, abs=1e-5)
    out = run((params[0], params[0]), tmp_path, same, steps=5, learning_rate=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), out, params[0]
    )


def test_the_drafts_own_outputs_end_or_fill_the_batch(params):
    batch = distilling.collate(
        examples(3),
        distilling.plan_epoch(examples(3), BUCKETS, np.random.default_rng(0))[0],
    )
    out = own_outputs(params[1], batch, jax.random.key(3), MODELS, 1.0)
    weights, tokens = out["decoder_loss_weights"], out["decoder_target_tokens"]
    assert weights[:3].any(1).all() and not weights[3:].any()
    assert (tokens < VOCAB_SIZE).all() and (tokens[weights == 0] == 0).all()
    for row, weight in zip(tokens[:3], weights[:3], strict=True):
        ends = np.flatnonzero(row == EOS_ID)
        length = ends[0] + 1 if len(ends) else len(row)
        assert weight.tolist() == [1.0] * length + [0.0] * (len(row) - length)
    np.testing.assert_array_equal(out["decoder_input_tokens"][:, 1:], tokens[:, :-1])
    assert (out["decoder_input_tokens"][:, 0] == 0).all()
    # Drawn by the draft, so other draws are other outputs.
    other = own_outputs(params[1], batch, jax.random.key(4), MODELS, 1.0)
    assert (other["decoder_target_tokens"] != tokens).any()


def test_a_killed_run_ends_where_an_undisturbed_one_does(params, tmp_path, monkeypatch):
    """With batches of its own too; parameters to the bit, and the same lines."""
    whole = run(params, tmp_path / "whole", on_policy=0.5)

    class Killed(Exception):
        pass

    real, calls = distilling.distill_step, []

    def step_until_killed(*args, **kwargs):
        calls.append(1)
        if len(calls) == 14:
            raise Killed
        return real(*args, **kwargs)

    monkeypatch.setattr(distilling, "distill_step", step_until_killed)
    with pytest.raises(Killed):
        run(params, tmp_path / "killed", on_policy=0.5)
    monkeypatch.setattr(distilling, "distill_step", real)
    with TrainingCheckpoints(tmp_path / "killed") as checkpoints:
        assert checkpoints.latest_step() == 10
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')  # what a kill leaves of a line
    resumed = run(params, tmp_path / "killed", on_policy=0.5)
    jax.tree.map(np.testing.assert_array_equal, whole, resumed)

    def lines(name):
        rows = [json.loads(x) for x in (tmp_path / name / "metrics.jsonl").open()]
        return [
            {k: v for k, v in row.items() if k != "target_tokens_per_second"}
            for row in rows
        ]

    assert lines("killed") == lines("whole")
    assert [row["step"] for row in lines("whole")] == [0, 4, 8, 10, 12, 16, 20]


def test_own_outputs_come_as_often_as_asked(params, tmp_path, monkeypatch):
    calls, real = [], distilling.own_outputs
    monkeypatch.setattr(
        distilling, "own_outputs", lambda *a: calls.append(1) or real(*a)
    )
    run(params, tmp_path / "never", steps=6)
    assert not calls
    run(params, tmp_path / "always", steps=6, on_policy=1.0)
    assert len(calls) == 6


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"divergence": "kl"}, "divergence must be one of forward_kl"),
        ({"jsd_weight": 1.0}, r"jsd_weight must be in \(0, 1\), got 1.0"),
        ({"on_policy": 1.5}, r"on_policy must be in \[0, 1\], got 1.5"),
        ({"temperature": 0.0}, "temperature must be > 0 and finite, got 0.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        DistillSettings(**fields)
