"""Every draft under every rule and length policy: what each brings, and might bring."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp

from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import TaskData
from spec_jax.drafts import FixedLength
from spec_jax.experiments.alpha import Alpha
from spec_jax.experiments.costs import StepCosts, step_costs
from spec_jax.experiments.figures import laws_along, measure_alpha
from spec_jax.experiments.inputs import InputBatch, cut_inputs, make_batches
from spec_jax.experiments.outputs import Decoded, decode_all, decode_in_turns
from spec_jax.experiments.programs import forget_programs
from spec_jax.experiments.record import (
    JsonLine,
    cpu_threads,
    describe_device,
    finite_or_none,
    today,
    versions,
)
from spec_jax.experiments.rules import (
    BlockGain,
    BranchGain,
    block_gains,
    branch_gains,
)
from spec_jax.pairs import (
    DRAFTS,
    LENGTHS,
    RULES,
    WITH_LENGTHS,
    Pair,
    make_lengths,
    make_rule,
)

SAME_AT_ZERO = ("block", "coupled")
"""At temperature 0 these rules are the token rule."""
BRANCHES = 4
"""The most first tokens of a step that are looked at."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """What is swept, and over which texts.

    Attributes:
      temperatures: of target and draft.
      drafts: of `pairs.DRAFTS`.
      rules: of `pairs.RULES`.
      lengths: of `pairs.LENGTHS`.
      gamma: drafted tokens of a step where lengths are fixed.
      most: the most of them where they are not, and of the oracle.
      lenience: of the lenient rule.
      threshold: of lengths by confidence.
      num_examples: the first texts that are short enough.
      input_length: encoder tokens of all texts; longer ones are passed over.
      repeats: timed calls of each text.
      seed: with an example's index it decides a row's draws.

    Raises:
      ValueError: for an unknown name or a number out of range.
    """

    temperatures: tuple[float, ...] = (0.0, 0.5, 1.0)
    drafts: tuple[str, ...] = DRAFTS
    rules: tuple[str, ...] = RULES
    lengths: tuple[str, ...] = LENGTHS
    gamma: int = 4
    most: int = 8
    lenience: float = 0.5
    threshold: float = 0.4
    num_examples: int = 32
    input_length: int = 64
    repeats: int = 3
    seed: int = 0

    def __post_init__(self):
        for name, known in (("drafts", DRAFTS), ("rules", RULES), ("lengths", LENGTHS)):
            unknown = set(getattr(self, name)) - set(known)
            if unknown or not getattr(self, name):
                raise ValueError(
                    f"want {name} of {', '.join(known)}, got {getattr(self, name)}"
                )
        for name in ("gamma", "most", "num_examples", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"want {name} >= 1, got {getattr(self, name)}")
        if self.input_length < 2:
            raise ValueError(f"want input_length >= 2, got {self.input_length}")
        make_rule("lenient", self.lenience)
        make_lengths("confidence", threshold=self.threshold)
        for temperature in self.temperatures:
            SamplingPolicy(temperature=temperature)
        if not any(combinations(self, "")):
            raise ValueError(
                f"want some combination, got none of {self.drafts} with lengths "
                f"{self.lengths} at temperatures {self.temperatures}: "
                f"{', '.join(set(self.drafts) - set(WITH_LENGTHS)) or 'these'} want "
                "fixed lengths"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepRecord(JsonLine):
    """One combination. Figures that both have are those of `Record`.

    Attributes:
      task: of the texts.
      draft: where proposals come from.
      rule: how they are judged.
      lengths: how many a step drafts.
      temperature: of both.
      gamma: the most drafted tokens of a step.
      lenience: of the lenient rule, whose output does not follow the target.
      lossless: whether the output follows the target.
      alpha: as the paper measures it, for this draft and temperature.
      alpha_stderr: its standard error.
      c: of a draft step, without the length policy.
      verify_cost: at this gamma.
      tokens_per_run: measured.
      drafted_per_run: tokens that the target judged in a step.
      accepted_per_drafted: measured.
      speedup: measured, over plain decoding in its fastest dtype.
      modelled: tokens / (drafted c + steps verify_cost): what this run would reach
        were its steps alone timed.
      oracle: the same for a draft that knows how many tokens will be accepted and
        drafts no more, up to `most`; a call of the target costs as much as here.
      tokens: decoded.
      num_examples: texts.
      device: see `Record`.
      cpu_threads: see `Record`.
      dtype: of speculative decoding.
      plain_dtype: of plain decoding.
      versions: see `Record`.
      seed: see `SweepSettings`.
      repeats: see `SweepSettings`.
      date: when it was measured.
    """

    task: str
    draft: str
    rule: str
    lengths: str
    temperature: float
    gamma: int
    lenience: float | None
    lossless: bool
    alpha: float
    alpha_stderr: float | None
    c: float
    verify_cost: float
    tokens_per_run: float
    drafted_per_run: float
    accepted_per_drafted: float | None
    speedup: float
    modelled: float
    oracle: float
    tokens: int
    num_examples: int
    device: str
    cpu_threads: int | None
    dtype: str
    plain_dtype: str
    versions: dict[str, str]
    seed: int
    repeats: int
    date: str

    @property
    def cell(self) -> tuple:
        """What tells it from the other combinations of a sweep."""
        return (self.task, self.temperature, self.draft, self.rule, self.lengths)


def combinations(settings: SweepSettings, task: str) -> Iterator[tuple]:
    """The `cell` of every record of a sweep, in the order in which they come."""
    for temperature in settings.temperatures:
        greedy = SamplingPolicy(temperature=temperature).is_greedy()
        for draft in settings.drafts:
            for rule in settings.rules:
                if greedy and rule in SAME_AT_ZERO and "token" in settings.rules:
                    continue
                for lengths in settings.lengths:
                    if draft not in WITH_LENGTHS and lengths != "fixed":
                        continue
                    yield (task, temperature, draft, rule, lengths)


def sweep(
    pair: Pair,
    plain_pair: Pair,
    data: TaskData,
    settings: SweepSettings,
    done: Sequence[tuple] = (),
    begin: Callable[[tuple], None] = lambda cell: None,
) -> Iterator[SweepRecord]:
    """Measures every combination, one after another.

    Args:
      pair: in the dtype in which speculative decoding is fastest.
      plain_pair: in the one in which plain decoding is.
      data: examples of the task.
      settings: what is swept.
      done: cells that are passed over.
      begin: told what begins.

    Yields:
      A record for each, as soon as it is measured.

    Raises:
      ValueError: if no text is short enough.
    """
    batches = sweep_batches(data, settings)
    parts = Parts(pair, plain_pair, batches, settings)
    for _, cells in itertools.groupby(
        combinations(settings, data.name), key=lambda cell: cell[:3]
    ):
        for cell in cells:
            if cell not in done:
                begin(cell)
                yield _measure(parts, cell)
        forget_programs()


def sweep_batches(data: TaskData, settings: SweepSettings) -> list[InputBatch]:
    """The texts of a sweep, one a batch and all of one shape.

    Raises:
      ValueError: if no text is short enough.
    """
    examples, _ = cut_inputs(data.examples, 2**30)
    short = [x for x in examples if len(x.tokens) <= settings.input_length]
    if not short:
        raise ValueError(
            f"want texts of at most {settings.input_length} tokens, got none of "
            f"{len(examples)}"
        )
    return make_batches(
        short[: settings.num_examples],
        batch=1,
        input_lengths=(settings.input_length,),
        max_new_tokens=data.max_target_length,
        seed=settings.seed,
    )


class Parts:
    """What combinations share: plain outputs, alpha, costs, the oracle's steps."""

    def __init__(self, pair, plain_pair, batches, settings):
        self.pair, self.plain_pair = pair, plain_pair
        self.batches, self.settings = batches, settings
        self._kept: dict[tuple, Any] = {}

    def rule(self, name: str):
        """A rule of the sweep."""
        return make_rule(name, self.settings.lenience if name == "lenient" else None)

    def plain(self, temperature: float, rule: str):
        """Plain decoding, with the noise that the rule compares with."""
        policy = self.plain_pair.policy(temperature)
        return self.plain_pair.autoregressive(policy, self.rule(rule))

    def speculative(self, temperature, draft, rule, lengths, gamma):
        """Algorithm and parameters of a combination."""
        pair = self.pair.using(draft)
        policy = pair.policy(temperature)
        return pair.speculative(gamma, policy, self.rule(rule), lengths), pair.params

    def alpha(self, temperature: float, draft: str) -> Alpha:
        """Of a draft, on what plain decoding gives."""

        def measure():
            algorithm, params = self.speculative(
                temperature, draft, "token", FixedLength(), 1
            )
            plain = self.plain(temperature, "token"), self.plain_pair.params
            decoded = decode_all(*plain, self.batches)
            return measure_alpha(algorithm, params, self.batches, decoded)

        return self._once(("alpha", temperature, draft), measure)

    def costs(self, temperature: float, draft: str, rule: str, gamma: int) -> StepCosts:
        """Of a draft and rule, with gamma tokens in every step."""

        def measure():
            algorithm, params = self.speculative(
                temperature, draft, rule, FixedLength(), gamma
            )
            batch = self.batches[0]
            return step_costs(
                self.plain(temperature, rule),
                self.plain_pair.params,
                algorithm,
                params,
                batch.inputs,
                batch.prompt,
                batch.keys,
                max_new_tokens=batch.max_new_tokens,
            )

        return self._once(("costs", temperature, draft, rule, gamma), measure)

    def branch_costs(self, temperature: float, gamma: int) -> list[float]:
        """Of a step with 1, 2, ... branches over a plain step of one row."""
        plain = self.costs(temperature, "model", "token", gamma).plain
        algorithm, params = self.speculative(
            temperature, "model", "token", FixedLength(), gamma
        )
        batch, found = self.batches[0], []
        for rows in range(1, BRANCHES + 1):
            costs = step_costs(
                self.plain(temperature, "token"),
                self.plain_pair.params,
                algorithm,
                params,
                jnp.repeat(batch.inputs, rows, axis=0),
                jnp.repeat(batch.prompt, rows, axis=0),
                jnp.repeat(batch.keys, rows, axis=0),
                max_new_tokens=batch.max_new_tokens,
            )
            found.append((gamma * costs.draft + costs.verify) / plain)
        return found

    def knowing(self, temperature: float, draft: str, rule: str) -> Decoded:
        """What `most` drafted tokens a step give, for the oracle's counts."""

        def measure():
            most = self.settings.most
            way = self.speculative(temperature, draft, rule, FixedLength(), most)
            return decode_all(*way, self.batches)

        return self._once(("knowing", temperature, draft, rule), measure)

    def _once(self, name: tuple, measure: Callable[[], Any]) -> Any:
        if name not in self._kept:
            self._kept[name] = measure()
        return self._kept[name]


