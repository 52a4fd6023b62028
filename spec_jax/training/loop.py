"""The loop that every training shares: resumable to the step, order kept."""

import dataclasses
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spec_jax.checkpoints.orbax import TrainingCheckpoints
from spec_jax.data.batches import Batch
from spec_jax.models.t5 import Transformer
from spec_jax.training.progress import Progress

METRICS = "metrics.jsonl"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopSettings:
    """How long to train, in which steps.

    Attributes:
      steps: optimizer steps in all, earlier runs included.
      batch_tokens: padded decoder tokens of a batch; rows follow from it. A bucket
        with a longer encoder has fewer rows.
      learning_rate: peak, relative to an array's root mean square, after a linear
        rise over `warmup_steps`; it then falls as a cosine to a fiftieth.
      clip_norm: largest global norm of a gradient.
      seed: with the step it decides parameters, draws and data order.
      checkpoint_period: steps between checkpoints.
      eval_period: steps between looks at the validation examples.
      log_period: steps between lines of progress.
    """

    steps: int = 19000
    batch_tokens: int = 1024
    learning_rate: float = 1e-2
    warmup_steps: int = 600
    clip_norm: float = 1.0
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


class TrainState(NamedTuple):
    """What a step carries; `step` counts optimizer updates."""

    step: jax.Array
    params: Any
    opt_state: Any


def make_optimizer(settings: LoopSettings) -> optax.GradientTransformation:
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


def initial_state(network: Transformer, optimizer, seed: int) -> TrainState:
    """Fresh parameters (float32) and optimizer state."""
    one = jnp.ones((1, 2), jnp.int32)
    variables = jax.jit(network.init)(jax.random.key(seed), one, one)
    return state_of(variables["params"], optimizer)


def state_of(params, optimizer) -> TrainState:
    """The state before the first step, from copies of these parameters in float32."""
    # A step takes its state's memory, so it must not be the caller's.
    params = jax.tree.map(lambda x: jnp.array(x, jnp.float32), params)
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params))


def run_steps(
    state: TrainState,
    step_function: Callable[[TrainState, Batch], tuple[TrainState, jax.Array]],
    make_batches: Callable[[int], Iterator[tuple[int, Batch]]],
    validate: Callable[[Any], dict[str, float]],
    settings: LoopSettings,
    model_dir: str | pathlib.Path,
    *,
    look_first: bool = False,
) -> Any:
    """Trains to `settings.steps`, from the newest checkpoint in a folder.

    A run that was killed ends with the parameters and the lines of one that was not.

    Args:
      state: before the first step; a checkpoint replaces it.
      step_function: one update; gives the new state, and the batch's mean loss.
      make_batches: (epoch, batch), from a number of steps that are done.
      validate: figures of held-out examples, by name, from parameters.
      settings: how long.
      model_dir: receives checkpoints and metrics.jsonl.
      look_first: whether there are figures of held-out examples from before the first
        step too.

    Returns:
      The trained parameters, float32.
    """
    model_dir = pathlib.Path(model_dir)
    model_dir.mkdir(parents=True, exist_ok=True)
    checkpoints = TrainingCheckpoints(model_dir)
    done, losses = checkpoints.latest_step() or 0, []
    if done:
        restored, extra = checkpoints.restore(done, state)
        state, losses = TrainState(*restored), list(extra.get("losses", ()))
    kept = _cut_metrics(model_dir / METRICS, done)
    batches = make_batches(done)

    def tell(record):
        progress.show(record)
        with (model_dir / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    with Progress(settings.steps, start=done) as progress:
        if look_first and not kept:
            tell({"step": 0, "epoch": 0, **validate(state.params)})
        started, tokens = time.perf_counter(), 0.0
        for step in range(done + 1, settings.steps + 1):
            epoch, batch = next(batches)
            state, loss = step_function(state, batch)
            tokens += float(batch["decoder_loss_weights"].sum())
            losses.append(loss)
            last = step == settings.steps
            record = {}
            if step % settings.log_period == 0 or last:
                mean = float(np.mean(jax.device_get(losses)))
                seconds = time.perf_counter() - started
                record = {"loss": mean, "target_tokens_per_second": tokens / seconds}
                losses = []
            if step % settings.eval_period == 0 or last:
                record |= validate(state.params)
            if record:
                tell({"step": step, "epoch": epoch, **record})
                started, tokens = time.perf_counter(), 0.0
            if step % settings.checkpoint_period == 0 or last:
                losses = [float(loss) for loss in losses]
                checkpoints.save(step, state, {"epoch": epoch, "losses": losses})
            progress.advance()
    checkpoints.close()
    return state.params


def _cut_metrics(path: pathlib.Path, done: int) -> int:
    """Takes away the lines after a step, which will be written again, and half ones.

    Gives the number of lines that stay.
    """
    if not path.exists():
        return 0
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [x for x in lines if x.endswith("\n") and json.loads(x)["step"] <= done]
    if kept != lines:
        part = path.with_name(f".{path.name}.part")
        part.write_text("".join(kept), encoding="utf-8")
        os.replace(part, path)
    return len(kept)
