"""`spec-jax distill`: a draft that learns to agree with its target."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

from rich.progress import Progress as Bar

from spec_jax.cli.decoding import fastest_dtypes
from spec_jax.cli.errors import UsageError
from spec_jax.cli.resuming import check_steps, say_resumed
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import positive, require
from spec_jax.cli.task_source import TaskSource
from spec_jax.cli.terminal import make_console, plural
from spec_jax.cli.texts import check_writable, write_whole
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import TaskData, check_ids
from spec_jax.data.examples import Example, read_rows, truncate
from spec_jax.data.vocabulary import EOS_ID, PAD_ID
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.experiments.journal import (
    digest,
    digest_of_parameters,
    digest_of_texts,
)
from spec_jax.pairs import EXPORT, Pair, save_model
from spec_jax.training.buckets import make_buckets
from spec_jax.training.distill import DistillSettings, HeldOut, Models, distill
from spec_jax.training.teacher import write_target_outputs

OUTPUTS = ("target", "task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistillRun:
    """What to distill, on what, and where it goes.

    Attributes:
      load_pair: loads the pair whose draft learns, in a dtype.
      settings: how.
      model_dir: for checkpoints, metrics.jsonl, config.gin and `export`, the draft.
      tasks: whose inputs are read; of their split for training.
      validation_split: of the tasks; examples of a file have none, and the first
        `num_validation` are held out.
      num_validation: examples of each task on which the agreement is shown.
      outputs: what stands after the inputs: "target" what the target says to them,
        "task" the task's own targets.
      target_temperatures: at which the target answers; each takes its share of the
        inputs in turn.
      outputs_dir: keeps the target's answers for other runs; None: in `model_dir`.
      dtype: of the target, and of the draft's activations.
    """

    load_pair: Callable[..., Pair]
    settings: DistillSettings
    model_dir: str
    tasks: TaskSource
    validation_split: str = "validation"
    num_validation: int = 256
    outputs: str = "target"
    target_temperatures: tuple[float, ...] = (0.0, 1.0)
    outputs_dir: str | None = None
    dtype: str | None = None

    def __post_init__(self):
        positive(self, "num_validation")
        require(
            self.outputs in OUTPUTS,
            f"want OUTPUTS of {', '.join(OUTPUTS)}, got {self.outputs!r}",
        )
        require(
            bool(self.target_temperatures),
            "want at least one of TARGET_TEMPERATURES, got none",
        )
        for temperature in self.target_temperatures:
            SamplingPolicy(temperature=temperature)

    def batch_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, input tokens, target tokens) of every compiled step."""
        longest = tuple(map(max, zip(*self.tasks.lengths(), strict=True)))
        buckets = make_buckets(self.settings.batch_tokens, longest)
        return tuple((one.rows, one.inputs, one.targets) for one in buckets)


def main(invocation) -> None:
    """Runs the command; a killed run goes on where it was."""
    run: DistillRun = invocation.settings
    console = make_console(stderr=True)
    folder = pathlib.Path(run.model_dir)
    check_writable(os.path.join(run.model_dir, "config.gin"))
    if run.outputs_dir is not None:
        check_writable(os.path.join(run.outputs_dir, "any.jsonl.gz"))
    limit_cpu_threads(invocation.flags.cpu_threads, batch=8)
    start_backend()
    dtype = run.dtype or fastest_dtypes(None, None)[0]
    with console.status("loading the pair"):
        pair = run.load_pair(dtype=dtype)
    with console.status("reading the tasks"):
        train, validation = load_splits(run, pair.vocabulary)
    for data in (*train, *validation):
        check_ids(data, pair.target.config.vocab_size)
    config = invocation.operative_config()
    done = check_steps(folder, run.settings.steps)
    if done:
        say_resumed(folder, done, run.settings.steps, config, console)
    write_whole(folder / "config.gin", config)
    maker = _Examples(run, pair, console)
    held_out = {
        name: some for data in validation for name, some in maker.make(data, "v")
    }
    examples = without_held_out(
        [
            one
            for data in train
            for _, some in maker.make(data, "t")
            for one in some.examples
        ],
        held_out,
    )
    parts = {"training": examples}
    parts |= {name: some.examples for name, some in held_out.items()}
    for name, some in parts.items():
        if not some:
            raise UsageError(
                f"want an example for {name} that fits and is not held out, got none: "
                "give other tasks, or longer TASK_FEATURE_LENGTHS"
            )
    console.print(f"{plural(len(examples), 'example')}: {', '.join(run.tasks.names)}")
    every = [one for some in parts.values() for one in some]
    longest = (
        max(len(one.inputs) for one in every),
        max(len(one.targets) for one in every),
    )
    params = distill(
        Models(pair.target.config, pair.draft.config, pair.vocab_size),
        run.settings,
        pair.params["target"],
        pair.params["draft"],
        examples,
        held_out,
        make_buckets(run.settings.batch_tokens, longest),
        folder,
    )
    save_model(folder / EXPORT, params, pair.draft.config, vocabulary=pair.vocabulary)
    console.print(f"the distilled draft is in {folder / EXPORT}")


