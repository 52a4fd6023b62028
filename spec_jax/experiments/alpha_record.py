"""alpha of a pair's drafts on texts of its target: lines of Tables 3 and 5."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.batches import pad, round_up
from spec_jax.data.datasets import TaskData, check_ids
from spec_jax.experiments.alpha import Alpha, mean_acceptance
from spec_jax.experiments.inputs import (
    InputBatch,
    cut_inputs,
    in_one_shape,
    make_batches,
    shapes_up_to,
)
from spec_jax.experiments.journal import (
    Journal,
    digest,
    digest_of_parameters,
    digest_of_texts,
)
from spec_jax.experiments.lenience import lenient_acceptances
from spec_jax.experiments.outputs import decode
from spec_jax.experiments.record import (
    JsonLine,
    cpu_threads,
    describe_device,
    today,
    versions,
)
from spec_jax.pairs import Pair

WIDTH = 32
"""Outputs are padded to a multiple of it: few programs, and little work for nothing."""

Progress = Callable[[int, str], None]
"""Called with the tokens there are now, and what comes next."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlphaRecord(JsonLine):
    """alpha of one draft on one task at one temperature and lenience.

    Attributes:
      kind: tells it from lines of other kinds.
      task: of the texts.
      pair: name of target and draft.
      draft_name: which draft: a name among the run's pairs, or a kind as `bigram`.
      temperature: of target and draft.
      lenience: l; 1 is alpha itself.
      policy: see `Record`.
      alpha: mean acceptance over the tokens; see `alpha.acceptances` and, for l < 1,
        `lenience.lenient_acceptances`.
      alpha_stderr: its standard error, texts being independent; None for one text.
      tokens: that the target generated and the mean is over.
      num_examples: texts that they are of.
      dtype: of parameters and activations.
      device: see `Record`.
      cpu_threads: see `Record`.
      versions: see `Record`.
      seed: with an example's index it decides a row's draws.
      date: when it was measured.
      run: fingerprint of all that decides the figures.
    """

    kind: str = "alpha"
    task: str
    pair: str
    draft_name: str
    temperature: float
    lenience: float = 1.0
    policy: dict[str, Any]
    alpha: float
    alpha_stderr: float | None
    tokens: int
    num_examples: int
    dtype: str
    device: str
    cpu_threads: int | None = None
    versions: dict[str, str]
    seed: int
    date: str
    run: str = ""

    @property
    def cell(self) -> tuple:
        """What a table has one figure for."""
        return (self.task, self.draft_name, self.temperature, self.lenience)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlphaSettings:
    """On what alpha is taken.

    Attributes:
      num_tokens: of the target's own output; a task may have fewer.
      batch: rows of a call.
      input_lengths: see `EvaluateSettings`.
      seed: see `EvaluateSettings`.
      top_k: see `SamplingPolicy`, for target and draft.
      top_p: see `SamplingPolicy`.
      min_p: see `SamplingPolicy`.

    Raises:
      ValueError: if a number is out of range.
    """

    num_tokens: int = 10_000
    batch: int = 8
    input_lengths: tuple[int, ...] = (64, 256)
    seed: int = 0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "input_lengths", tuple(sorted(self.input_lengths)))
        for name in ("num_tokens", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"want {name} >= 1, got {getattr(self, name)}")
        if not self.input_lengths or self.input_lengths[0] < 2:
            raise ValueError(
                f"want input_lengths of at least 2 tokens, got {self.input_lengths}"
            )
        SamplingPolicy(**self.filters)

    @property
    def filters(self) -> dict[str, Any]:
        """The policy's fields but its temperature."""
        return {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}


@dataclasses.dataclass(frozen=True)
class TargetOutputs:
    """What a target generated at one temperature, as many tokens as were wanted.

    Attributes:
      batches: the examples, in the data's order.
      tokens: of each by its index; the last ones are cut, to none if need be.
      digest: fingerprint of what decided them.
    """

    batches: tuple[InputBatch, ...]
    tokens: dict[int, np.ndarray]
    digest: str


def outputs_head(
    pair: Pair,
    target_digest: str,
    data: TaskData,
    settings: AlphaSettings,
    temperature: float,
) -> dict[str, Any]:
    """What must be the same for outputs to be of one run, as JSON holds it.

    How many tokens are wanted is not in it: with more of them a run goes on.

    Args:
      pair: has the target.
      target_digest: of its parameters; see `digest_of_parameters`.
      data: examples of the task.
      settings: of the run.
      temperature: of the target.
    """
    return {
        "task": data.name,
        "examples": digest_of_texts(str(example.inputs) for example in data.examples),
        "lengths": [data.max_input_length, data.max_target_length],
        "settings": repr(dataclasses.replace(settings, num_tokens=1)),
        "temperature": temperature,
        "target": target_digest,
        "dtype": pair.dtype.name,
        "device": describe_device(),
        "versions": versions(),
    }