def modelled_speed(
    decoded: Decoded, costs: StepCosts, drafts_accepted_only: bool = False
) -> float:
    """tokens / (drafted c + steps verify_cost) of a run's counts.

    Args:
      decoded: whose counts.
      costs: gives c and verify_cost.
      drafts_accepted_only: what an oracle would draft: accepted tokens alone.
    """
    stats = decoded.total
    drafted = stats.accepted if drafts_accepted_only else stats.drafted
    return stats.emitted / (drafted * costs.c + stats.steps * costs.verify_cost)


def rule_gains(
    pair: Pair,
    plain_pair: Pair,
    data: TaskData,
    settings: SweepSettings,
) -> tuple[list[BlockGain], list[BranchGain]]:
    """What block verification and several first tokens bring with the small model.

    Args:
      pair: as for `sweep`, and the rest too.
      plain_pair: decodes the outputs along which first tokens are judged.
      data: examples of the task.
      settings: whose temperatures, texts and `most` are used.
    """
    batches = sweep_batches(data, settings)
    parts = Parts(pair, plain_pair, batches, settings)
    draws = [
        batch
        for seed in range(settings.repeats)
        for batch in sweep_batches(
            data, dataclasses.replace(settings, seed=settings.seed + seed)
        )
    ]
    blocks, branches = [], []
    for temperature in settings.temperatures:
        policy = pair.policy(temperature)
        way = (temperature, "model", "token", FixedLength())
        if not policy.is_greedy():
            algorithm, params = parts.speculative(*way, settings.most)
            blocks += block_gains(algorithm, params, draws, data.name)
        plain = parts.plain(temperature, "token"), plain_pair.params
        decoded = decode_all(*plain, batches)
        soft = pair.policy(1.0) if policy.is_greedy() else policy
        p, q = laws_along(pair, policy, soft, batches, decoded)
        branches += branch_gains(
            p,
            q,
            parts.alpha(temperature, "model").mean,
            task=data.name,
            temperature=temperature,
            gamma=settings.gamma,
            costs=parts.branch_costs(temperature, settings.gamma),
        )
    return blocks, branches


