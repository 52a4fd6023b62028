"""Examples of a task or mixture in seqio's registry."""

import contextlib
import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.data.datasets import TaskData, TaskExample
from spec_jax.data.tasks.libraries import seqio, tfds
from spec_jax.data.tasks.messages import first_line, one_line
from spec_jax.data.tasks.registered import OwnTask, make_task
from spec_jax.data.tasks.scoring import plain, score, target
from spec_jax.data.tasks.vocabulary import as_seqio, check_vocabulary

SEED = 42
"""seqio's Evaluator's: preprocessors that draw give the same examples each time."""
INPUT_MULTIPLE = 16
"""Input lengths that follow from the data are rounded up to it, which costs nothing."""


def load_seqio_task(
    name: str,
    vocabulary: Any,
    *,
    split: str,
    num_examples: int | None = None,
    feature_lengths: Mapping[str, int] | None = None,
    module: str | None = None,
    data_dir: str | None = None,
) -> list[TaskData]:
    """The examples of a task or mixture that is registered with seqio.

    Args:
      name: of the task or mixture. As in t5x's evaluation, a mixture's tasks without
        the split are passed over.
      vocabulary: of the models. Our own tasks take it; any other task's must agree.
      split: to read, for TFDS also a part such as 'test[:100]'.
      num_examples: the first ones of each task; None takes all.
      feature_lengths: most tokens of 'inputs' and 'targets'. What it does not say is
        the longest of all examples, the input's rounded up.
      module: imported first, also from the current folder: it may register tasks.
      data_dir: where TFDS's data lie, or the corpora of `ende` and `summarize`.

    Returns:
      The data of each task. `score` gives what seqio's Evaluator does with the same
      predictions, as plain values; under 'left_out' are metrics it cannot take.

    Raises:
      ValueError: if there is no such module, task, split or data, or the vocabulary is
        another than the models'.
    """
    if module is not None:
        _import(module)
    vocabulary = as_seqio(vocabulary)
    found = []
    for task in _subtasks(name):
        if isinstance(task, OwnTask):
            task = make_task(task.recipe, vocabulary, data_dir)
        check_vocabulary(task, vocabulary)
        with _data_in(task.source, data_dir):
            if message := _missing(task, split):
                found.append((task, message))
            else:
                found.append((task, _read(task, split, num_examples, feature_lengths)))
    whole = [(task, rows) for task, rows in found if not isinstance(rows, str)]
    if not whole:
        raise ValueError(found[0][1] if found else f"the mixture {name} has no task")
    lengths = _lengths(whole, feature_lengths or {})
    return [_task_data(task, rows, lengths) for task, rows in whole]


