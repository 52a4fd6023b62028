"""DistillSpec: a draft that learns to agree with its target.

The target is frozen. On tokens of the task, of the target or of the draft itself the
draft's distribution is drawn towards the target's, at every position at once.

Reference: Zhou et al. 2023, https://arxiv.org/abs/2310.08461, algorithm 1.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.batches import (
    Batch,
    Bucket,
    collate,
    plan_epoch,
    training_batches,
)
from spec_jax.data.examples import Example
from spec_jax.data.vocabulary import EOS_ID, PAD_ID
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.loop import generate
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer
from spec_jax.training.divergences import DIVERGENCES, divergence
from spec_jax.training.dot_general import row_major_dot_general
from spec_jax.training.loop import (
    LoopSettings,
    TrainState,
    make_optimizer,
    run_steps,
    state_of,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillSettings(LoopSettings):
    """How to distill; beside it see `LoopSettings`.

    Attributes:
      divergence: what is lessened, one of `DIVERGENCES`.
      jsd_weight: of the target in the mixture of "jsd".
      on_policy: share of the batches whose outputs the draft draws itself, from what
        it has learnt so far; the others have the outputs they are given.
      temperature: of both distributions, and of the draft's own outputs.

    Raises:
      ValueError: if a value is out of range.
    """

    divergence: str = "forward_kl"
    jsd_weight: float = 0.5
    on_policy: float = 0.0
    temperature: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if self.divergence not in DIVERGENCES:
            raise ValueError(
                f"divergence must be one of {', '.join(DIVERGENCES)}, got "
                f"{self.divergence!r}"
            )
        if not 0 < self.jsd_weight < 1:
            raise ValueError(f"jsd_weight must be in (0, 1), got {self.jsd_weight}")
        if not 0 <= self.on_policy <= 1:
            raise ValueError(f"on_policy must be in [0, 1], got {self.on_policy}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature must be > 0 and finite, got {self.temperature}: where "
                "it is 0 a distribution has no gradient"
            )


class Models(NamedTuple):
    """The two networks; static, so that equal ones share compiled programs.

    Attributes:
      target: frozen.
      draft: learns.
      vocab_size: ids that are ever drawn; rows of a table beyond them count nothing.
    """

    target: T5Config
    draft: T5Config
    vocab_size: int


def logits_of(
    config: T5Config, params, batch: Batch, vocab_size: int, with_gradient: bool
) -> jax.Array:
    """Logits at every target position, float32 [b, t, vocab_size]."""
    product = row_major_dot_general if with_gradient else jax.lax.dot_general
    logits = Transformer(config, product).apply(
        {"params": params},
        batch["encoder_input_tokens"],
        batch["decoder_input_tokens"],
    )
    return logits[..., :vocab_size].astype(jnp.float32)


@functools.partial(
    jax.jit, static_argnames=("models", "optimizer", "settings"), donate_argnums=0
)
def distill_step(
    state: TrainState,
    target_params: Any,
    batch: Batch,
    *,
    models: Models,
    optimizer: optax.GradientTransformation,
    settings: DistillSettings,
) -> tuple[TrainState, jax.Array]:
    """One update of the draft; returns the state and a token's mean divergence."""
    weights = batch["decoder_loss_weights"]
    target = logits_of(models.target, target_params, batch, models.vocab_size, False)

    def mean_divergence(params):
        draft = logits_of(models.draft, params, batch, models.vocab_size, True)
        each = divergence(
            settings.divergence,
            target / settings.temperature,
            draft / settings.temperature,
            settings.jsd_weight,
        )
        return jnp.sum(each * weights) / jnp.maximum(jnp.sum(weights), 1.0)

    loss, gradient = jax.value_and_grad(mean_divergence)(state.params)
    updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    return TrainState(state.step + 1, params, opt_state), loss


class HeldOut(NamedTuple):
    """Examples on which a draft's agreement with its target is taken.

    Attributes:
      examples: inputs, and the outputs along which both are asked.
      temperature: of both; 0 asks whether their argmaxes are the same.
    """

    examples: Sequence[Example]
    temperature: float


