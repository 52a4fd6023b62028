"""A training that goes on: is it the one that began?"""

import pathlib
import re
from collections.abc import Collection

from rich.console import Console

from spec_jax.checkpoints import TrainingCheckpoints
from spec_jax.cli.errors import UsageError

FREE = frozenset(
    "MODEL_DIR TRAIN_STEPS CHECKPOINT_PERIOD EVAL_PERIOD NUM_VALIDATION "
    "VOCABULARY".split()
)
"""Macros that may change from run to run; a vocabulary is known by its content."""
_BINDING = re.compile(r"^([\w./]+) =", re.MULTILINE)


def check_steps(folder: pathlib.Path, steps: int) -> int:
    """How far an earlier run in the folder came; 0 where there is none.

    Raises:
      UsageError: if that one went further.
    """
    if not folder.exists():
        return 0
    with TrainingCheckpoints(folder) as checkpoints:
        done = checkpoints.latest_step() or 0
    if done > steps:
        raise UsageError(
            f"{folder} is already at step {done}, TRAIN_STEPS is {steps}: give more "
            "steps or another MODEL_DIR"
        )
    return done


def say_resumed(
    folder: pathlib.Path, done: int, steps: int, config: str, console: Console
) -> None:
    """Says that nothing is left to train, and what is bound otherwise than before.

    Args:
      folder: of the run.
      done: steps of an earlier run.
      steps: in all.
      config: as gin writes it, of the run that goes on.
      console: to say it on.
    """
    if done == steps:
        console.print(f"already at step {done}: only the export is written")
    file = folder / "config.gin"
    before = file.read_text(encoding="utf-8") if file.exists() else ""
    for change in changes(before, config):
        console.print(
            f"warning, {folder} goes on otherwise than it began: {change}",
            style="yellow",
            markup=False,
            soft_wrap=True,
        )


def changes(before: str, after: str, free: Collection[str] = FREE) -> list[str]:
    """Which bindings differ between two configurations.

    Args:
      before: as gin writes it.
      after: of the run that goes on.
      free: names that do not matter.

    Example:
      >>> changes("SEED = 0", "SEED = 1")
      ['SEED was 0, is 1']
    """
    old, new = _bindings(before), _bindings(after)
    return [
        f"{name} was {old[name]}, is {value}"
        for name, value in new.items()
        if name in old and value != old[name] and name not in free
    ]


def _bindings(config: str) -> dict[str, str]:
    """Values as text, by name; a value may go on over several lines."""
    kept = [line for line in config.splitlines() if not line.startswith("#")]
    parts = _BINDING.split("\n".join(kept))[1:]
    return {
        name: " ".join(value.split()).removeprefix("\\ ")
        for name, value in zip(parts[::2], parts[1::2], strict=True)
    }
