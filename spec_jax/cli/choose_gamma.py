"""`spec-jax choose-gamma`: which draft, gamma and rule pay on one's own texts."""

import dataclasses
from collections.abc import Sequence

from rich import box
from rich.table import Table

from spec_jax.cli.decoding import (
    INPUT_LENGTHS,
    check_draft,
    load_both,
)
from spec_jax.cli.errors import UsageError
from spec_jax.cli.own_texts import OwnTexts, read_own_texts
from spec_jax.cli.settings import once, positive, require
from spec_jax.cli.terminal import make_console, plural
from spec_jax.cli.texts import write_whole
from spec_jax.core.sampling import GREEDY_TEMPERATURE
from spec_jax.data.datasets import TaskData, TaskExample
from spec_jax.experiments.bench import sampling_policy
from spec_jax.experiments.choice import Choice, PlainOutputs, choose, decode_plainly
from spec_jax.experiments.evaluate import BUSY, EvaluateSettings, machine_load
from spec_jax.experiments.rules import BlockGain, block_gains
from spec_jax.pairs import Pair

FEW_TOKENS = 200
"""Fewer outputs' tokens than this are said to be few."""
WITH_LAWS = ("model", "unigram", "bigram")
"""Drafts that the block rule can gain on: a copied token is accepted with p(x) by
both rules, and a chain's laws are not at hand."""
LEAST_GAIN = 1.01
"""A block rule that brings less is not worth a word."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChooseSettings(OwnTexts):
    """What is measured.

    Attributes:
      drafts: to choose from.
      temperature: of target and draft.
      top_k: see `SamplingPolicy`.
      top_p: see `SamplingPolicy`.
      min_p: see `SamplingPolicy`.
      most: the largest gamma to choose from.
      batch_size: texts decoded together.

    Raises:
      ValueError: if a value is out of range.
    """

    drafts: tuple[str, ...]
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    most: int = 8
    batch_size: int = 1

    def __post_init__(self):
        super().__post_init__()
        require(bool(self.drafts), "want at least one of the DRAFTS, got none")
        for draft in self.drafts:
            check_draft(draft)
            self.of_draft(draft)
        once(self, "drafts")
        positive(self, "most")

    @property
    def rows(self) -> int:
        """Texts decoded together."""
        return self.batch_size

    def of_draft(self, draft: str) -> EvaluateSettings:
        """What is measured of one draft."""
        return EvaluateSettings(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            batch=self.batch_size,
            seed=self.seed,
            input_lengths=INPUT_LENGTHS,
            draft=draft,
        )


@dataclasses.dataclass(frozen=True)
class Advice:
    """What follows from the measurements.

    Attributes:
      sentences: in plain words.
      flags: for `generate`; '' where plain decoding is fastest.
      gin: the same as bindings.
    """

    sentences: tuple[str, ...]
    flags: str = ""
    gin: str = ""


def main(invocation) -> None:
    """Runs the command."""
    settings: ChooseSettings = invocation.settings
    path = invocation.flags.output_file
    choices, gain = measure(settings, read_own_texts(invocation))
    console = make_console()
    console.print(results_table(choices))
    console.print(speeds_table(choices))
    console.print(notes(choices), style="dim", markup=False, soft_wrap=True)
    if (load := machine_load()) > BUSY:
        console.print(
            f"{load:.1f} programs ran for each core here: costs may be wrong.",
            style="yellow",
        )
    said = advise(choices, gain)
    for sentence in said.sentences:
        console.print(sentence, markup=False, soft_wrap=True)
    if said.flags:
        for text in ("", f"spec-jax generate {said.flags} ...", "", said.gin):
            console.print(text, markup=False, soft_wrap=True)
    if path is not None:
        write_whole(path, (choice.to_json() + "\n" for choice in choices))


def measure(
    settings: ChooseSettings, texts: Sequence[str]
) -> tuple[list[Choice], BlockGain | None]:
    """Measures every draft, and the block rule with the best one.

    Returns:
      The drafts' choices, best first, and what the block rule gains; None where it
      is the token rule.
    """
    with make_console(stderr=True).status("loading the models") as status:
        pair, plain = load_both(
            settings.load_pair, settings.dtype, settings.plain_dtype
        )
        for draft in settings.drafts:  # said before anything is measured
            try:
                pair.using(draft)
            except ValueError as error:
                raise UsageError(f"{error}; or leave it out of --drafts") from None
        data = as_task(settings, texts, pair)
        status.update("plain decoding")
        outputs = decode_plainly(plain, data, settings.of_draft(settings.drafts[0]))
        choices = [
            choose(
                pair,
                plain,
                data,
                settings.of_draft(draft),
                gammas=range(1, settings.most + 1),
                outputs=outputs,
                begin=lambda doing, draft=draft: status.update(f"{draft}: {doing}"),
            )
            for draft in settings.drafts
        ]
        choices.sort(key=lambda c: (not c.gamma, -c.speeds[c.best]))
        status.update("the block rule")
        return choices, block_gain(choices[0], pair, settings, outputs)


def as_task(settings: ChooseSettings, texts: Sequence[str], pair: Pair) -> TaskData:
    """The texts as examples of a task that is not scored.

    Raises:
      UsageError: if a text is too long.
    """
    examples = tuple(
        TaskExample(number, tokens, "", {})
        for number, tokens in enumerate(settings.encode(texts, pair))
    )
    longest = max(len(example.inputs) for example in examples)
    return TaskData(
        settings.task, examples, longest, settings.output_limit, lambda _: {}
    )


def block_gain(
    choice: Choice, pair: Pair, settings: ChooseSettings, outputs: PlainOutputs
) -> BlockGain | None:
    """What the block rule gains at a choice's gamma; None where it cannot."""
    gamma, draft = choice.gamma, choice.draft
    greedy = choice.temperature <= GREEDY_TEMPERATURE
    if gamma < 2 or greedy or draft not in WITH_LAWS:
        return None
    using, policy = pair.using(draft), sampling_policy(pair, settings)
    speculative = using.speculative(gamma, policy)
    gains = block_gains(speculative, using.params, outputs.batches, choice.task)
    return gains[-1] if gains else None


