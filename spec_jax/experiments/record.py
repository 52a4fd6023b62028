"""One run is one JSON line. docs/measurements.md defines every field."""

import dataclasses
import datetime
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import types
import typing
from typing import Any, Self, TypeVar

import jax


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where a row of speculative decoding first left plain decoding.

    Attributes:
      example: the row's index in the task.
      position: of the first differing token among the new ones, from 0.
      plain: plain decoding's token; None past its end.
      speculative: the other one; None past its end.
      gap: between the two largest logits of the target there, both decodings'
        tokens up to there being the same; a near tie has a small one.
    """

    example: int
    position: int
    plain: int | None
    speculative: int | None
    gap: float


class JsonLine:
    """A dataclass that is one line of a JSON Lines file."""

    def to_json(self) -> str:
        """One line, without its end.

        Raises:
          ValueError: for NaN or infinity, which JSON does not have.
        """
        fields = dataclasses.asdict(self)
        return json.dumps(fields, allow_nan=False, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """What `to_json` wrote; unknown fields are passed over.

        Raises:
          ValueError: if the line is no JSON object, of another kind, lacks a field, or
            has one of another type.
        """
        fields = json.loads(line, parse_constant=_no_number)
        if not isinstance(fields, dict):
            raise ValueError(f"want a JSON object, got {line[:80]!r}")
        known = {field.name: field for field in dataclasses.fields(cls)}
        missing = [
            name
            for name, field in known.items()
            if name not in fields and field.default is dataclasses.MISSING
        ]
        if missing:
            raise ValueError(f"a record lacks the fields {missing}")
        kept = {name: value for name, value in fields.items() if name in known}
        kind = known["kind"].default if "kind" in known else None
        if kind is not None and kept.get("kind") != kind:
            raise ValueError(f"want kind {kind!r}, got {kept.get('kind')!r}")
        hints = typing.get_type_hints(cls)
        for name, value in kept.items():
            if not _fits(value, hints[name]):
                raise ValueError(f"a record has {name} {str(value)[:60]!r}")
        return cls(**cls.restored(kept))

    @staticmethod
    def restored(fields: dict[str, Any]) -> dict[str, Any]:
        """The fields as they were, from what JSON makes of them."""
        return fields


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record(JsonLine):
    """The figures of one (task, temperature); None where a figure has no case.

    `docs/measurements.md` defines them; the names stay the same in all reports.
    """

    task: str
    pair: str
    draft: str
    rule: str
    temperature: float
    gamma: int
    batch: int
    policy: dict[str, Any]
    dtype: str
    plain_dtype: str
    device: str
    cpu_threads: int | None
    versions: dict[str, str]
    seed: int
    num_examples: int
    inputs_cut: int
    alpha: float
    alpha_stderr: float | None
    alpha_tokens: int
    c: float
    verify_cost: float
    tokens_per_run: float
    accepted_per_drafted: float | None
    acceptance_by_position: tuple[float | None, ...]
    tokens_plain: int
    tokens_speculative: int
    tokens_per_second_plain: float
    tokens_per_second_speculative: float
    speedup: float
    speedup_formula: float
    speedup_of_formula: float
    identical: float | None
    identical_across_dtypes: float | None
    differences: tuple[Difference, ...]
    metrics: dict[str, dict[str, float | str]]
    compile_seconds: float
    repeats: int
    date: str
    baseline: dict[str, float | None] | None = None
    run: str = ""
    draft_name: str = ""
    draft_dtype: str = ""
    lossless: bool = True
    lenience: float | None = None
    lengths: str = "fixed"
    warnings: tuple[str, ...] = ()

    @staticmethod
    def restored(fields):
        """See `JsonLine.restored`."""
        restored = dict(fields)
        restored["acceptance_by_position"] = tuple(fields["acceptance_by_position"])
        restored["differences"] = tuple(Difference(**d) for d in fields["differences"])
        restored["warnings"] = tuple(fields.get("warnings", ()))
        return restored


Line = TypeVar("Line", bound=JsonLine)


def append_record(path: str | pathlib.Path, record: JsonLine) -> None:
    """Adds a line to a file in one write, so that no reader sees half of it.

    Folders are made as needed. Half a line that another program left stays alone: the
    record begins a line of its own.

    Raises:
      OSError: if the line could not be written whole; nothing of it stays.
    """
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = (record.to_json() + "\n").encode("utf-8")
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            line = b"\n" + line
        written = os.write(file, line)
        if written != len(line):
            os.ftruncate(file, size)
            raise OSError(f"wrote {written} of {len(line)} bytes to {path}: disk full?")
    finally:
        os.close(file)


def read_records(
    path: str | pathlib.Path, kind: type[Line] = Record, half_lines: bool = False
) -> list[Line]:
    """All records of a file, oldest first.

    Args:
      path: of the file.
      kind: what its lines are.
      half_lines: whether what a kill left of a line is passed over.

    Raises:
      ValueError: if the file cannot be read or a line is no record; it is named.
    """
    try:
        lines = pathlib.Path(path).read_text("utf-8").split("\n")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            records.append(kind.from_json(line))
        except (ValueError, TypeError) as error:
            if half_lines and isinstance(error, json.JSONDecodeError):
                continue
            raise ValueError(f"{path}, line {number}: {error}") from None
    return records


def _no_number(name: str) -> None:
    raise ValueError(f"a record has {name}, which is no number of JSON's")


def _fits(value: Any, hint: Any) -> bool:
    """Whether JSON has a value as a field's annotation wants it.

    Classes are not looked into: they are made by `restored`.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in parts)
    if origin is tuple:
        each = isinstance(value, list | tuple)
        return each and all(_fits(one, parts[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            _fits(one, parts[1]) for one in value.values()
        )
    if hint is float:
        return type(value) in (int, float)
    if hint in (int, str, bool, type(None)):
        return type(value) is hint
    return True


def finite_or_none(value: float) -> float | None:
    """A figure as JSON can hold it: None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def versions() -> dict[str, str]:
    """Of Python and the packages that figures depend on."""
    found = {"python": platform.python_version()}
    for package in ("jax", "jaxlib", "flax", "spec_jax"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"  # a source tree on the path
    return found


def describe_device() -> str:
    """Platform and kind of the default device; on CPU the processor's name."""
    device = jax.devices()[0]
    kind = device.device_kind
    if device.platform == "cpu":
        kind = _processor() or platform.machine()
    return f"{device.platform}: {kind}"


def cpu_threads() -> int | None:
    """Threads that JAX computes with on CPU; None on another platform."""
    if jax.devices()[0].platform != "cpu":
        return None
    wanted = os.environ.get("PJRT_NPROC", "")
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def today() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2] for line in lines if line.startswith("model name")]
    return names[0].strip() if names else ""