def _measure(parts: Parts, cell: tuple) -> SweepRecord:
    task, temperature, draft, rule, lengths = cell
    settings = parts.settings
    gamma = settings.gamma if lengths == "fixed" else settings.most
    costs = parts.costs(temperature, draft, rule, gamma)
    chosen = make_lengths(
        lengths, max(costs.c, 1e-3), costs.verify_cost, settings.threshold
    )
    decoded, _ = decode_in_turns(
        {
            "plain": (parts.plain(temperature, rule), parts.plain_pair.params),
            "it": parts.speculative(temperature, draft, rule, chosen, gamma),
        },
        parts.batches,
        settings.repeats,
    )
    plain, it = decoded["plain"], decoded["it"]
    alpha, stats = parts.alpha(temperature, draft), it.total
    return SweepRecord(
        task=task,
        draft=draft,
        rule=rule,
        lengths=lengths,
        temperature=temperature,
        gamma=gamma,
        lenience=settings.lenience if rule == "lenient" else None,
        lossless=parts.rule(rule).lossless,
        alpha=alpha.mean,
        alpha_stderr=alpha.stderr,
        c=costs.c,
        verify_cost=costs.verify_cost,
        tokens_per_run=stats.tokens_per_target_run,
        drafted_per_run=stats.drafted / stats.steps,
        accepted_per_drafted=finite_or_none(stats.accepted_per_drafted),
        speedup=it.tokens_per_second / plain.tokens_per_second,
        modelled=modelled_speed(it, costs),
        oracle=modelled_speed(
            parts.knowing(temperature, draft, rule), costs, drafts_accepted_only=True
        ),
        tokens=it.num_tokens,
        num_examples=len(parts.batches),
        device=describe_device(),
        cpu_threads=cpu_threads(),
        dtype=parts.pair.dtype.name,
        plain_dtype=parts.plain_pair.dtype.name,
        versions=versions(),
        seed=settings.seed,
        repeats=settings.repeats,
        date=today(),
    )
