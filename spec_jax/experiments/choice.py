"""Which gamma pays on given texts, from measured acceptances and costs."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.base import Params
from spec_jax.core import theory
from spec_jax.data.datasets import TaskData, check_ids
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.speculative import Speculative
from spec_jax.experiments.alpha import acceptances, mean_acceptance
from spec_jax.experiments.bench import sampling_policy
from spec_jax.experiments.clock import time_call, time_in_turns
from spec_jax.experiments.costs import StepCosts, step_costs
from spec_jax.experiments.evaluate import EvaluateSettings
from spec_jax.experiments.figures import measured_along
from spec_jax.experiments.inputs import (
    InputBatch,
    in_one_shape,
    task_batches,
)
from spec_jax.experiments.outputs import Decoded, decode, decode_all
from spec_jax.experiments.record import (
    JsonLine,
    cpu_threads,
    describe_device,
    today,
    versions,
)
from spec_jax.pairs import Pair

GAMMAS = tuple(range(1, 9))
RESAMPLES = 1000
"""Of the texts, for the interval of the speed."""
INTERVAL = (2.5, 97.5)
"""Its ends, in percent."""
LEAST_TERMS = 5
"""Of fewer a resampling says nothing: two alike ones would make a speed certain."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(JsonLine):
    """What was measured of a draft on some texts, and the gamma that follows.

    Times are in plain steps. Figures that both have are those of `Record`.

    Attributes:
      task: of the texts.
      pair: of the models.
      draft: where proposals come from.
      draft_name: how tables call it.
      temperature: of both.
      batch: rows decoded together.
      policy: filters.
      dtype: of speculative decoding.
      plain_dtype: of plain decoding.
      num_examples: texts.
      alpha: on the texts' own plain outputs.
      alpha_stderr: None for a single text.
      alpha_tokens: that the mean is over.
      draft_costs: of a whole proposal, by gamma; gamma c.
      verify_costs: of a step without its proposal, by gamma.
      start_plain: of a call of plain decoding, all but its steps.
      start_speculative: the same of speculative decoding.
      tokens_per_run: expected, by gamma: see `expected_runs`.
      formula: theorem 3.8 with the cost of verification, by gamma.
      speeds: expected, by gamma, texts' starts and ends included.
      gamma: of the largest speed; 0 where none is above 1, or by its start alone.
      speed: with that gamma; 1 where it is 0.
      speed_low: lower end of the 95% interval of the speed of `best`, by resampling
        batches of texts; None for fewer than `LEAST_TERMS`.
      speed_high: its upper end.
      device: see `Record`.
      cpu_threads: see `Record`.
      versions: see `Record`.
      seed: of the draws.
      date: when it was measured.
      kind: of the line.
    """

    task: str
    pair: str
    draft: str
    draft_name: str
    temperature: float
    batch: int
    policy: dict[str, Any]
    dtype: str
    plain_dtype: str
    num_examples: int
    alpha: float
    alpha_stderr: float | None
    alpha_tokens: int
    draft_costs: dict[int, float]
    verify_costs: dict[int, float]
    start_plain: float
    start_speculative: float
    tokens_per_run: dict[int, float]
    formula: dict[int, float]
    speeds: dict[int, float]
    gamma: int
    speed: float
    speed_low: float | None
    speed_high: float | None
    c: float
    device: str
    cpu_threads: int | None
    versions: dict[str, str]
    seed: int
    date: str
    kind: str = "choice"

    @property
    def best(self) -> int:
        """The gamma of the largest speed, whether it pays or not."""
        return self.gamma or max(self.speeds, key=lambda gamma: self.speeds[gamma])

    @staticmethod
    def restored(fields):
        """See `JsonLine.restored`."""
        by_gamma = {
            name: {int(gamma): value for gamma, value in fields[name].items()}
            for name in (
                "draft_costs",
                "verify_costs",
                "tokens_per_run",
                "formula",
                "speeds",
            )
        }
        return {**fields, **by_gamma}


@dataclasses.dataclass(frozen=True)
class PlainOutputs:
    """Texts and what plain decoding makes of them, once for all drafts.

    Attributes:
      batches: of the texts.
      decoded: their outputs.
      cut: how many texts were cut to the longest input.
    """

    batches: Sequence[InputBatch]
    decoded: Decoded
    cut: int

    def tokens(self, batch: InputBatch) -> list[np.ndarray]:
        """A batch's outputs, row by row."""
        return [self.decoded.tokens[member.index] for member in batch.members]