def target_outputs(
    pair: Pair,
    data: TaskData,
    settings: AlphaSettings,
    temperature: float,
    head: Mapping[str, Any],
    journal: Journal,
    progress: Progress | None = None,
) -> TargetOutputs:
    """Decodes a task's examples, in their order, until there are enough tokens.

    Args:
      pair: has the target.
      data: examples of the task.
      settings: of the run.
      temperature: of the target.
      head: see `outputs_head`.
      journal: under that head: examples in it are not decoded again, and each batch
        is added to it at once.
      progress: told how far it is.

    Raises:
      ValueError: if there is no example, an id is none of the model's, or a line of
        the journal is wrong.
    """
    if not data.examples:
        raise ValueError(f"want at least one row of the task {data.name}, got none")
    check_ids(data, pair.target.vocab_size)
    algorithm = pair.autoregressive(pair.policy(temperature, **settings.filters))
    kept = _kept(journal)
    batches: list[InputBatch] = []
    tokens: dict[int, np.ndarray] = {}
    count = 0
    for batch in _in_order(data, settings):
        if count >= settings.num_tokens:
            break
        if progress is not None:
            progress(count, f"decoding inputs of up to {batch.inputs.shape[1]} tokens")
        if any(member.index not in kept for member in batch.members):
            generation = decode(algorithm, pair.params, batch)
            rows = np.asarray(generation.tokens)
            new = {
                member.index: rows[i, : generation.lengths[i]].tolist()
                for i, member in enumerate(batch.members)
                if member.index not in kept
            }
            journal.append([{"index": i, "tokens": row} for i, row in new.items()])
            kept |= new
        for member in batch.members:
            row = kept[member.index][: settings.num_tokens - count]
            tokens[member.index] = np.array(row, np.int32)
            count += len(row)
        batches.append(batch)
    return TargetOutputs(tuple(batches), tokens, digest(head))


def measure_alphas(
    pair: Pair,
    draft_name: str,
    data: TaskData,
    settings: AlphaSettings,
    temperature: float,
    outputs: TargetOutputs,
    leniences: Sequence[float] = (1.0,),
    progress: Progress | None = None,
) -> list[AlphaRecord]:
    """alpha of the draft that a pair uses, for each lenience, from one pass.

    Args:
      pair: whose draft is chosen by `using`; its target need not have made the
        outputs, but should.
      draft_name: for the records.
      data: of the outputs.
      settings: of the run.
      temperature: of both; that of the outputs.
      outputs: of the target.
      leniences: l of each record.
      progress: told how far it is.
    """
    policy = pair.policy(temperature, **settings.filters)
    algorithm = pair.speculative(1, policy)
    longest = max(len(row) for row in outputs.tokens.values())
    width = -(-longest // WIDTH) * WIDTH
    rows, lengths = [], []
    for batch in in_one_shape(outputs.batches):
        if progress is not None:
            progress(sum(lengths), f"T = {temperature:g}")
        texts = [outputs.tokens[member.index] for member in batch.members]
        counts = [len(text) for text in texts]
        accepted = lenient_acceptances(
            algorithm.target,
            algorithm.draft,
            policy,
            pair.params,
            batch.inputs,
            batch.prompt,
            pad(texts, width, len(batch.limits)),
            np.array(counts + [0] * batch.padding),
            batch.keys,
            leniences=tuple(leniences),
        )
        rows += list(np.asarray(accepted)[: len(texts)])
        lengths += counts
    return [
        _record(
            pair,
            draft_name,
            data,
            settings,
            temperature,
            lenience,
            mean_acceptance([row[:, i] for row in rows], lengths),
            sum(count > 0 for count in lengths),
            run_name(pair, outputs),
        )
        for i, lenience in enumerate(leniences)
    ]


def run_name(pair: Pair, outputs: TargetOutputs) -> str:
    """A fingerprint of outputs, how many of them are used, and a pair's draft."""
    head = {
        "outputs": outputs.digest,
        "tokens": sum(len(row) for row in outputs.tokens.values()),
        "source": pair.source,
        "draft": digest_of_parameters(pair.params["draft"]),
    }
    return digest(head)


def _record(
    pair, draft_name, data, settings, temperature, lenience, alpha: Alpha, texts, run
) -> AlphaRecord:
    return AlphaRecord(
        task=data.name,
        pair=pair.name,
        draft_name=draft_name,
        temperature=temperature,
        lenience=lenience,
        policy=settings.filters,
        alpha=alpha.mean,
        alpha_stderr=alpha.stderr,
        tokens=alpha.num_tokens,
        num_examples=texts,
        dtype=pair.dtype.name,
        device=describe_device(),
        cpu_threads=cpu_threads(),
        versions=versions(),
        seed=settings.seed,
        date=today(),
        run=run,
    )


def _in_order(data: TaskData, settings: AlphaSettings) -> Iterator[InputBatch]:
    """Batches of neighbouring examples, so that a run can end after any of them."""
    shapes = shapes_up_to(settings.input_lengths, data.max_input_length)
    examples, _ = cut_inputs(data.examples, shapes[-1])
    for at in range(0, len(examples), settings.batch):
        members = examples[at : at + settings.batch]
        longest = max(len(member.tokens) for member in members)
        yield from make_batches(
            members,
            batch=settings.batch,
            input_lengths=(round_up(longest, shapes),),
            max_new_tokens=data.max_target_length,
            seed=settings.seed,
        )


def _kept(journal: Journal) -> dict[int, list[int]]:
    """What a journal has of outputs, by index."""
    found = {}
    for number, line in enumerate(journal.lines, 2):  # the head is the first
        if not _is_output(line):
            raise ValueError(
                f"{journal.path}, line {number}: no output of an example; remove the "
                "file to begin anew"
            )
        found[line["index"]] = line["tokens"]
    return found


def _is_output(line: Mapping[str, Any]) -> bool:
    if not isinstance(line, dict) or set(line) != {"index", "tokens"}:
        return False
    index, tokens = line["index"], line["tokens"]
    whole = isinstance(index, int) and isinstance(tokens, list) and bool(tokens)
    return whole and all(isinstance(token, int) for token in tokens)
