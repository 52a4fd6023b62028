"""A target's own outputs as a corpus, for its draft to be trained on.

A draft is useful where it agrees with its target, so it is trained on what the
target says rather than on what people wrote (Kim and Rush 2016,
https://arxiv.org/abs/1606.07947: sequence-level distillation).
"""

import glob
import gzip
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from spec_jax.base import Algorithm
from spec_jax.data.batches import pad, round_up
from spec_jax.data.examples import (
    MAX_INPUT_LENGTH,
    TextTask,
    encode_input,
    truncate,
)
from spec_jax.data.vocabulary import EOS_ID, PAD_ID, Vocabulary
from spec_jax.decoding.loop import generate

INPUT_LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, MAX_INPUT_LENGTH)
ROWS_IN_PART = 8192

Progress = Callable[[int, int], None]
"""Called with the number of rows done and in all."""


def write_teacher_corpus(
    algorithm: Algorithm,
    params,
    vocabulary: Vocabulary,
    task: TextTask,
    rows: Sequence[dict],
    path: str | pathlib.Path,
    *,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> None:
    """Writes `rows` with the algorithm's output in place of the reference.

    Rows whose output did not end within the task's length, or half as many tokens
    again as the input, are left out. See `write_in_parts` for kills.

    Args:
      algorithm: plain decoding by the target, for a corpus its greedy or sampled one.
      params: {"target": ...}.
      vocabulary: of the target.
      task: which fields of a row are its input and reference.
      rows: of the training split.
      path: the .jsonl.gz file to write.
      batch_size: rows decoded together.
      seed: with a row's place in `rows` it decides the row's draws.
      progress: called with the number of rows done and in all.
    """

    def answer(chunk, first, progress):
        inputs = [
            truncate(encode_input(row[task.inputs], task, vocabulary), MAX_INPUT_LENGTH)
            for row in chunk
        ]
        # A row that repeats itself must not hold up the others for long.
        limits = [min(3 * len(ids) // 2 + 8, task.max_target_length) for ids in inputs]
        outputs = decode_ids(
            algorithm, params, inputs, limits, first, batch_size, seed, progress
        )
        return [
            {**row, task.targets: vocabulary.decode(outputs[i])}
            for i, row in enumerate(chunk)
            if outputs.get(i, [0])[-1] == EOS_ID
        ]

    decisive = repr((algorithm, vocabulary.fingerprint, task, seed))
    write_in_parts(path, rows, _digest(decisive, params), answer, progress)


def write_target_outputs(
    algorithm: Algorithm,
    params,
    inputs: Sequence[Sequence[int]],
    path: str | pathlib.Path,
    *,
    max_target_length: int,
    batch_size: int = 64,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> None:
    """Writes the algorithm's outputs as token ids, to distill on.

    A line has the `inputs` and the `targets` of a row. An output is cut at
    `max_target_length`, or at twice as many tokens as the input and 32: what is learnt
    of it is how it goes on, not where it stops. See `write_in_parts` for kills.

    Args:
      algorithm: plain decoding by the target.
      params: {"target": ...}.
      inputs: encoder tokens, end of sequence included.
      path: the .jsonl.gz file to write.
      max_target_length: decoder tokens, end of sequence included.
      batch_size: rows decoded together.
      seed: with a row's place in `inputs` it decides the row's draws.
      progress: called with the number of rows done and in all.
    """

    def answer(chunk, first, progress):
        limits = [min(2 * len(ids) + 32, max_target_length) for ids in chunk]
        outputs = decode_ids(
            algorithm, params, chunk, limits, first, batch_size, seed, progress
        )
        return [
            {"inputs": ids, "targets": outputs[i]}
            for i, ids in enumerate(chunk)
            if i in outputs
        ]

    rows = [list(map(int, ids)) for ids in inputs]
    decisive = repr((algorithm, max_target_length, seed))
    write_in_parts(path, rows, _digest(decisive, params), answer, progress)


def write_in_parts(
    path: str | pathlib.Path,
    rows: Sequence[Any],
    digest: Any,
    answer: Callable[[Sequence[Any], int, Callable[[int], None]], list[dict]],
    progress: Progress,
) -> None:
    """Writes what is made of rows, in their order, as a .jsonl.gz file.

    Rows are answered in parts, each a file beside `path` until all are there, so a
    killed run goes on at the first missing part. The name of a part holds a digest of
    all that decides its rows: what another target, policy or seed left is not taken,
    and is removed at the end.

    Args:
      path: of the file; it appears when it is whole.
      rows: what JSON can hold.
      digest: a hashlib object that has seen what decides an answer beside the rows.
      answer: lines for some rows, from these, the place of the first of them in
        `rows`, and a callback that takes the number of rows done.
      progress: called with the number of rows done and in all.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    for begin in range(0, len(rows), ROWS_IN_PART):
        chunk = rows[begin : begin + ROWS_IN_PART]
        of_part = digest.copy()
        of_part.update(json.dumps(chunk).encode())
        name = f".{path.name}.part-{begin:08}-{of_part.hexdigest()[:16]}"
        part = path.with_name(name)
        parts.append(part)
        if not part.exists():
            answers = answer(
                chunk,
                begin,
                lambda done: progress(begin + done, len(rows)),  # noqa: B023
            )
            lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in answers)
            _write(part, "".join(lines).encode())
        progress(begin + len(chunk), len(rows))
    _write(path, gzip.compress(b"".join(part.read_bytes() for part in parts), mtime=0))
    for part in path.parent.glob(f".{glob.escape(path.name)}.part-*"):
        part.unlink()


def _digest(decisive: str, params):
    """SHA-256 of what decides an output, besides the row and its place."""
    digest = hashlib.sha256(decisive.encode())
    for name, array in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(name).encode())
        digest.update(np.asarray(array).tobytes())
    return digest


def decode_ids(
    algorithm: Algorithm,
    params,
    inputs: Sequence[Sequence[int]],
    limits: Sequence[int],
    first: int,
    batch_size: int,
    seed: int,
    progress: Callable[[int], None],
) -> dict[int, list[int]]:
    """Decodes rows of any length; gives the outputs, ended or cut, by place.

    Args:
      algorithm: plain decoding.
      params: {"target": ...}.
      inputs: encoder tokens, end of sequence included.
      limits: most tokens of each row's output.
      first: place of the first row among all; with `seed` it decides draws.
      batch_size: rows decoded together.
      seed: see `first`.
      progress: called with the number of rows done.
    """
    # Rows of like length end at about the same step, so few wait for the longest.
    order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
    key, outputs = jax.random.key(seed), {}
    for begin in range(0, len(order), batch_size):
        members = order[begin : begin + batch_size]
        length = _padded(len(inputs[members[-1]]))
        tokens = pad([inputs[i] for i in members], length, batch_size)
        # Rows that only fill the batch get the first member's input.
        tokens[len(members) :] = tokens[0]
        most = [limits[i] for i in members] + [1] * (batch_size - len(members))
        places = [first + i for i in members] + [0] * (batch_size - len(members))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, np.array(places))
        start = np.full((batch_size, 1), PAD_ID, np.int32)
        out = generate(
            algorithm,
            params,
            tokens,
            start,
            keys,
            max_new_tokens=np.array(most),
            # Few shapes: what the padded length allows, not what this batch needs.
            max_length=1 + _padded(max(most)),
        )
        ids, lengths = np.asarray(out.tokens), np.asarray(out.lengths)
        for row, i in enumerate(members):
            kept = ids[row, : lengths[row]].tolist()
            if kept:
                outputs[i] = kept
        progress(min(begin + batch_size, len(order)))
    return outputs


def _padded(length: int) -> int:
    """A length that compiled shapes have."""
    longest = INPUT_LENGTHS[-1]
    if length > longest:
        return -(-length // longest) * longest
    return round_up(length, INPUT_LENGTHS)


def _write(path: pathlib.Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
