"""Plain decoding and several drafts on one's own texts, timed in turn."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from spec_jax.base import Algorithm
from spec_jax.core.rules import AnyRule, is_lossless
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.decoding.loop import Generation, generate
from spec_jax.decoding.stats import Statistics
from spec_jax.drafts import LengthPolicy
from spec_jax.experiments.clock import Timing, time_call, time_in_turns
from spec_jax.experiments.record import (
    JsonLine,
    cpu_threads,
    describe_device,
    finite_or_none,
    today,
    versions,
)
from spec_jax.pairs import WITH_LENGTHS, Drafting

PLAIN = "plain"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareRecord(JsonLine):
    """One way of decoding some texts. Figures that both have are those of `Record`.

    Attributes:
      pair: of the models.
      draft: where proposals come from; "plain" without any.
      rule: how they are judged.
      gamma: the most drafted tokens of a step.
      temperature: of both.
      dtype: of parameters and activations.
      num_examples: texts, decoded one at a time.
      tokens: new tokens of all.
      tokens_per_second: those over the sum of the texts' median times.
      slowest: the same by the slowest repeat.
      fastest: the same by the fastest one.
      speedup: tokens a second over plain decoding's.
      tokens_per_run: tokens over runs of the target.
      accepted_per_drafted: None where nothing was drafted.
      identical: share of texts whose tokens are plain decoding's, both in
        plain decoding's dtype; None where draws decide.
      repeats: timed calls of each text.
      seed: with a text's number it decides the draws.
      device: see `Record`.
      cpu_threads: see `Record`.
      versions: see `Record`.
      date: when it was measured.
    """

    pair: str
    draft: str
    rule: str
    gamma: int
    temperature: float
    dtype: str
    num_examples: int
    tokens: int
    tokens_per_second: float
    slowest: float
    fastest: float
    speedup: float
    tokens_per_run: float
    accepted_per_drafted: float | None
    identical: float | None
    repeats: int
    seed: int
    device: str
    cpu_threads: int | None
    versions: dict[str, str]
    date: str


def compare(
    pair: Drafting,
    plain_pair: Drafting,
    rows: Sequence[Sequence[int]],
    drafts: Sequence[str],
    policy: SamplingPolicy,
    *,
    gamma: int,
    max_new_tokens: int,
    length: int,
    rule: AnyRule | None = None,
    lengths: LengthPolicy | None = None,
    repeats: int = 3,
    seed: int = 0,
    begin: Callable[[str], None] = lambda text: None,
) -> list[CompareRecord]:
    """Decodes texts one at a time in every way, timed in turn.

    Args:
      pair: in the dtype in which speculative decoding is fastest.
      plain_pair: in the one in which plain decoding is.
      rows: encoded texts.
      drafts: of `pairs.DRAFTS`.
      policy: of target and drafts.
      gamma: the most drafted tokens of a step.
      max_new_tokens: of each text.
      length: to which all are padded.
      rule: how proposals are judged; None: the token rule.
      lengths: how many a step has, for drafts that have a choice; None: gamma.
      repeats: timed calls of each text and way.
      seed: with a text's number it decides the draws.
      begin: told what begins.

    Returns:
      Plain decoding's record, and one for each draft.
    """
    ways: dict[str, tuple[Algorithm, Any]] = {
        PLAIN: (plain_pair.autoregressive(policy, rule), plain_pair.params)
    }
    same_dtype = {}
    for draft in drafts:
        using, same = pair.using(draft), plain_pair.using(draft)
        choices = gamma, policy, rule, lengths if draft in WITH_LENGTHS else None
        ways[draft] = using.speculative(*choices), using.params
        same_dtype[draft] = same.speculative(*choices), same.params
    comparable = policy.is_greedy() or ways[PLAIN][0].noise == "gumbel"
    comparable = comparable and is_lossless(rule)

    timings: dict[str, list[Timing]] = {name: [] for name in ways}
    equal: dict[str, list[bool]] = {name: [] for name in ways}
    for number, row in enumerate(rows):
        begin(f"text {number + 1} of {len(rows)}")
        key = jax.random.fold_in(jax.random.key(seed), number)
        given = pair.arguments([row], length)

        def decode(algorithm, params, given=given, key=key):
            return generate(
                algorithm, params, **given, key=key[None], max_new_tokens=max_new_tokens
            )

        calls = {name: functools.partial(decode, *way) for name, way in ways.items()}
        if not number:
            for call in calls.values():
                time_call(call)  # compiles
        for name, timing in time_in_turns(calls, repeats).items():
            timings[name].append(timing)
        want = timings[PLAIN][-1].result
        for name in drafts if comparable else ():
            got = timings[name][-1].result
            if pair.dtype != plain_pair.dtype:
                got = decode(*same_dtype[name])
            equal[name].append(_same(want, got))
    plain_speed = _tokens_per_second(timings[PLAIN], statistics.median)
    fields = {
        "pair": pair.name,
        "gamma": gamma,
        "temperature": policy.temperature,
        "repeats": repeats,
        "seed": seed,
    }
    records = [_record(PLAIN, timings[PLAIN], [], plain_speed, "", plain_pair, fields)]
    for name in drafts:
        judged = type(ways[name][0].rule).__name__.removesuffix("Rule").lower()
        found = timings[name], equal[name], plain_speed, judged, pair, fields
        records.append(_record(name, *found))
    return records


def _record(name, timings: Sequence[Timing], equal, plain_speed, rule, pair, fields):
    stats: Statistics = jax.tree.map(
        lambda *x: np.concatenate(x), *(timing.result.stats for timing in timings)
    )
    speed = _tokens_per_second(timings, statistics.median)
    return CompareRecord(
        draft=name,
        rule=rule,
        dtype=pair.dtype.name,
        num_examples=len(timings),
        tokens=stats.emitted,
        tokens_per_second=speed,
        slowest=_tokens_per_second(timings, max),
        fastest=_tokens_per_second(timings, min),
        speedup=speed / plain_speed,
        tokens_per_run=stats.tokens_per_target_run,
        accepted_per_drafted=finite_or_none(stats.accepted_per_drafted),
        identical=sum(equal) / len(equal) if equal else None,
        device=describe_device(),
        cpu_threads=cpu_threads(),
        versions=versions(),
        date=today(),
        **fields,
    )


def _tokens_per_second(timings: Sequence[Timing], which) -> float:
    tokens = sum(timing.result.stats.emitted for timing in timings)
    return tokens / sum(which(timing.seconds) for timing in timings)


def _same(one: Generation, other: Generation) -> bool:
    return bool(
        (one.lengths == other.lengths).all() and (one.tokens == other.tokens).all()
    )
