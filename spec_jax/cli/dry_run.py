"""`--dry_run`: the configuration, every shape and the memory, from gin files alone."""

import inspect
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spec_jax.cli.configuration import NOT_GIVEN
from spec_jax.cli.decoding import fastest_dtypes
from spec_jax.cli.errors import UsageError
from spec_jax.cli.runtime import start_backend
from spec_jax.cli.terminal import make_console
from spec_jax.experiments.memory import (
    GIB,
    Holding,
    decoding,
    parameters,
    training,
    training_batch,
)

NOT_COUNTED = {
    False: "Not counted: what XLA keeps while a step computes, what is measured "
    "besides, the compiled programs, and a checkpoint's files while they are read.",
    True: "Not counted: activations kept for the gradient, what XLA keeps while a step "
    "computes, and the compiled programs.",
}
"""Of decoding, and of training."""
NAME_WIDTH = 60
"""Columns of an array's name."""


def show(invocation) -> None:
    """Prints what a command would run with.

    Raises:
      UsageError: if the configuration is wrong, or does not say the models' shapes.
    """
    settings = invocation.settings
    _check_file(settings)
    start_backend()
    console = make_console()
    is_training = hasattr(settings, "batch_shapes")
    if is_training:
        holdings, batches, notes = _training(settings)
    elif "abstract" in inspect.signature(settings.load_pair).parameters:
        holdings, batches, notes = _decoding(settings)
    else:
        # What loads a decoder-only model has its shape from the model's file.
        _print_text(console, invocation.operative_config())
        console.print("Its file holds the model's shapes: a dry run does not open it.")
        return
    _print_text(console, invocation.operative_config())
    largest = max(batches, key=lambda one: one.bytes)
    described = set()
    for holding in (*holdings, largest):
        # The same arrays are not listed twice: another dtype's, or the gradient's.
        shapes = tuple((one.name, one.shape) for one in holding.arrays)
        if shapes not in described:
            console.print(heading(holding), soft_wrap=True)
            console.print(arrays_table(holding))
        described.add(shapes)
    console.print(memory_table(holdings, batches))
    for note in (*notes, NOT_COUNTED[is_training]):
        console.print(note, style="dim", markup=False)
    # Last, where it is on the screen after so many tables.
    console.print(Text(f"\nMemory in all: {_size(_total(holdings, batches))}", "bold"))


def _check_file(settings: Any) -> None:
    """Raises UsageError if there is no TASK_FILE: unlike weights, it is at hand."""
    file = getattr(getattr(settings, "tasks", None), "task_file", None)
    if file is not None and not os.path.isfile(file.path):
        raise UsageError(f"no file {file.path} (TASK_FILE)")


def _print_text(console: Console, text: str) -> None:
    """Text as it is."""
    console.print(text, markup=False, soft_wrap=True)


def _training(settings: Any) -> tuple[list[Holding], list[Holding], list[str]]:
    """What a training holds; where a draft is distilled, its frozen target too."""
    frozen, config = [], getattr(settings, "config", None)
    if config is None:
        dtype = settings.dtype or fastest_dtypes(None, None)[0]
        pair = _abstract_pair(settings, dtype)
        frozen = [parameters("target parameters, frozen", pair.params["target"], dtype)]
        config = pair.draft.config
    batches = [training_batch(*shape) for shape in settings.batch_shapes()]
    return [*frozen, *training(config, settings.settings)], batches, []


def _abstract_pair(settings: Any, dtype: str) -> Any:
    """The pair's shapes.

    Raises:
      UsageError: if they are not known.
    """
    try:
        return settings.load_pair(dtype=dtype, abstract=True)
    except ValueError as error:
        if NOT_GIVEN not in str(error):
            raise
        raise UsageError(
            "the models' shapes are not known: give TARGET_CHECKPOINT and "
            "DRAFT_CHECKPOINT, or a file that binds them, such as "
            "pairs/t5_1_1_xxl_small.gin"
        ) from None