def decode_plainly(
    plain_pair: Pair, data: TaskData, settings: EvaluateSettings
) -> PlainOutputs:
    """Decodes the texts once, untimed.

    Args:
      plain_pair: has the target.
      data: the texts.
      settings: policy, batch, lengths of inputs, seed.

    Raises:
      ValueError: if there is no text.
    """
    check_ids(data, plain_pair.target.vocab_size)
    batches, cut = task_batches(data, settings)
    batches = list(in_one_shape(batches))
    policy = sampling_policy(plain_pair, settings)
    plain = plain_pair.autoregressive(policy, settings.rule)
    return PlainOutputs(batches, decode_all(plain, plain_pair.params, batches), cut)


def choose(
    pair: Pair,
    plain_pair: Pair | None,
    data: TaskData,
    settings: EvaluateSettings,
    *,
    gammas: Sequence[int] = GAMMAS,
    outputs: PlainOutputs | None = None,
    draft_name: str = "",
    begin: Callable[[str], None] = lambda text: None,
) -> Choice:
    """Measures a draft on texts, and chooses the gamma of the largest expected speed.

    The acceptance of each token is measured along plain decoding's outputs. Costs are
    timed at the smallest, a middle and the largest gamma, linear between them.

    Args:
      pair: in the dtype in which speculative decoding is fastest.
      plain_pair: in the one in which plain decoding is; None: `pair`.
      data: the texts.
      settings: all but gamma and lengths; the rule's noise and the draft are read.
      gammas: to choose from.
      outputs: of `decode_plainly` with the same arguments; None decodes.
      draft_name: how tables call the draft; '' is its kind.
      begin: told what begins.

    Raises:
      ValueError: if there is no text, no output or no gamma, or a gamma is below 1.
    """
    gammas = tuple(sorted(set(gammas)))
    if not gammas or gammas[0] < 1:
        raise ValueError(f"want at least one gamma, and each >= 1, got {gammas}")
    plain_pair = plain_pair or pair
    using = pair.using(settings.draft)
    policy = sampling_policy(pair, settings)
    plain = plain_pair.autoregressive(policy, settings.rule)
    if outputs is None:
        begin("plain decoding")
        outputs = decode_plainly(plain_pair, data, settings)
    begin("alpha")
    speculative = using.speculative(1, policy, settings.rule)
    models = speculative.target, speculative.draft, policy, using.params
    betas: list[list[np.ndarray]] = []  # of the rows of each batch
    for batch in outputs.batches:
        rows, counts = measured_along(acceptances, models, batch, outputs.tokens(batch))
        betas.append([np.asarray(r)[:n] for r, n in zip(rows, counts, strict=True)])
    flat = [row for rows in betas for row in rows]
    alpha = mean_acceptance(flat, [len(row) for row in flat])

    measured: dict[int, StepCosts] = {}
    batch = outputs.batches[0]
    where = batch.inputs, batch.prompt, batch.keys
    for gamma in timed_gammas(gammas):
        begin(f"costs of a step with gamma {gamma}")
        at_gamma = using.speculative(gamma, policy, settings.rule)
        both = plain, plain_pair.params, at_gamma, using.params
        if gamma == gammas[0]:
            calls = one_token_calls(*both, batch)
        measured[gamma] = step_costs(*both, *where, max_new_tokens=batch.max_new_tokens)
    return choice_of(
        betas,
        measured,
        calls,
        gammas,
        task=data.name,
        pair=pair.name,
        draft=settings.draft,
        draft_name=draft_name or settings.draft,
        temperature=settings.temperature,
        batch=settings.batch,
        policy={name: getattr(policy, name) for name in ("top_k", "top_p", "min_p")},
        dtype=pair.dtype.name,
        plain_dtype=plain_pair.dtype.name,
        num_examples=len(data.examples),
        alpha=alpha.mean,
        alpha_stderr=alpha.stderr,
        alpha_tokens=alpha.num_tokens,
        device=describe_device(),
        cpu_threads=cpu_threads(),
        versions=versions(),
        seed=settings.seed,
        date=today(),
    )