def advise(choices: Sequence[Choice], gain: BlockGain | None = None) -> Advice:
    """What to use, or why nothing pays.

    Args:
      choices: best first.
      gain: of the block rule with the first.
    """
    first = choices[0]
    few = too_few(first)
    if not first.gamma:
        reasons = [f"  {choice.draft}: {why_not(choice)}." for choice in choices]
        head = (
            "No draft pays on these texts: plain decoding is the fastest, "
            "`Pair.autoregressive` in Python. Why:"
        )
        return Advice((head, *reasons, *few))
    block = gain is not None and gain.gain >= LEAST_GAIN
    rule = "block" if block else "token"
    sure = first.speed_low is not None and first.speed_low > 1
    use = "Use" if sure else "It may pay to use"
    tokens, steps = first.tokens_per_run[first.gamma], _step(first, first.gamma)
    sentences = [
        f"{use} the draft {first.draft} with gamma {first.gamma} and the rule {rule}. "
        f"Expect {first.speed:.2f} times plain decoding's speed{_interval(first)}: "
        f"a run of the target brings {tokens:.2f} tokens and takes {steps:.2f} plain "
        "steps."
    ]
    if first.speed_low is not None and not sure:
        sentences.append(
            "The interval reaches below 1: on other such texts it may be slower."
        )
    if block:
        sentences.append(
            f"The block rule brings {100 * (gain.gain - 1):.1f}% more tokens a run "
            "than the token rule, of the same distribution."
        )
    flags = (
        f"--draft={first.draft} --gamma={first.gamma} --rule={rule} "
        f"--temperature={first.temperature:g} --batch_size={first.batch}"
    )
    gin = (
        f"DRAFT = '{first.draft}'\nGAMMA = {first.gamma}\nRULE = '{rule}'\n"
        f"TEMPERATURE = {first.temperature!r}\nBATCH_SIZE = {first.batch}"
    )
    for name, off in (("top_k", 0), ("top_p", 1.0), ("min_p", 0.0)):
        if first.policy[name] != off:
            flags += f" --{name}={first.policy[name]:g}"
            gin += f"\n{name.upper()} = {first.policy[name]!r}"
    return Advice((*sentences, *few), flags, gin)


