"""Our own tasks, and anybody's file, in seqio's registry."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spec_jax.data import metrics as scoring
from spec_jax.data.datasets import SAMPLES, TASK_METRICS, TaskFile
from spec_jax.data.examples import TASKS, corpus_path, read_rows
from spec_jax.data.samples import load_samples
from spec_jax.data.tasks.libraries import seqio, tf
from spec_jax.data.tasks.vocabulary import T5_VOCABULARY, as_seqio

DATA_DIR_VARIABLE = "SPEC_JAX_DATA_DIR"
"""Names the folder of the corpora `ende` and `summarize`."""


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """How one of our tasks is made.

    Attributes:
      name: of the task.
      prefix: goes before every input.
      inputs: the field with the input text.
      targets: the field with the reference; None: the input's second half of words.
      metrics: names of `data.metrics.METRICS`.
      tfds: the TFDS dataset with config and version; None: a shipped corpus.
    """

    name: str
    prefix: str
    inputs: str
    targets: str | None
    metrics: tuple[str, ...]
    tfds: str | None = None


# Prefixes, TFDS versions and metrics as the t5 package has them for WMT14 (chrF apart)
# and CNN/DailyMail; it lower-cases neither. It has no XSum and no such LM1B.
_RECIPES = (
    _Recipe(
        "wmt14_ende",
        "translate English to German: ",
        "en",
        "de",
        ("bleu_intl", "chrf"),
        "wmt14_translate/de-en:1.0.0",
    ),
    _Recipe(
        "cnn_dailymail",
        "summarize: ",
        "article",
        "highlights",
        ("rouge",),
        "cnn_dailymail:3.4.0",
    ),
    _Recipe("xsum", "summarize: ", "document", "summary", ("rouge",), "xsum:1.1.0"),
    _Recipe("lm1b", "", "text", None, ("rouge",), "lm1b:1.1.0"),
    *(
        _Recipe(
            task.name,
            task.prefix,
            task.inputs,
            task.targets,
            TASK_METRICS[task.metric],
        )
        for task in TASKS.values()
    ),
)


class OwnTask(seqio.Task):
    """A task of ours; it can be had over any vocabulary."""

    def __init__(self, recipe: _Recipe, **arguments):
        super().__init__(**arguments)
        self.recipe = recipe


def register_tasks(
    vocabulary: Any = None, *, data_dir: str | None = None
) -> tuple[str, ...]:
    """Registers our tasks with seqio; those of an earlier call are replaced.

    A task that somebody else registered under such a name stays as it is.

    Args:
      vocabulary: a SentencePiece model's path, a vocabulary of `spec_jax.data`, or
        seqio's; None is T5's public one, which is read when it is needed.
      data_dir: of the corpora that `spec-jax data debian` wrote; None takes the
        environment variable SPEC_JAX_DATA_DIR, else the committed samples.

    Returns:
      The names that are ours.

    Raises:
      ValueError: if there is no such vocabulary.
    """
    vocabulary = as_seqio(T5_VOCABULARY if vocabulary is None else vocabulary)
    names = []
    for recipe in _RECIPES:
        if recipe.name in seqio.TaskRegistry.names():
            if not isinstance(seqio.TaskRegistry.get(recipe.name), OwnTask):
                continue
            seqio.TaskRegistry.remove(recipe.name)
        seqio.TaskRegistry.add_provider(
            recipe.name, make_task(recipe, vocabulary, data_dir)
        )
        names.append(recipe.name)
    return tuple(names)


def register_file(
    name: str,
    path: str | pathlib.Path,
    *,
    vocabulary: Any,
    prefix: str = "",
    inputs: str = "inputs",
    targets: str = "targets",
    metrics: Sequence[str] = ("bleu",),
) -> seqio.Task:
    """Registers a file of examples as the seqio task `name`, whose split is 'test'.

    Args:
      name: of the task; an earlier one of the name is replaced.
      path: of a .tsv (`input TAB target`) or .jsonl file, either with .gz behind it;
        it is read when examples are asked for.
      vocabulary: as `register_tasks` takes it.
      prefix: goes before every input.
      inputs: the field of a JSON line with the input text.
      targets: the field with the reference text.
      metrics: names of `data.metrics.METRICS`.

    Returns:
      The task.

    Raises:
      ValueError: if the file is of no such kind, or there is no such vocabulary,
        metric or task name.
    """
    metrics = tuple(metrics)
    file = TaskFile(
        path=str(path), prefix=prefix, inputs=inputs, targets=targets, metrics=metrics
    )
    recipe = _Recipe(name, prefix, inputs, targets, metrics)
    source = _RowSource(lambda split: file.rows(), lambda: ("test",), recipe)
    task = seqio.Task(**_arguments(recipe, as_seqio(vocabulary), source))
    if name in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add_provider(name, task)
    return task


def make_task(recipe: _Recipe, vocabulary: seqio.Vocabulary, data_dir: str | None):
    """The task of a recipe, over a vocabulary and a folder."""
    if recipe.tfds is None:
        source = _RowSource(
            functools.partial(_corpus_rows, recipe.name, data_dir),
            functools.partial(_corpus_splits, recipe.name, data_dir),
            recipe,
        )
    else:
        source = seqio.TfdsDataSource(recipe.tfds)
    return OwnTask(recipe, **_arguments(recipe, vocabulary, source))


def _arguments(recipe: _Recipe, vocabulary: seqio.Vocabulary, source) -> dict:
    """What a seqio.Task is made from."""

    def score(targets, predictions):
        figures = scoring.score(recipe.metrics, predictions, targets)
        return {
            key: seqio.metrics.Text(value) if isinstance(value, str) else value
            for key, value in figures.items()
        }

    prepare = functools.partial(_text_to_text, recipe=recipe)
    if recipe.targets is None:
        prepare = functools.partial(_continuation, recipe=recipe)
    return {
        "name": recipe.name,
        "source": source,
        "preprocessors": [
            prepare,
            seqio.preprocessors.tokenize,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        "metric_fns": [score],
        "output_features": {
            "inputs": seqio.Feature(vocabulary, add_eos=True, required=False),
            "targets": seqio.Feature(vocabulary, add_eos=True),
        },
    }


def _text_to_text(dataset: tf.data.Dataset, recipe: _Recipe) -> tf.data.Dataset:
    def convert(row):
        inputs = tf.strings.join([recipe.prefix, row[recipe.inputs]])
        return {"inputs": inputs, "targets": row[recipe.targets]}

    return dataset.map(convert, num_parallel_calls=tf.data.AUTOTUNE)


def _continuation(dataset: tf.data.Dataset, recipe: _Recipe) -> tf.data.Dataset:
    """The first half of a text's words, and the others; a text of one word is none."""

    def convert(row):
        words = tf.strings.split(row[recipe.inputs])
        half = (tf.size(words) + 1) // 2
        inputs = tf.strings.reduce_join(words[:half], separator=" ")
        return {
            "inputs": tf.strings.join([recipe.prefix, inputs]),
            "targets": tf.strings.reduce_join(words[half:], separator=" "),
        }

    dataset = dataset.map(convert, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.filter(lambda row: tf.strings.length(row["targets"]) > 0)


class _RowSource(seqio.DataSource):
    """Rows with two texts, read when they are asked for."""

    def __init__(
        self,
        read: Callable[[str], Sequence[Mapping[str, str]]],
        list_splits: Callable[[], tuple[str, ...]],
        recipe: _Recipe,
    ):
        super().__init__(splits=())
        self._read, self._list_splits = read, list_splits
        self._fields = (recipe.inputs, recipe.targets)

    @property
    def splits(self) -> tuple[str, ...]:
        """What there is now."""
        return self._list_splits()

    @property
    def supports_arbitrary_sharding(self) -> bool:
        """No: seqio shards the examples."""
        return False

    def list_shards(self, split: str) -> list[str]:
        """A split is one shard."""
        return [split]

    def get_dataset(
        self, split="test", shuffle=True, seed=None, shard_info=None, **unused
    ) -> tf.data.Dataset:
        """The rows in their order; the task shuffles."""
        rows = self._read(split)
        columns = {
            field: tf.constant([row[field] for row in rows], tf.string)
            for field in self._fields
        }
        return tf.data.Dataset.from_tensor_slices(columns)


def _corpus_dir(data_dir: str | None) -> str | None:
    return data_dir or os.environ.get(DATA_DIR_VARIABLE)


def _corpus_rows(name: str, data_dir: str | None, split: str) -> list[dict]:
    folder = _corpus_dir(data_dir)
    if folder is None:
        return load_samples(SAMPLES[name])
    return read_rows(corpus_path(folder, TASKS[name], split), TASKS[name])


def _corpus_splits(name: str, data_dir: str | None) -> tuple[str, ...]:
    folder = _corpus_dir(data_dir)
    if folder is None:
        return ("test",)
    files = corpus_path(folder, TASKS[name], "*")
    found = sorted(path.name.split(".")[1] for path in files.parent.glob(files.name))
    if not found:
        raise ValueError(
            f"no {files} for the task {name}: `spec-jax data debian "
            f"--output_dir={folder}` makes them"
        )
    return tuple(found)