def choice_of(
    betas: Sequence[Sequence[np.ndarray]],
    costs: Mapping[int, StepCosts],
    calls: tuple[float, float],
    gammas: Sequence[int],
    **fields: Any,
) -> Choice:
    """The choice that follows from what was measured.

    A batch takes as many steps as its longest row.

    Args:
      betas: acceptance of each token, of each row of each batch.
      costs: by some gammas.
      calls: of `one_token_calls` with the smallest gamma.
      gammas: to choose from.
      **fields: the rest of the record.
    """
    draft = between({g: g * cost.c for g, cost in costs.items()}, gammas)
    verify = between({g: cost.verify_cost for g, cost in costs.items()}, gammas)
    step = statistics.median(cost.plain for cost in costs.values())
    first = gammas[0]
    start_plain = max(calls[0] / step - 1, 0.0)
    start_fast = max(calls[1] / step - draft[first] - verify[first], 0.0)
    steps = np.array([max(map(len, rows)) for rows in betas])
    plain = start_plain + steps
    tokens = sum(len(row) for rows in betas for row in rows)
    fast, per_run, formula = {}, {}, {}
    paying = []
    for gamma in gammas:
        runs = [[expected_runs(row, gamma) for row in rows] for rows in betas]
        cost = draft[gamma] + verify[gamma]
        its = np.array([max(rows) * cost for rows in runs])
        fast[gamma] = start_fast + its
        # A call that starts faster is no merit of the draft's: it is chance, or dtype.
        if its.sum() < steps.sum() and fast[gamma].sum() < plain.sum():
            paying.append(gamma)
        per_run[gamma] = tokens / sum(map(sum, runs))
        # Sums of probabilities may round to more than 1.
        formula[gamma] = theory.speedup(
            min(fields["alpha"], 1.0), gamma, draft[gamma] / gamma, verify[gamma]
        )
    speeds = {g: float(plain.sum() / times.sum()) for g, times in fast.items()}
    best = max(paying or speeds, key=lambda gamma: speeds[gamma])
    low, high = ratio_interval(plain, fast[best])
    return Choice(
        draft_costs=draft,
        verify_costs=verify,
        start_plain=start_plain,
        start_speculative=start_fast,
        tokens_per_run=per_run,
        formula=formula,
        speeds=speeds,
        gamma=best if paying else 0,
        speed=speeds[best] if paying else 1.0,
        speed_low=low,
        speed_high=high,
        c=draft[best] / best,
        **fields,
    )


def one_token_calls(
    plain: Autoregressive,
    plain_params: Params,
    speculative: Speculative,
    params: Params,
    batch: InputBatch,
    repeats: int = 7,
) -> tuple[float, float]:
    """Seconds of whole calls that end after their first step.

    The programs are those of decoding. Without the step it is what is done once for
    a batch: encoders, caches, the call, and what the compiler has taken out of the
    loop, such as another layout of the weights.

    Args:
      plain: see `step_costs`.
      plain_params: see `step_costs`.
      speculative: see `step_costs`.
      params: see `step_costs`.
      batch: of texts.
      repeats: timed calls of each kind.

    Returns:
      Medians, of plain and of speculative decoding.
    """
    short = dataclasses.replace(batch, limits=np.minimum(batch.limits, 1))
    calls = {
        "plain": functools.partial(decode, plain, plain_params, short),
        "speculative": functools.partial(decode, speculative, params, short),
    }
    for call in calls.values():  # compiles
        time_call(call)
    timings = time_in_turns(calls, repeats)
    return timings["plain"].median, timings["speculative"].median


def expected_runs(betas: Sequence[float], gamma: int) -> float:
    """Runs of the target that an output takes, its end included.

    Where a run begins, the next token stands with the probability of its own beta,
    the one after it if that stood, and so on: rejections that come in clusters stay
    in clusters, and a run that reaches the end is over. Exact at temperature 0, where
    each beta is 0 or 1; above, betas along accepted drafts may differ from those
    along the target's own tokens.

    Args:
      betas: acceptance at each token of the output.
      gamma: drafted tokens of a step.
    """
    betas = [min(float(beta), 1.0) for beta in betas]
    count = len(betas)
    runs = [0.0] * (count + gamma + 1)  # from each token on; none past the end
    for at in reversed(range(count)):
        total, stood = 1.0, 1.0
        for drafted in range(at, min(at + gamma, count)):
            total += stood * (1 - betas[drafted]) * runs[drafted + 1]
            stood *= betas[drafted]
        runs[at] = total + stood * runs[at + gamma + 1] * (at + gamma < count)
    return runs[0]


def timed_gammas(gammas: Sequence[int]) -> tuple[int, ...]:
    """The smallest, the middle and the largest."""
    ordered = sorted(gammas)
    return tuple(sorted({ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]}))


def between(known: Mapping[int, float], gammas: Sequence[int]) -> dict[int, float]:
    """Values at gammas, linear between those that are known."""
    at = sorted(known)
    values = np.interp(gammas, at, [known[gamma] for gamma in at])
    return dict(zip(gammas, map(float, values), strict=True))


def ratio_interval(
    over: np.ndarray, under: np.ndarray
) -> tuple[float | None, float | None]:
    """The 95% interval of a ratio of sums, by resampling its terms together.

    Args:
      over: terms of one sum.
      under: those of the other, in the same order.

    Returns:
      Both ends; None where there are fewer terms than `LEAST_TERMS`.
    """
    if len(over) < LEAST_TERMS:
        return None, None
    draws = np.random.default_rng(0).integers(len(over), size=(RESAMPLES, len(over)))
    low, high = np.percentile(over[draws].sum(1) / under[draws].sum(1), INTERVAL)
    return float(low), float(high)