@functools.partial(jax.jit, static_argnames=("models", "temperature"))
def batch_agreement(params, target_params, batch, *, models: Models, temperature):
    """Sums over tokens of beta and of one."""
    weights = batch["decoder_loss_weights"]
    target, draft = (
        logits_of(config, its, batch, models.vocab_size, False)
        for config, its in ((models.target, target_params), (models.draft, params))
    )
    if temperature == 0:
        beta = jnp.argmax(target, -1) == jnp.argmax(draft, -1)
    else:
        beta = 1 - divergence("tv", target / temperature, draft / temperature)
    return jnp.sum(beta * weights), jnp.sum(weights)


def agreement(
    params,
    target_params,
    models: Models,
    held_out: HeldOut,
    buckets: Sequence[Bucket],
) -> float:
    """The mean over tokens of beta = sum_x min(p(x), q(x)).

    That is alpha, where the outputs are the target's own at this temperature.

    Args:
      params: the draft's.
      target_params: the target's.
      models: their networks.
      held_out: where.
      buckets: compiled shapes.
    """
    total = count = 0.0
    for planned in plan_epoch(held_out.examples, buckets, np.random.default_rng(0)):
        betas, tokens = batch_agreement(
            params,
            target_params,
            collate(held_out.examples, planned),
            models=models,
            temperature=held_out.temperature,
        )
        total, count = total + float(betas), count + float(tokens)
    return total / max(count, 1.0)


def own_outputs(params, batch: Batch, key, models: Models, temperature: float) -> Batch:
    """The batch with outputs that the draft draws, ended or cut at the same length."""
    rows, length = batch["decoder_target_tokens"].shape
    policy = SamplingPolicy(temperature=temperature, vocab_limit=models.vocab_size)
    algorithm = Autoregressive(
        T5Decoder(models.draft), policy, eos_id=EOS_ID, pad_id=PAD_ID
    )
    out = generate(
        algorithm,
        {"target": params},
        batch["encoder_input_tokens"],
        np.full((rows, 1), PAD_ID, np.int32),
        key,
        max_new_tokens=length,
    )
    tokens, lengths = np.asarray(out.tokens), np.asarray(out.lengths)
    valid = np.arange(length) < lengths[:, None]
    filled = batch["decoder_loss_weights"].any(1, keepdims=True)
    targets = np.where(valid & filled, tokens, PAD_ID).astype(np.int32)
    return batch | {
        "decoder_input_tokens": np.pad(targets[:, :-1], ((0, 0), (1, 0))),
        "decoder_target_tokens": targets,
        "decoder_loss_weights": (valid & filled).astype(np.float32),
    }


def distill(
    models: Models,
    settings: DistillSettings,
    target_params: Any,
    draft_params: Any,
    examples: Sequence[Example],
    validation: Mapping[str, HeldOut],
    buckets: Sequence[Bucket],
    model_dir: str | pathlib.Path,
) -> Any:
    """Trains the draft to `settings.steps`, from the newest checkpoint.

    Args:
      models: the networks; activations are in their dtypes.
      settings: how.
      target_params: in the target's dtype; they stay as they are.
      draft_params: where the draft begins; learnt in float32.
      examples: inputs with outputs, of the task's or of the target.
      validation: by name; the draft's agreement with the target is shown while it
        learns.
      buckets: compiled shapes that hold every example.
      model_dir: receives checkpoints and metrics.jsonl, whose first line is the
        draft's agreement before the first step.

    Returns:
      The draft's parameters, float32.
    """
    optimizer = make_optimizer(settings)
    state = state_of(draft_params, optimizer)

    def step(state, batch):
        number = int(state.step)
        chance = np.random.default_rng([settings.seed, number, 1]).random()
        if chance < settings.on_policy:
            key = jax.random.fold_in(jax.random.key(settings.seed), number)
            batch = own_outputs(state.params, batch, key, models, settings.temperature)
        return distill_step(
            state,
            target_params,
            batch,
            models=models,
            optimizer=optimizer,
            settings=settings,
        )

    def validate(params):
        return {
            f"validation_alpha/{name}": agreement(
                params, target_params, models, some, buckets
            )
            for name, some in validation.items()
        }

    return run_steps(
        state,
        step,
        lambda done: training_batches(
            lambda rng: list(examples),
            buckets,
            seed=settings.seed,
            start_step=done,
            short_first=False,  # what corresponds to what is known already
        ),
        validate,
        settings,
        model_dir,
        look_first=True,
    )
