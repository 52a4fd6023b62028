"""A file that grows line by line, so that a killed run goes on where it was."""

import fcntl
import hashlib
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

DIGITS = 12
"""Of a fingerprint, as names of files have it."""


class Journal:
    """JSON lines under a head that says what run they are of.

    The file is made with its first line. A line that a kill cut in half is dropped;
    lines are appended in one write each. While it is open nobody else can open it.

    Args:
      path: of the file; folders are made with it.
      head: what must be the same for lines to be of one run; JSON can hold it.

    Raises:
      ValueError: if the file is of another run, is no journal, is open elsewhere, or,
        when lines are added, was written by another run in the meantime.
    """

    def __init__(self, path: str | os.PathLike, head: Mapping[str, Any]):
        self.path = pathlib.Path(path)
        self._head = json.loads(json.dumps(head))
        self._file: int | None = None
        self.lines: list[dict] = []
        if self.path.exists():
            self._open()
            self.lines = self._read()

    def append(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Adds lines, all of them in one write.

        Raises:
          OSError: if they could not be written whole; nothing of them stays.
        """
        new = self._file is None
        texts = [json_line(line) for line in lines]
        head = [json_line({"head": self._head})] if new else []
        data = "".join([*head, *texts]).encode("utf-8")
        if new:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        size = os.fstat(self._file).st_size
        if new and size:
            self.close()
            raise ValueError(
                f"another run has written {self.path} meanwhile: give the same command "
                "again, it goes on from there"
            )
        count = os.write(self._file, data)
        if count != len(data):
            os.ftruncate(self._file, size)
            raise OSError(f"wrote {count} of {len(data)} bytes to {self.path}: full?")
        self.lines += map(json.loads, texts)

    def close(self) -> None:
        """Lets others open the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise ValueError(
                f"another run writes to {self.path}: wait for it, or give another "
                "output folder"
            ) from None

    def _read(self) -> list[dict]:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        os.ftruncate(self._file, whole)
        if not whole:
            self.close()
            self.path.unlink()
            return []
        try:
            head, *lines = map(
                json.loads, data[: whole - 1].decode("utf-8").split("\n")
            )
            theirs = head["head"]
        except (ValueError, KeyError, TypeError):
            self.close()
            raise ValueError(
                f"{self.path} is damaged or no record of a run: remove it to begin anew"
            ) from None
        if theirs != self._head:
            self.close()
            differing = [k for k in self._head if theirs.get(k) != self._head[k]]
            raise ValueError(
                f"{self.path} is of a run with other {', '.join(differing)}: remove "
                "it, or give another output folder"
            )
        return lines


def json_line(row: Mapping[str, Any]) -> str:
    """A row of a JSON Lines file; what JSON does not know is written as text.

    Raises:
      ValueError: for NaN or infinity, which JSON does not have.
    """
    dump = json.dumps(row, ensure_ascii=False, allow_nan=False, default=_as_json)
    return dump + "\n"


def _as_json(value: Any) -> Any:
    """An array's numbers; the text of anything else, as a task's target may be."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def digest(head: Mapping[str, Any]) -> str:
    """A short fingerprint of what JSON can hold."""
    text = json.dumps(head, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:DIGITS]


def digest_of_texts(texts: Iterable[str]) -> str:
    """The same of many texts."""
    found = hashlib.sha256()
    for text in texts:
        found.update(f"{len(text)}:{text}".encode())
    return found.hexdigest()[:DIGITS]


def digest_of_parameters(params: Any) -> str:
    """The same of a parameter tree: names, shapes, and two sums of each array's values.

    The sums are taken where the arrays are: a large model is not fetched for it.
    """
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        described = f"{jax.tree_util.keystr(path)} {leaf.dtype} {leaf.shape}"
        found.update(described.encode() + np.asarray(_sums(leaf)).tobytes())
    return found.hexdigest()[:DIGITS]


@jax.jit
def _sums(values: Num[Array, "..."]) -> Float[Array, "2"]:
    """Of the values, and of them weighted by their place."""
    flat = values.astype(jnp.float32).reshape(-1)
    weights = 1.0 + jax.lax.iota(jnp.int32, flat.shape[0]) % 1009 / 1009
    return jnp.stack([flat.sum(), (flat * weights).sum()])
