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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Writes `rows` with the algorithm's output in place of the reference.

    Rows are decoded in parts, each a file beside `path` until all are there, so a
    killed run goes on at the first missing part. The name of a part holds a digest of
    all that decides its rows: what another target, policy or seed left is not taken,
    and is removed at the end. Rows whose output did not end within the task's length,
    or half as many tokens again as the input, are left out.

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
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = []
    digest = _digest(algorithm, params, vocabulary, task, seed)
    for begin in range(0, len(rows), ROWS_IN_PART):
        chunk = rows[begin : begin + ROWS_IN_PART]
        of_part = digest.copy()
        of_part.update(json.dumps(chunk).encode())
        name = f".{path.name}.part-{begin:08}-{of_part.hexdigest()[:16]}"
        part = path.with_name(name)
        parts.append(part)
        if not part.exists():
            decoded = _decode(
                algorithm,
                params,
                vocabulary,
                task,
                chunk,
                begin,
                batch_size,
                seed,
                lambda done: progress(begin + done, len(rows)),  # noqa: B023
            )
            lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in decoded)
            _write(part, "".join(lines).encode())
        progress(begin + len(chunk), len(rows))
    _write(path, gzip.compress(b"".join(part.read_bytes() for part in parts), mtime=0))
    for part in path.parent.glob(f".{glob.escape(path.name)}.part-*"):
        part.unlink()


def _digest(algorithm, params, vocabulary, task, seed):
    """SHA-256 of what decides an output, besides the row and its place."""
    digest = hashlib.sha256(
        repr((algorithm, vocabulary.fingerprint, task, seed)).encode()
    )
    for name, array in jax.tree_util.tree_leaves_with_path(params):
        digest.update(jax.tree_util.keystr(name).encode())
        digest.update(np.asarray(array).tobytes())
    return digest


def _decode(
    algorithm, params, vocabulary, task, rows, first, batch_size, seed, progress
) -> list[dict]:
    """The rows that ended, in their order."""
    inputs = [
        truncate(encode_input(row[task.inputs], task, vocabulary), MAX_INPUT_LENGTH)
        for row in rows
    ]
    # Rows of like length end at about the same step, so few wait for the longest.
    order = sorted(range(len(rows)), key=lambda i: len(inputs[i]))
    outputs: dict[int, str] = {}
    for begin in range(0, len(order), batch_size):
        members = order[begin : begin + batch_size]
        length = round_up(len(inputs[members[-1]]), INPUT_LENGTHS)
        tokens = pad([inputs[i] for i in members], length, batch_size)
        # Rows that only fill the batch get the first member's input.
        tokens[len(members) :] = tokens[0]
        # A row that repeats itself must not hold up the others for long.
        limits = [3 * len(inputs[i]) // 2 + 8 for i in members]
        limits += [1] * (batch_size - len(members))
        key = jax.random.key(seed)
        places = [first + i for i in members] + [0] * (batch_size - len(members))
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, np.array(places))
        start = np.full((batch_size, 1), PAD_ID, np.int32)
        out = generate(
            algorithm,
            params,
            tokens,
            start,
            keys,
            max_new_tokens=np.minimum(limits, task.max_target_length),
            max_length=1 + min(task.max_target_length, 3 * length // 2 + 8),
        )
        ids, lengths = np.asarray(out.tokens), np.asarray(out.lengths)
        for row, i in enumerate(members):
            kept = ids[row, : lengths[row]].tolist()
            if kept and kept[-1] == EOS_ID:
                outputs[i] = vocabulary.decode(kept)
        progress(min(begin + batch_size, len(order)))
    return [
        {**row, task.targets: outputs[i]} for i, row in enumerate(rows) if i in outputs
    ]


def _write(path: pathlib.Path, content: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)
