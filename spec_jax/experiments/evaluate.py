"""Speculative against plain decoding on a task: the figures of Table 2."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spec_jax.core import theory
from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import Scores, TaskData
from spec_jax.drafts import FixedLength, LengthPolicy
from spec_jax.experiments.bench import Bench
from spec_jax.experiments.costs import StepCosts
from spec_jax.experiments.example_results import (
    WAYS,
    ExampleResult,
    alpha_of,
    decoded_by,
)
from spec_jax.experiments.journal import (
    Journal,
    digest_of_parameters,
    digest_of_texts,
)
from spec_jax.experiments.outputs import Decoded, Way, share_identical
from spec_jax.experiments.record import (
    Record,
    cpu_threads,
    describe_device,
    finite_or_none,
    today,
    versions,
)
from spec_jax.pairs import DRAFTS, Pair

UNSTEADY = 1.1
"""Repeats that differ by more than this factor are warned about."""
BUSY = 1.25
"""More programs for each core than this are warned about."""

Progress = Callable[[int, int, str], None]
"""Called with the units done, the units in all, and what comes next."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What to measure, and how.

    Attributes:
      temperature: of target and draft; 0 is argmax.
      gamma: drafted tokens a step.
      batch: rows of a call.
      repeats: timed calls of each batch.
      seed: with an example's index it decides a row's draws.
      input_lengths: encoder tokens a compiled shape holds; longer inputs are cut
        to the longest.
      top_k: see `SamplingPolicy`, for target and draft.
      top_p: see `SamplingPolicy`.
      min_p: see `SamplingPolicy`.
      draft: where proposals come from, one of `pairs.choices.DRAFTS`.
      rule: how proposals are judged; None: the token rule.
      lengths: how many tokens a step drafts; None: gamma.
      score_draft: also decode with the small model alone, untimed, for its BLEU or
        ROUGE, where it is the draft.

    Raises:
      ValueError: if a number is not positive.
    """

    temperature: float = 0.0
    gamma: int = 4
    batch: int = 1
    repeats: int = 3
    seed: int = 0
    input_lengths: tuple[int, ...] = (16, 32, 48, 64, 96, 128, 192, 256)
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    draft: str = "model"
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None
    score_draft: bool = True

    def __post_init__(self):
        object.__setattr__(self, "input_lengths", tuple(sorted(self.input_lengths)))
        for name in ("gamma", "batch", "repeats"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"want {name} >= 1, got {value}")
        SamplingPolicy(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
        )
        if self.draft not in DRAFTS:
            raise ValueError(f"want a draft of {', '.join(DRAFTS)}, got {self.draft!r}")
        if not self.input_lengths or self.input_lengths[0] < 2:
            raise ValueError(
                f"want input_lengths of at least 2 tokens, got {self.input_lengths}"
            )


def evaluate(
    pair: Pair,
    plain_pair: Pair | None,
    data: TaskData,
    settings: EvaluateSettings,
    progress: Progress | None = None,
    *,
    journal: Journal | None = None,
    baseline: Way | None = None,
) -> tuple[Record, list[ExampleResult]]:
    """Decodes a task both ways, in turns, and takes the figures of Table 2.

    docs/measurements.md defines every figure.

    Args:
      pair: in the dtype in which speculative decoding is fastest.
      plain_pair: the same pair in the dtype in which plain decoding is fastest;
        None: `pair`.
      data: examples of the task, and how outputs are scored.
      settings: what to measure.
      progress: told how far it is.
      journal: of this run: the examples in it are not decoded again, and each batch
        is added to it as soon as it is measured. See `run_head`.
      baseline: another decoder of the same target that is timed too; it gives tokens
        [b, max_new_tokens], 0 past a row's end.

    Returns:
      The record of one run, and what was measured of each example.

    Raises:
      ValueError: if there is no example, or the pairs have different vocabularies.
    """
    plain_pair = plain_pair or pair
    bench = Bench(pair, plain_pair, data, settings, baseline)
    done = kept_results(journal) if journal else []
    results = {result.index: result for result in done}
    steps = _Steps(progress, len(bench.batches) + 1)
    for number, batch in enumerate(bench.batches):
        steps.begin(bench.doing(batch))
        missing = {member.index for member in batch.members} - results.keys()
        if missing:
            # Of a batch that a kill cut in half only the rest is added.
            new = [r for r in bench.measure(number, batch) if r.index in missing]
            if journal is not None:
                journal.append([result.line() for result in new])
            results |= {result.index: result for result in new}
    steps.begin("costs of a step")
    costs = bench.costs()
    steps.end()
    ordered = [results[index] for index in sorted(results)]
    return record_of(bench, ordered, costs), ordered


def kept_results(journal: Journal) -> list[ExampleResult]:
    """What a journal has of examples.

    Raises:
      ValueError: if a line is none; file and line are named.
    """
    results = []
    for number, line in enumerate(journal.lines, 2):  # the head is the first
        try:
            results.append(ExampleResult.from_line(line))
        except ValueError as error:
            raise ValueError(
                f"{journal.path}, line {number}: {error}; remove the file to begin anew"
            ) from None
    return results


def run_head(
    pair: Pair,
    plain_pair: Pair,
    data: TaskData,
    settings: EvaluateSettings,
    baseline: str | None = None,
) -> dict[str, Any]:
    """What must be the same for examples to be of one run, as JSON holds it.

    Targets are not in it: outputs do not depend on them, and scores are taken anew.

    Args:
      pair: see `evaluate`.
      plain_pair: see `evaluate`.
      data: see `evaluate`.
      settings: see `evaluate`.
      baseline: its name, where there is one.
    """
    inputs = (str(example.inputs) for example in data.examples)
    return {
        "task": data.name,
        "examples": digest_of_texts(inputs),
        "lengths": [data.max_input_length, data.max_target_length],
        "settings": repr(settings),
        "pair": pair.name,
        "parameters": digest_of_parameters(pair.using(settings.draft).params),
        "baseline": baseline,
        "dtypes": [pair.dtype.name, str(pair.draft_dtype), plain_pair.dtype.name],
        "device": describe_device(),
        "cpu_threads": cpu_threads(),
        "versions": versions(),
    }


def record_of(
    bench: Bench, results: Sequence[ExampleResult], costs: StepCosts
) -> Record:
    """The figures of all examples."""
    settings, data = bench.settings, bench.data
    decoded = {way: decoded_by(results, way) for way in results[0].tokens}
    alpha = alpha_of(results)
    fast, slow = decoded["speculative"], decoded["plain"]
    exact = decoded.get("exact", fast)
    stats, rule = fast.total, bench.speculative.rule
    speedup = fast.tokens_per_second / slow.tokens_per_second
    # Sums of probabilities may round to more than 1.
    formula = theory.speedup(
        min(alpha.mean, 1.0), settings.gamma, costs.c, costs.verify_cost
    )
    load, longest = machine_load(), bench.longest
    return Record(
        task=data.name,
        pair=bench.pair.name,
        draft=settings.draft,
        rule=_kind(rule, "Rule"),
        lossless=rule.lossless,
        lenience=getattr(rule, "lenience", None),
        lengths="fixed" if settings.lengths is None else _lengths(settings.lengths),
        temperature=settings.temperature,
        gamma=settings.gamma,
        batch=settings.batch,
        policy={k: getattr(bench.policy, k) for k in ("top_k", "top_p", "min_p")},
        dtype=bench.pair.dtype.name,
        draft_dtype=str(bench.pair.draft_dtype or ""),
        plain_dtype=bench.plain_pair.dtype.name,
        device=describe_device(),
        cpu_threads=cpu_threads(),
        versions=versions(),
        seed=settings.seed,
        num_examples=len(data.examples),
        inputs_cut=bench.cut,
        alpha=alpha.mean,
        alpha_stderr=alpha.stderr,
        alpha_tokens=alpha.num_tokens,
        c=costs.c,
        verify_cost=costs.verify_cost,
        tokens_per_run=stats.tokens_per_target_run,
        accepted_per_drafted=finite_or_none(stats.accepted_per_drafted),
        acceptance_by_position=tuple(map(finite_or_none, stats.acceptance_by_position)),
        tokens_plain=slow.num_tokens,
        tokens_speculative=fast.num_tokens,
        tokens_per_second_plain=slow.tokens_per_second,
        tokens_per_second_speculative=fast.tokens_per_second,
        speedup=speedup,
        speedup_formula=formula,
        speedup_of_formula=speedup / formula,
        identical=share_identical(slow, exact) if bench.comparable else None,
        identical_across_dtypes=(
            share_identical(slow, fast) if bench.comparable else None
        ),
        differences=tuple(r.difference for r in results if r.difference),
        metrics=scores_of(results, data, bench.pair.vocabulary),
        baseline=_against(decoded.get("baseline"), fast, slow, bench.comparable),
        compile_seconds=sum(result.compile_seconds for result in results),
        repeats=settings.repeats,
        date=today(),
        warnings=tuple(_warnings(alpha, costs, bench.cut, longest, slow, fast, load)),
    )


def scores_of(
    results: Sequence[ExampleResult], data: TaskData, vocabulary: Any
) -> dict[str, Scores]:
    """The task's figures for every way of decoding that is scored.

    Args:
      results: of all examples, in the data's order.
      data: of the task.
      vocabulary: of the models.
    """
    return {
        way: data.score([vocabulary.decode(result.tokens[way]) for result in results])
        for way in (*WAYS, "draft")
        if way in results[0].tokens
    }


def _against(
    baseline: Decoded | None, fast: Decoded, slow: Decoded, comparable: bool
) -> dict[str, float | None] | None:
    """How another decoder of the target compares; None where there was none."""
    if baseline is None:
        return None
    return {
        "tokens_per_second": baseline.tokens_per_second,
        "speedup": fast.tokens_per_second / baseline.tokens_per_second,
        "identical": share_identical(slow, baseline) if comparable else None,
    }


def _warnings(alpha, costs, cut, longest, plain, fast, load) -> Iterator[str]:
    if alpha.mean < costs.c:
        yield (
            f"alpha {alpha.mean:.3f} < c {costs.c:.3f}: the draft costs more than it "
            "saves at any gamma"
        )
    if cut:
        yield f"{cut} inputs were cut at {longest} tokens"
    for name, decoded in (("plain", plain), ("speculative", fast)):
        if decoded.unsteadiness > UNSTEADY:
            yield (
                f"repeats of {name} decoding differ by a factor of "
                f"{decoded.unsteadiness:.2f}: was the machine idle?"
            )
    if load > BUSY:
        yield (
            f"{load:.1f} programs ran for each core of the machine: times are too "
            "long, and unequally so"
        )


def machine_load() -> float:
    """Programs that wanted to run over the last minute, for each core."""
    if not hasattr(os, "getloadavg"):
        return 0.0
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class _Steps:
    """Counts units of work for a progress callback."""

    def __init__(self, progress: Progress | None, total: int):
        self._progress, self._total, self._begun = progress, total, 0

    def begin(self, text: str) -> None:
        """The unit before is done, and another begins."""
        self._show(self._begun, text)
        self._begun += 1

    def end(self) -> None:
        """All is done."""
        self._show(self._total, "done")

    def _show(self, done: int, text: str) -> None:
        if self._progress is not None:
            self._progress(done, self._total, text)


def _kind(thing, suffix: str) -> str:
    """'model' for a ModelDraft, 'token' for a TokenRule."""
    return type(thing).__name__.removesuffix(suffix).lower()


def _lengths(lengths: LengthPolicy) -> str:
    """'fixed' for FixedLength(), and the others as they are written."""
    return "fixed" if lengths == FixedLength() else repr(lengths)
