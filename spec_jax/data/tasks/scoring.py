"""Scores of a seqio task, as seqio's Evaluator takes them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spec_jax.data.datasets import Scores
from spec_jax.data.tasks.libraries import seqio
from spec_jax.data.tasks.messages import one_line


def target(task: seqio.Task, row: Mapping[str, Any]) -> Any:
    """What a prediction is compared with, as seqio's Evaluator makes it."""
    text = row.get("targets_pretokenized")
    if text is None and "targets" in row:
        vocabulary = task.output_features["targets"].vocabulary
        with one_line(f"cannot decode a target of the task {task.name}"):
            text = vocabulary.decode([int(token) for token in row["targets"]])
    if text is None:
        return None
    with one_line(f"cannot postprocess a target of the task {task.name}"):
        return task.postprocess_fn(plain(text), example=row, is_target=True)


def plain(value: Any) -> Any:
    """Text and numbers as Python's own; keys as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return [plain(one) for one in value] if isinstance(value, list) else value


def score(
    task: seqio.Task, rows: list[dict], targets: list, predictions: Sequence[str]
) -> Scores:
    """What seqio's Evaluator would give for these predictions, as plain values."""
    if len(predictions) != len(rows):
        raise ValueError(
            f"want as many predictions as the task {task.name} has examples, "
            f"{len(rows)}, got {len(predictions)}"
        )
    with one_line(f"cannot score the task {task.name}"):
        processed = [
            task.postprocess_fn(text, example=row, is_target=False)
            for text, row in zip(predictions, rows, strict=True)
        ]
        results = [(fn, fn(targets, processed)) for fn in task.predict_metric_fns]
        left_out = [*task.score_metric_fns, *task.predict_with_aux_metric_fns]
        names = [_name(fn) for fn in left_out]
        # Those of metric_fns come last among the objects.
        objects = task.metric_objs[: len(task.metric_objs) - len(task.metric_fns)]
        for metric in objects:
            if metric.model_output_type is seqio.metrics.ModelOutputType.PREDICTION:
                results.append((metric, _score_tokens(metric, task, rows, predictions)))
            else:
                names.append(_name(metric))
    figures: Scores = {}
    for metric, result in results:
        if not isinstance(result, Mapping):
            # The run is measured by then: it is not lost to it.
            names.append(f"{_name(metric)} (gives a {type(result).__name__}, no dict)")
            continue
        for key, value in result.items():
            if str(key) in figures:
                raise ValueError(f"two metrics of the task {task.name} give {key!r}")
            figure = _figure(value)
            if isinstance(figure, float) and not math.isfinite(figure):
                names.append(f"{key} ({figure})")  # JSON has neither NaN nor infinity
            elif figure is None:
                names.append(str(key))
            else:
                figures[str(key)] = figure
    return figures | ({"left_out": ", ".join(names)} if names else {})


def _name(metric: Any) -> str:
    """What a metric is called; a class's object has its class's name."""
    return getattr(metric, "__name__", type(metric).__name__)


def _score_tokens(metric, task: seqio.Task, rows: list[dict], predictions) -> Mapping:
    """A metric object, which reads tokens."""
    vocabulary = task.output_features["targets"].vocabulary
    tokens = [[*vocabulary.encode(text), vocabulary.eos_id] for text in predictions]
    padded = np.zeros((len(tokens), max(map(len, tokens))), np.int32)
    for at, ids in enumerate(tokens):
        padded[at, : len(ids)] = ids
    taken = metric.from_model_output(rows, padded, task.output_features)
    if isinstance(taken, seqio.metrics.CollectingMetric):
        return taken.actual_compute(rows, task.output_features)[0]
    return taken.compute()


def _figure(value: Any) -> float | str | None:
    """A metric's value as a number or text; None for pictures and the like."""
    if isinstance(value, seqio.metrics.MetricValue):
        for name in ("value", "textdata", "tensor"):
            if hasattr(value, name):
                return _figure(getattr(value, name))
        return None
    if isinstance(value, str | bytes):
        return plain(value)
    try:
        array = np.asarray(value)
    except ValueError:  # lists of several lengths
        return None
    single = array.size == 1 and array.dtype.kind in "biuf"
    return float(array.item()) if single else None
