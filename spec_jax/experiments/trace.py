"""What each run of the target did to a text, and what took how long."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from spec_jax.core.rules import AnyRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.experiments.costs import start_costs, step_costs
from spec_jax.experiments.record import JsonLine
from spec_jax.pairs import Pair

PLAIN = 0
"""Stands for plain decoding among gammas."""
STATUSES = ("accepted", "rejected", "correction", "bonus", "target")
"""Of a token: drafted and kept; drafted and not; in the place of one that was not;
after a proposal that was kept whole; the target's own where nothing was drafted."""


@dataclasses.dataclass(frozen=True)
class Part:
    """Neighbouring tokens of one status.

    Attributes:
      status: one of `STATUSES`.
      text: of them, a space before a word included; bytes that make no character
        as \\xNN.
      tokens: how many.
    """

    status: str
    text: str
    tokens: int


@dataclasses.dataclass(frozen=True)
class Step:
    """One run of the target.

    Attributes:
      drafted: tokens that it judged.
      parts: in reading order; of what was rejected only the first token, as the rest
        was never looked at.
    """

    drafted: int
    parts: tuple[Part, ...]

    @property
    def tokens(self) -> int:
        """Tokens that it brought."""
        return sum(part.tokens for part in self.parts if part.status != "rejected")


@dataclasses.dataclass(frozen=True)
class PartTimes:
    """Seconds of the parts of a decode, each the median of repeats.

    Attributes:
      target_start: the target's encoder and caches, once.
      draft_start: the draft's, once; 0 in plain decoding.
      draft_call: one of the gamma calls of a proposal; 0 in plain decoding.
      target_call: a run of the target on gamma + 1 tokens, rule and draws included.
    """

    target_start: float
    draft_start: float
    draft_call: float
    target_call: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceRecord(JsonLine):
    """One text decoded with one gamma. Figures that both have are those of `Record`.

    Attributes:
      task: whose prefix the text had.
      pair: of the models.
      draft: where proposals come from; "plain" with gamma 0.
      rule: how they are judged.
      gamma: drafted tokens of a step; 0 is plain decoding.
      temperature: of both.
      dtype: of this way of decoding.
      number: of the text, from 1.
      source: the text.
      output: its decoded text.
      tokens: new tokens.
      runs: of the target.
      steps: what each run did.
      times: of the parts.
      seconds: of the whole decode, the median of repeats.
      repeats: timed calls.
      seed: with the text's number it decides the draws.
      device: see `Record`.
      cpu_threads: see `Record`.
      versions: see `Record`.
      date: when it was measured.
      kind: of the line.
    """

    task: str
    pair: str
    draft: str
    rule: str
    gamma: int
    temperature: float
    dtype: str
    number: int
    source: str
    output: str
    tokens: int
    runs: int
    steps: tuple[Step, ...]
    times: PartTimes
    seconds: float
    repeats: int
    seed: int
    device: str
    cpu_threads: int | None
    versions: dict[str, str]
    date: str
    kind: str = "trace"

    @staticmethod
    def restored(fields):
        """See `JsonLine.restored`."""
        steps = (
            Step(step["drafted"], tuple(Part(**part) for part in step["parts"]))
            for step in fields["steps"]
        )
        return {**fields, "steps": tuple(steps), "times": PartTimes(**fields["times"])}


def part_times(
    pair: Pair,
    plain_pair: Pair,
    gammas: Sequence[int],
    policy: SamplingPolicy,
    rule: AnyRule | None,
    given: dict[str, Any],
    max_new_tokens: int,
) -> dict[int, PartTimes]:
    """What the parts of a decode take, with each gamma and plainly.

    Args:
      pair: with the draft that is used.
      plain_pair: decodes plainly.
      gammas: drafted tokens of a step.
      policy: of both.
      rule: how proposals are judged; None: the token rule.
      given: inputs, prompt and key of a text, as `generate` takes them.
      max_new_tokens: decides the length of buffers, as in decoding.

    Returns:
      Times by gamma, plain decoding's at PLAIN, as measured beside the first gamma.
    """
    plain = plain_pair.autoregressive(policy, rule)
    where = given["inputs"], given["prompt"], given["key"]
    times: dict[int, PartTimes] = {}
    for gamma in gammas:
        speculative = pair.speculative(gamma, policy, rule)
        both = plain, plain_pair.params, speculative, pair.params
        step = step_costs(*both, *where, max_new_tokens=max_new_tokens)
        start = start_costs(*both, *where, max_new_tokens=max_new_tokens)
        times[gamma] = PartTimes(start.target, start.draft, step.draft, step.verify)
        times.setdefault(PLAIN, PartTimes(start.plain, 0.0, 0.0, step.plain))
    return times
