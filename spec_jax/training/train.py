"""Maximum-likelihood training of a T5: resumable to the step, order kept."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spec_jax.data.batches import Batch, collate, plan_epoch, training_batches
from spec_jax.data.examples import Example
from spec_jax.models.t5 import T5Config, Transformer
from spec_jax.training.buckets import make_buckets
from spec_jax.training.dot_general import row_major_dot_general
from spec_jax.training.loop import (
    LoopSettings,
    TrainState,
    initial_state,
    make_optimizer,
    run_steps,
    state_of,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings(LoopSettings):
    """How to train by maximum likelihood; beside it see `LoopSettings`.

    Attributes:
      z_loss: weight of log(Z)^2, as in t5x.
      label_smoothing: mass spread over the vocabulary.
      joined: share of the translations joined into paragraphs, another one each
        epoch.
    """

    z_loss: float = 1e-4
    label_smoothing: float = 0.0
    joined: float = 0.25

    def __post_init__(self):
        super().__post_init__()
        if not 0 <= self.z_loss < math.inf:
            raise ValueError(f"z_loss must be >= 0 and finite, got {self.z_loss}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_smoothing must be in [0, 1), got {self.label_smoothing}"
            )
        if not 0 <= self.joined <= 1:
            raise ValueError(f"joined must be in [0, 1], got {self.joined}")


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
    network = Transformer(config, row_major_dot_general)
    optimizer = make_optimizer(settings)
    if initial_params is None:
        state = initial_state(network, optimizer, settings.seed)
    else:
        state = state_of(initial_params, optimizer)
    buckets = make_buckets(settings.batch_tokens)

    def step(state, batch):
        return train_step(
            state, batch, network=network, optimizer=optimizer, settings=settings
        )

    def validate(params):
        return {
            f"validation_loss/{task}": validation_loss(
                params, network, examples, buckets
            )
            for task, examples in validation.items()
        }

    return run_steps(
        state,
        step,
        lambda done: training_batches(
            make_epoch, buckets, seed=settings.seed, start_step=done
        ),
        validate,
        settings,
        model_dir,
    )
