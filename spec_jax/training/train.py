"""Maximum-likelihood training of a T5: resumable to the step, order kept."""

import dataclasses
import functools
import json
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spec_jax.checkpoints.orbax import TrainingCheckpoints
from spec_jax.data.batches import Batch, Bucket, collate, plan_epoch, training_batches
from spec_jax.data.examples import Example
from spec_jax.models.t5 import T5Config, Transformer
from spec_jax.training.dot_general import row_major_dot_general
from spec_jax.training.progress import Progress

# Encoder x decoder lengths that the corpora's rows fall into with little padding.
BUCKET_LENGTHS = (
    (24, 24),
    (32, 32),
    (48, 48),
    (64, 64),
    (96, 96),
    (128, 128),
    (96, 16),
    (160, 24),
    (256, 24),
    (256, 64),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How long and how to train.

    Attributes:
      steps: optimizer steps in all, earlier runs included.
      batch_tokens: padded decoder tokens of a batch; rows follow from it. A bucket
        with a longer encoder has fewer rows.
      learning_rate: peak, relative to an array's root mean square, after a linear
        rise over `warmup_steps`; it then falls as a cosine to a fiftieth.
      z_loss: weight of log(Z)^2, as in t5x.
      label_smoothing: mass spread over the vocabulary.
      clip_norm: largest global norm of a gradient.
      joined: share of the translations joined into paragraphs, another one each
        epoch.
      seed: with the step it decides parameters, dropout and data order.
      checkpoint_period: steps between checkpoints.
      eval_period: steps between validation losses.
      log_period: steps between lines of progress.
    """

    steps: int = 19000
    batch_tokens: int = 1024
    learning_rate: float = 1e-2
    warmup_steps: int = 600
    z_loss: float = 1e-4
    label_smoothing: float = 0.0
    clip_norm: float = 1.0
    joined: float = 0.25
    seed: int = 0
    checkpoint_period: int = 500
    eval_period: int = 500
    log_period: int = 50

    def __post_init__(self):
        least = {"steps": 1, "batch_tokens": 1, "warmup_steps": 0, "seed": 0}
        least |= {"checkpoint_period": 1, "eval_period": 1, "log_period": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(
                    f"{name} must be at least {bound}, got {getattr(self, name)}"
                )
        for name in ("learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(
                    f"{name} must be > 0 and finite, got {getattr(self, name)}"
                )
        if not 0 <= self.z_loss < math.inf:
            raise ValueError(f"z_loss must be >= 0 and finite, got {self.z_loss}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_smoothing must be in [0, 1), got {self.label_smoothing}"
            )
        if not 0 <= self.joined <= 1:
            raise ValueError(f"joined must be in [0, 1], got {self.joined}")


class TrainState(NamedTuple):
    """What a step carries; `step` counts optimizer updates."""

    step: jax.Array
    params: Any
    opt_state: Any


def make_buckets(batch_tokens: int) -> list[Bucket]:
    """Buckets with about `batch_tokens` decoder tokens, a multiple of 8 rows each."""
    buckets = []
    for inputs, targets in BUCKET_LENGTHS:
        rows = batch_tokens / max(targets, inputs // 3)
        buckets.append(Bucket(inputs, targets, max(8, int(rows) // 8 * 8)))
    return buckets


def make_optimizer(settings: TrainSettings) -> optax.GradientTransformation:
    """Adam in units of each array's own scale, warmed up, then a cosine.

    T5's arrays start at very unlike scales: embeddings at 1, queries, which hold
    attention's scale, at 0.01. One learning rate for all would saturate attention
    before the embeddings have moved, so a step is relative, as in T5's Adafactor
    (Shazeer and Stern 2018, https://arxiv.org/abs/1804.04235, section 8).
    """
    schedule = optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=settings.learning_rate,
        warmup_steps=min(settings.warmup_steps, settings.steps // 2),
        decay_steps=settings.steps,
        end_value=settings.learning_rate / 50,
    )
    return optax.chain(
        optax.clip_by_global_norm(settings.clip_norm),
        optax.scale_by_adam(b2=0.98),
        optax.scale_by_param_block_rms(),
        optax.scale_by_learning_rate(schedule),
    )


def cross_entropy(
    logits: jax.Array, batch: Batch, z_loss: float = 0.0, label_smoothing: float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Summed loss in nats, regularizers included, and the weight it is over."""
    weights = batch["decoder_loss_weights"]
    log_z = jax.nn.logsumexp(logits, axis=-1)
    chosen = jnp.take_along_axis(
        logits, batch["decoder_target_tokens"][..., None], axis=-1
    )[..., 0]
    loss = log_z - chosen
    if label_smoothing:
        spread = log_z - jnp.mean(logits, axis=-1)
        loss = (1 - label_smoothing) * loss + label_smoothing * spread
    loss = loss + z_loss * jnp.square(log_z)
    return jnp.sum(loss * weights), jnp.sum(weights)


@functools.partial(
    jax.jit, static_argnames=("network", "optimizer", "settings"), donate_argnums=0
)
def train_step(
    state: TrainState,
    batch: Batch,
    *,
    network: Transformer,
    optimizer: optax.GradientTransformation,
    settings: TrainSettings,
) -> tuple[TrainState, jax.Array]:
    """One update; returns the state and the mean loss of a target token in nats."""
    key = jax.random.fold_in(jax.random.key(settings.seed), state.step)

    def mean_loss(params):
        logits = network.apply(
            {"params": params},
            batch["encoder_input_tokens"],
            batch["decoder_input_tokens"],
            deterministic=network.config.dropout_rate == 0,
            rngs={"dropout": key},
        )
        total, weight = cross_entropy(
            logits, batch, settings.z_loss, settings.label_smoothing
        )
        return total / jnp.maximum(weight, 1.0)

    loss, gradient = jax.value_and_grad(mean_loss)(state.params)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), loss


@functools.partial(jax.jit, static_argnames=("network",))
def batch_loss(params, batch: Batch, *, network: Transformer):
    """Summed cross entropy in nats and the number of target tokens."""
    logits = network.apply(
        {"params": params},
        batch["encoder_input_tokens"],
        batch["decoder_input_tokens"],
    )
    return cross_entropy(logits, batch)


def validation_loss(
    params, network: Transformer, examples: Sequence[Example], buckets
) -> float:
    """Mean cross entropy of a target token in nats."""
    total = weight = 0.0
    for planned in plan_epoch(examples, buckets, np.random.default_rng(0)):
        loss, count = batch_loss(params, collate(examples, planned), network=network)
        total, weight = total + float(loss), weight + float(count)
    return total / max(weight, 1.0)


def initial_state(network: Transformer, optimizer, seed: int) -> TrainState:
    """Fresh parameters (float32) and optimizer state."""
    one = jnp.ones((1, 2), jnp.int32)
    variables = jax.jit(network.init)(jax.random.key(seed), one, one)
    params = variables["params"]
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def train(
    config: T5Config,
    settings: TrainSettings,
    make_epoch: Callable[[np.random.Generator], list[Example]],
    validation: dict[str, Sequence[Example]],
    model_dir: str | pathlib.Path,
    initial_params=None,
):
    """Trains to `settings.steps`, from the newest checkpoint in `model_dir`.

    Args:
      config: the network; activations are computed in its dtype, parameters and
        optimizer state are float32.
      settings: how.
      make_epoch: the examples of an epoch from that epoch's random generator.
      validation: examples by task; their loss is shown while training.
      model_dir: receives checkpoints and `metrics.jsonl`.
      initial_params: to start from, where there is no checkpoint yet.

    Returns:
      The trained parameters, float32.
    """
    model_dir = pathlib.Path(model_dir)
    model_dir.mkdir(parents=True, exist_ok=True)
    network = Transformer(config, row_major_dot_general)
    optimizer = make_optimizer(settings)
    state = initial_state(network, optimizer, settings.seed)
    if initial_params is not None:
        params = jax.tree.map(
            lambda new, old: jnp.asarray(new, old.dtype), initial_params, state.params
        )
        state = state._replace(params=params)
    buckets = make_buckets(settings.batch_tokens)
    checkpoints = TrainingCheckpoints(model_dir)
    done = checkpoints.latest_step() or 0
    if done:
        state, _ = checkpoints.restore(done, state)
        state = TrainState(*state)
    batches = training_batches(make_epoch, buckets, seed=settings.seed, start_step=done)
    with Progress(settings.steps, start=done) as progress:
        started, tokens, losses = time.perf_counter(), 0.0, []
        for step in range(done + 1, settings.steps + 1):
            epoch, batch = next(batches)
            state, loss = train_step(
                state, batch, network=network, optimizer=optimizer, settings=settings
            )
            tokens += float(batch["decoder_loss_weights"].sum())
            losses.append(loss)
            last = step == settings.steps
            record = {}
            if step % settings.log_period == 0 or last:
                mean = float(np.mean(jax.device_get(losses)))
                seconds = time.perf_counter() - started
                record = {"loss": mean, "target_tokens_per_second": tokens / seconds}
            if step % settings.eval_period == 0 or last:
                for task, examples in validation.items():
                    record[f"validation_loss/{task}"] = validation_loss(
                        state.params, network, examples, buckets
                    )
            if record:
                record = {"step": step, "epoch": epoch, **record}
                progress.show(record)
                _append(model_dir / "metrics.jsonl", record)
                started, tokens, losses = time.perf_counter(), 0.0, []
            if step % settings.checkpoint_period == 0 or last:
                checkpoints.save(step, state, {"epoch": epoch})
            progress.advance()
    checkpoints.close()
    return state.params


def _append(path: pathlib.Path, record: dict) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