def load_splits(run: DistillRun, vocabulary) -> tuple[list[TaskData], list[TaskData]]:
    """Examples to train on, and those that are held out.

    Raises:
      UsageError: if a file has too few for both.
    """
    train = run.tasks.load(vocabulary)
    if run.tasks.file is None:
        held_out = dataclasses.replace(
            run.tasks, split=run.validation_split, num_examples=run.num_validation
        )
        return train, held_out.load(vocabulary)
    (data,) = train
    count = run.num_validation
    if len(data.examples) <= count:
        raise UsageError(
            f"want more than the {count} examples that are held out "
            f"(NUM_VALIDATION), {run.tasks.file} has {len(data.examples)}"
        )
    first, rest = data.examples[:count], data.examples[count:]
    return [dataclasses.replace(data, examples=rest)], [
        dataclasses.replace(data, examples=first)
    ]


def without_held_out(
    examples: Sequence[Example], held_out: Mapping[str, HeldOut]
) -> list[Example]:
    """Examples whose inputs are none of those on which the agreement is shown.

    A file or a corpus may have the same input twice, in one split or in two.
    """
    shown = {one.inputs for some in held_out.values() for one in some.examples}
    return [one for one in examples if one.inputs not in shown]


class _Examples:
    """Examples of a task with the outputs that a run wants."""

    def __init__(self, run: DistillRun, pair: Pair, console):
        self._run, self._pair, self._console = run, pair, console
        self._target = {"target": pair.params["target"]}
        self._fingerprint = digest_of_parameters(self._target)

    def make(self, data: TaskData, part: str) -> list[tuple[str, HeldOut]]:
        """By name: of the task, with the temperature where the target answers."""
        inputs = [
            tuple(truncate(one.inputs, data.max_input_length)) for one in data.examples
        ]
        if self._run.outputs == "task":
            own = self._of_task(data, inputs)
            return [(data.name, HeldOut(own, self._run.settings.temperature))]
        temperatures = self._run.target_temperatures
        return [
            (
                f"{data.name}-T{temperature:g}",
                HeldOut(
                    self._of_target(
                        data, inputs[turn :: len(temperatures)], temperature, part
                    ),
                    temperature,
                ),
            )
            for turn, temperature in enumerate(temperatures)
        ]

    def _of_task(
        self, data: TaskData, inputs: Sequence[tuple[int, ...]]
    ) -> list[Example]:
        """The task's own; those that are too long are left out, since a cut one would
        teach to stop early."""
        encode = self._pair.vocabulary.encode
        texts = [one.fields.get("targets_pretokenized") for one in data.examples]
        if any(text is None for text in texts):
            raise UsageError(
                f"the task {data.name} has no targets_pretokenized: give OUTPUTS=target"
            )
        made = [
            Example(ids, (*encode(text), EOS_ID))
            for ids, text in zip(inputs, texts, strict=True)
        ]
        return [one for one in made if len(one.targets) <= data.max_target_length]

    def _of_target(
        self, data: TaskData, inputs, temperature: float, part: str
    ) -> list[Example]:
        """What the target answers, from an earlier run if it is the same."""
        if not inputs:
            return []
        pair, run = self._pair, self._run
        policy = SamplingPolicy(temperature=temperature, vocab_limit=pair.vocab_size)
        algorithm = Autoregressive(pair.target, policy, eos_id=EOS_ID, pad_id=PAD_ID)
        folder = pathlib.Path(run.outputs_dir or os.path.join(run.model_dir, "outputs"))
        seed = run.settings.seed
        known = digest(
            {
                "algorithm": repr(algorithm),
                "parameters": self._fingerprint,
                "inputs": digest_of_texts(map(str, inputs)),
                "length": data.max_target_length,
                "seed": seed,
            }
        )
        path = folder / f"{data.name[:80]}-{part}-T{temperature:g}-{known}.jsonl.gz"
        if not path.exists():
            doing = f"the target answers {plural(len(inputs), 'input')} of {data.name}"
            with Bar(
                console=self._console, disable=not self._console.is_terminal
            ) as bar:
                shown = bar.add_task(doing, total=len(inputs))
                if not self._console.is_terminal:
                    self._console.print(doing)
                write_target_outputs(
                    algorithm,
                    self._target,
                    inputs,
                    path,
                    max_target_length=data.max_target_length,
                    seed=seed,
                    progress=lambda done, _: bar.update(shown, completed=done),
                )
        return [
            Example(tuple(row["inputs"]), tuple(row["targets"]))
            for row in read_rows(path)
        ]
