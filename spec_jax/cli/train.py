"""`spec-jax train`: a target, or a draft of it."""

import dataclasses
import os
import pathlib
import shutil

from spec_jax.cli.errors import UsageError
from spec_jax.cli.resuming import check_steps, say_resumed
from spec_jax.cli.runtime import start_backend
from spec_jax.cli.settings import positive, require
from spec_jax.cli.terminal import make_console, plural
from spec_jax.cli.texts import check_writable, whole_file, write_whole
from spec_jax.data.examples import (
    Example,
    ExampleMaker,
    TextTask,
    TokenRow,
    corpus_path,
    get_task,
    read_rows,
    tokenize,
)
from spec_jax.data.vocabulary import SentencePieceVocabulary
from spec_jax.models.t5 import T5Config
from spec_jax.pairs import EXPORT, load_model, resolve, save_model
from spec_jax.training.buckets import make_buckets
from spec_jax.training.train import TrainSettings, train

VOCABULARY = "vocabulary.model"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRun:
    """What to train, on what, and where it goes.

    Attributes:
      config: the network's shape; activations are computed in its dtype.
      settings: how long and how.
      model_dir: for checkpoints, metrics.jsonl, config.gin, the vocabulary and
        `export`, the trained model.
      data_dir: where `spec-jax data debian` wrote; for a draft, where `spec-jax data
        teacher` wrote its target's outputs.
      vocabulary: a SentencePiece model.
      tasks: whose texts are trained on, together.
      num_validation: examples of each task whose loss is shown while training.
      initial_checkpoint: where training starts; None: at random.
    """

    config: T5Config
    settings: TrainSettings
    model_dir: str
    data_dir: str
    vocabulary: str
    tasks: tuple[str, ...] = ("ende", "summarize")
    num_validation: int = 512
    initial_checkpoint: str | None = None

    def __post_init__(self):
        positive(self, "num_validation")
        require(
            bool(self.tasks), "want at least one task in MIXTURE_OR_TASK_NAME, got none"
        )
        for name in self.tasks:
            get_task(name)

    def batch_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, input tokens, target tokens) of every compiled step."""
        buckets = make_buckets(self.settings.batch_tokens)
        return tuple((one.rows, one.inputs, one.targets) for one in buckets)


def main(invocation) -> None:
    """Runs the command."""
    run: TrainRun = invocation.settings
    console = make_console(stderr=True)
    folder = pathlib.Path(run.model_dir)
    check_writable(os.path.join(run.model_dir, "config.gin"))
    start_backend()
    vocabulary = find_vocabulary(run)
    tasks = [get_task(name) for name in run.tasks]
    for task in tasks:
        check_corpus(run.data_dir, task)
    config = invocation.operative_config()
    done = check_steps(folder, run.settings.steps)
    if done:
        check_resumed(folder, vocabulary)
        say_resumed(folder, done, run.settings.steps, config, console)

    def rows_of(task: TextTask, split: str) -> list[TokenRow]:
        rows = read_rows(corpus_path(run.data_dir, task, split), task)
        return tokenize(rows, task, vocabulary)

    with console.status("reading the corpora"):
        rows = [row for task in tasks for row in rows_of(task, "train")]
        maker = ExampleMaker(vocabulary)
        validation = {
            task.name: examples(maker, rows_of(task, "validation"), run.num_validation)
            for task in tasks
        }
    for task in tasks:
        if not validation[task.name]:
            raise UsageError(
                "want an example that fits in "
                f"{corpus_path(run.data_dir, task, 'validation')}, got none: there "
                "would be no validation loss"
            )
    initial = None
    if run.initial_checkpoint is not None:
        _, initial = load_model(
            run.initial_checkpoint, vocabulary, run.config, "float32", "initial model"
        )
    write_whole(folder / "config.gin", config)
    copy = folder / VOCABULARY
    if not (copy.exists() and copy.samefile(vocabulary.path)):
        with whole_file(copy) as part:
            shutil.copyfile(vocabulary.path, part)
    console.print(f"{plural(len(rows), 'row')} of {' and '.join(run.tasks)}")
    params = train(
        run.config,
        run.settings,
        lambda rng: maker.epoch(rows, rng, run.settings.joined),
        validation,
        folder,
        initial,
    )
    save_model(folder / EXPORT, params, run.config, vocabulary=vocabulary)
    console.print(f"the trained model is in {folder / EXPORT}")


def find_vocabulary(run: TrainRun) -> SentencePieceVocabulary:
    """The vocabulary.

    Raises:
      UsageError: if it is missing, or too large for the network.
    """
    path = resolve(run.vocabulary)
    if not pathlib.Path(path).exists():
        raise UsageError(
            f"no vocabulary at {path}; `spec-jax data vocabulary "
            f"--data_dir={run.data_dir} --output={path}` makes one"
        )
    vocabulary = SentencePieceVocabulary(path)
    if vocabulary.vocab_size > run.config.vocab_size:
        raise UsageError(
            f"the vocabulary {path} has {vocabulary.vocab_size} pieces, the model's "
            f"table only {run.config.vocab_size} rows: raise T5Config.vocab_size"
        )
    return vocabulary


def check_resumed(folder: pathlib.Path, vocabulary: SentencePieceVocabulary) -> None:
    """Raises UsageError if the run in a folder had another vocabulary."""
    kept = folder / VOCABULARY
    if kept.exists() and SentencePieceVocabulary(kept) != vocabulary:
        raise UsageError(
            f"{folder} is trained with the vocabulary {kept}, {vocabulary.path} is "
            "another: give that one, or another MODEL_DIR"
        )


def check_corpus(data_dir: str, task: TextTask) -> None:
    """Raises UsageError if a task's texts for training or validation are missing."""
    for split in ("train", "validation"):
        path = corpus_path(data_dir, task, split)
        if not path.exists():
            raise UsageError(
                f"no corpus {path}; `spec-jax data debian --output_dir={data_dir}` "
                "makes one, `spec-jax data teacher` one of a target's outputs"
            )


def examples(maker: ExampleMaker, rows: list[TokenRow], count: int) -> list[Example]:
    """The first examples that fit."""
    made = (maker.example(row) for row in rows)
    return [example for example in made if example is not None][:count]