def _import(module: str) -> None:
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # an installed command does not look here
    try:
        importlib.import_module(module)
    except Exception as error:
        raise ValueError(
            f"cannot import MIXTURE_OR_TASK_MODULE {module!r}: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error


def _subtasks(name: str) -> Sequence[seqio.Task]:
    names = {*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()}
    if name not in names:
        near = difflib.get_close_matches(name, sorted(names), n=3, cutoff=0.4)
        known = f"the nearest are {near}" if near else f"there are {sorted(names)}"
        raise ValueError(
            f"no task or mixture {name!r} is registered with seqio, {known}; give "
            "the module that registers it as MIXTURE_OR_TASK_MODULE"
        )
    return seqio.get_subtasks(seqio.get_mixture_or_task(name))


@contextlib.contextmanager
def _data_in(source: seqio.DataSource, data_dir: str | None) -> Iterator[None]:
    """Has TFDS look in a folder."""
    if data_dir is None or not isinstance(source, seqio.TfdsDataSource):
        yield
        return
    source.tfds_dataset.override_data_dir(str(data_dir))
    try:
        yield
    finally:
        source.tfds_dataset.override_data_dir(None)  # the task is everybody's


def _missing(task: seqio.Task, split: str) -> str | None:
    """Says what is not there: TFDS's data, or the split."""
    from_tfds = isinstance(task.source, seqio.TfdsDataSource)
    with one_line(f"cannot open the data of the task {task.name}"):
        if from_tfds and task.source.tfds_dataset.tfds_splits is None:
            builder = task.source.tfds_dataset.builder
            # seqio would read from TFDS's bucket, else begin to download sources.
            at_hand = builder.is_prepared() or tfds.is_dataset_on_gcs(
                builder.info.full_name
            )
            if not (builder.info.splits and at_hand):
                return _not_downloaded(task, builder)
        splits = tuple(task.splits)
    if (split.partition("[")[0] if from_tfds else split) in splits:
        return None
    there = f"it has {', '.join(splits)}"
    first = "validation" if "validation" in splits else next(iter(splits), "")
    advice = f": give --gin.SPLIT={first}" if first else ""
    return f"the task {task.name} has no split {split!r}, {there}{advice}"


def _not_downloaded(task: seqio.Task, builder) -> str:
    root = getattr(builder, "_data_dir_root", builder.data_dir)
    by_hand = builder.MANUAL_DOWNLOAD_INSTRUCTIONS is not None
    return (
        f"the task {task.name} reads the TFDS dataset {task.source.tfds_dataset.name}, "
        f"which is not in {root}: make it where there is a network with `tfds build "
        f"{task.source.tfds_dataset.name}`"
        + (" (which may want sources downloaded by hand)" if by_hand else "")
        + ", or name the folder that has it in the environment as TFDS_DATA_DIR"
    )


def _read(
    task: seqio.Task,
    split: str,
    num_examples: int | None,
    lengths: Mapping[str, int] | None,
) -> list[dict[str, Any]]:
    """Examples as seqio's Evaluator reads them, but uncut."""
    if (needs := _needs_lengths(task)) and not lengths:
        raise ValueError(
            f"the task {task.name} cuts its examples itself: give TASK_FEATURE_LENGTHS "
            "as {'inputs': 512, 'targets': 128}"
        )
    with one_line(f"cannot read the split {split!r} of the task {task.name}"):
        dataset = task.get_dataset(
            sequence_length=lengths if needs else None,
            split=split,
            shuffle=False,
            seed=SEED if _takes_seed(task.source) else None,
            use_cached=task.requires_caching,
            trim_output_features=False,
        )
        if num_examples is not None:
            dataset = dataset.take(num_examples)
        rows = list(tfds.as_numpy(dataset))
    if not rows:
        raise ValueError(f"the split {split!r} of the task {task.name} is empty")
    if "inputs" not in rows[0]:
        raise ValueError(f"the task {task.name} has no inputs: an encoder reads them")
    for index, row in enumerate(rows):
        for key in ("inputs", "targets"):
            _check_tokens(
                f"the {key} of example {index} of the task {task.name}", row, key
            )
    return rows


def _check_tokens(what: str, row: Mapping[str, Any], key: str) -> None:
    """Raises ValueError unless the feature is a list of token ids, or is not there."""
    tokens = np.asarray(row.get(key, ()))
    if tokens.ndim != 1:
        raise ValueError(f"want a list of tokens as {what}, got rank {tokens.ndim}")
    if tokens.size and tokens.dtype.kind not in "iu":
        raise ValueError(f"want tokens as {what}, got {tokens.dtype}")
    if tokens.size and tokens.min() < 0:
        raise ValueError(f"want tokens from 0 as {what}, got {tokens.min()}")


def _needs_lengths(task: seqio.Task) -> bool:
    """Whether a preprocessor cannot do without sequence_length."""
    parameters = (
        inspect.signature(step).parameters.get("sequence_length")
        for step in task.preprocessors
    )
    return any(one is not None and one.default is one.empty for one in parameters)


def _takes_seed(source: seqio.DataSource) -> bool:
    if not isinstance(source, seqio.FunctionDataSource):
        return True
    return "seed" in inspect.signature(source._dataset_fn).parameters


def _lengths(found: Sequence[tuple], wanted: Mapping[str, int]) -> dict[str, int]:
    """Most tokens, as wanted or else as seqio's Evaluator finds them in the data."""
    lengths = dict(wanted)
    for key, multiple in (("inputs", INPUT_MULTIPLE), ("targets", 1)):
        if key not in lengths:
            counts = [len(row[key]) for _, rows in found for row in rows if key in row]
            if not counts:
                raise ValueError(f"no example has {key}: give TASK_FEATURE_LENGTHS")
            lengths[key] = -(-max(counts) // multiple) * multiple
    return lengths


def _task_data(task: seqio.Task, rows: list[dict], lengths) -> TaskData:
    targets = [target(task, row) for row in rows]
    examples = tuple(
        TaskExample(
            index, tuple(map(int, row["inputs"])), plain(one), _fields(task, row)
        )
        for index, (row, one) in enumerate(zip(rows, targets, strict=True))
    )
    return TaskData(
        task.name,
        examples,
        lengths["inputs"],
        lengths["targets"],
        functools.partial(score, task, rows, targets),
    )


def _fields(task: seqio.Task, row: Mapping[str, Any]) -> dict[str, Any]:
    fields = {k: plain(v) for k, v in row.items() if k.endswith("_pretokenized")}
    if "inputs_pretokenized" not in fields:
        vocabulary = task.output_features["inputs"].vocabulary
        text = vocabulary.decode([int(token) for token in row["inputs"]])
        fields["inputs_pretokenized"] = text
    return fields