def _decoding(settings: Any) -> tuple[list[Holding], list[Holding], list[str]]:
    """Parameters in every dtype that is loaded, states of every shape, and notes.

    Raises:
      UsageError: if a model's shape is not known.
    """
    dtypes = _dtypes(settings)
    pair = _abstract_pair(settings, dtypes[0])
    held = [
        parameters(f"{role} parameters", pair.params[role], dtype)
        for dtype in dict.fromkeys(dtypes)
        for role in ("target", "draft")
    ]
    widest = max(dtypes, key=lambda name: np.dtype(name).itemsize)
    gamma = max(_setting(settings, name, 1) for name in ("gamma", "most"))
    states = [
        decoding(
            pair,
            widest,
            batch=rows,
            input_length=inputs,
            max_new_tokens=new_tokens,
            gamma=gamma,
        )
        for rows, inputs, new_tokens in dict.fromkeys(settings.decode_shapes())
    ]
    notes = []
    if len(held) > 2:
        notes.append(
            f"Speculative decoding is in {dtypes[0]}, plain decoding in {dtypes[1]}, "
            "and both are held: DTYPE and PLAIN_DTYPE set them."
        )
    drafts = _setting(settings, "drafts", (_setting(settings, "draft", "model"),))
    if others := [name for name in drafts if name not in ("model", "chain")]:
        notes.append(
            "The batch is counted as the draft model holds it; with the draft "
            f"{' or '.join(others)} it is smaller, as there is no draft's cache."
        )
    return held, states, notes


def _dtypes(settings: Any) -> tuple[str, str]:
    """Of speculative and of plain decoding; of the first alone where there is one."""
    if hasattr(settings, "plain_dtype"):
        return fastest_dtypes(settings.dtype, settings.plain_dtype)
    dtype, _ = fastest_dtypes(settings.dtype, None)
    return dtype, dtype


def _setting(settings: Any, name: str, default: Any) -> Any:
    """A setting of a command, which some keep one level deeper."""
    inner = getattr(settings, "settings", None)
    return getattr(settings, name, getattr(inner, name, default))


def heading(holding: Holding) -> Text:
    """What stands over its table."""
    facts = [f"{holding.size:,} numbers", holding.dtype, _size(holding.bytes)]
    return Text(f"{holding.name}: {', '.join(filter(None, facts))}", "bold")


def arrays_table(holding: Holding) -> Table:
    """A row for the arrays of one name and shape."""
    table = _table()
    table.add_column("arrays", overflow="fold")
    table.add_column("shape", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    table.add_column("memory", justify="right", no_wrap=True)
    for one in holding.arrays:
        shape = " x ".join(map(str, one.shape)) or "one number"
        many = f"{one.count} of " if one.count > 1 else ""
        table.add_row(
            _in_lines(one.name), many + shape, one.dtype.name, _size(one.bytes)
        )
    if holding.dtype:
        del table.columns[2]
    return table


def _in_lines(name: str) -> str:
    """A long name in lines that end where a part of it ends."""
    lines = [""]
    for part in re.findall(r"[^/,]+[/,]?", name):
        if len(lines[-1] + part) > NAME_WIDTH:
            lines.append("  ")
        lines[-1] += part
    return "\n".join(lines)


def memory_table(held: Sequence[Holding], batches: Sequence[Holding]) -> Table:
    """What is held all the time, one of the batches, and the largest sum."""
    table = _table()
    table.add_column("memory", overflow="fold")
    table.add_column("GiB", justify="right", no_wrap=True)
    for holding in held:
        name = ", ".join(filter(None, (holding.name, holding.dtype)))
        table.add_row(name, _gib(holding.bytes))
    for one in batches:
        table.add_row(f"  {one.name}", _gib(one.bytes))
    which = "the largest batch" if len(batches) > 1 else "the batch"
    table.add_section()
    total = _gib(_total(held, batches))
    table.add_row(f"in all, with {which}", total, style="bold")
    return table


def _total(held: Sequence[Holding], batches: Sequence[Holding]) -> int:
    """Bytes of what is held all the time and of the largest batch."""
    return sum(one.bytes for one in held) + max(one.bytes for one in batches)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1))


def _gib(count: int) -> str:
    """Bytes in GiB."""
    return f"{count / GIB:,.3f}" if count >= GIB / 2000 else "under 0.001"


def _size(count: int) -> str:
    """Bytes in the unit that suits them."""
    units = {GIB: "GiB", 2**20: "MiB", 2**10: "KiB"}
    for unit, name in units.items():
        if count >= unit:
            return f"{count / unit:,.2f} {name}"
    return f"{count} B"