def why_not(choice: Choice) -> str:
    """Why a draft does not pay, in words without an end."""
    gamma = choice.best
    verify, tokens = choice.verify_costs[gamma], choice.tokens_per_run[gamma]
    least = min(cost / drafted for drafted, cost in choice.draft_costs.items())
    if choice.alpha <= least:
        return (
            f"alpha {choice.alpha:.2f} is not above c {least:.2f}, so a drafted token "
            "costs more than it saves at any gamma"
        )
    brings = (
        f"with gamma {gamma} a run of the target brings {tokens:.2f} tokens and takes "
        f"{_step(choice, gamma):.2f} plain steps"
    )
    if tokens > choice.draft_costs[gamma] + 1 and verify > 1:
        calls = f"the target's call on {plural(gamma + 1, 'token')}"
        return f"verification is too costly, {calls} takes {verify:.2f}; {brings}"
    if tokens > _step(choice, gamma):
        brings += "; what is done once for a text adds to it"
    return brings


def too_few(choice: Choice) -> list[str]:
    """What must be said of little data."""
    tokens, texts = choice.alpha_tokens, choice.num_examples
    if tokens >= FEW_TOKENS and choice.speed_low is not None:
        return []
    measured = f"{plural(texts, 'text')} with {plural(tokens, 'token')} of output"
    return [f"{measured} say little: give more texts of the kind you decode."]


def results_table(choices: Sequence[Choice]) -> Table:
    """A row for each draft, at its best gamma."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("draft")
    for name in ("alpha", "c", "verify", "gamma", "tok/run", "speed", "95%"):
        table.add_column(name, justify="right")
    for choice in choices:
        best, error = choice.best, choice.alpha_stderr
        interval = ""
        if choice.speed_low is not None:
            interval = f"{choice.speed_low:.2f}-{choice.speed_high:.2f}"
        table.add_row(
            choice.draft,
            f"{choice.alpha:.2f}" + ("" if error is None else f" ± {error:.2f}"),
            f"{choice.c:.3f}",
            f"{choice.verify_costs[best]:.2f}",
            str(best),
            f"{choice.tokens_per_run[best]:.2f}",
            f"{choice.speeds[best]:.2f}",
            interval,
            style="green" if choice.gamma else None,
        )
    return table


def speeds_table(choices: Sequence[Choice]) -> Table:
    """Each draft's expected speed by gamma."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("speed, gamma")
    for gamma in choices[0].speeds:
        table.add_column(str(gamma), justify="right")
    for choice in choices:
        speeds = (f"{speed:.2f}" for speed in choice.speeds.values())
        table.add_row(choice.draft, *speeds)
    return table


def notes(choices: Sequence[Choice]) -> str:
    """How it was measured."""
    first = choices[0]
    return (
        f"{first.pair}, {plural(first.num_examples, 'text')}, {first.alpha_tokens} "
        f"tokens, T = {first.temperature:g}, batch {first.batch}; speeds are expected, "
        "over plain decoding, and the gamma is that of the largest; verify is the "
        f"target's call on gamma + 1 tokens in plain steps; plain in "
        f"{first.plain_dtype}, others in {first.dtype}; {first.device}, threads: "
        f"{first.cpu_threads}"
    )


def _step(choice: Choice, gamma: int) -> float:
    """A step in plain steps."""
    return choice.draft_costs[gamma] + choice.verify_costs[gamma]


def _interval(choice: Choice) -> str:
    if choice.speed_low is None:
        return ""
    return f" (95% interval {choice.speed_low:.2f} to {choice.speed_high:.2f})"
