"""`spec-jax inspect`: what a checkpoint holds, and what it lacks."""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spec_jax.checkpoints.describe import (
    ArraySummary,
    CheckpointSummary,
    describe_checkpoint,
)
from spec_jax.cli.configuration import shipped_folder
from spec_jax.cli.errors import UsageError
from spec_jax.cli.model_names import matching_models
from spec_jax.cli.sizes import byte_size
from spec_jax.cli.terminal import make_console, plural
from spec_jax.pairs.folders import resolve

_LAYER = re.compile(r"(?<=layers_)\d+|(?<=block\.)\d+")


def main(invocation) -> None:
    """Runs the command.

    Raises:
      UsageError: after what there is was shown, if something is missing or damaged.
    """
    flags = invocation.flags
    if len(invocation.arguments) != 1:
        raise UsageError(
            f"want one PATH, got {len(invocation.arguments)}: "
            f"{invocation.command.example}"
        )
    summary = describe_checkpoint(resolve(invocation.arguments[0]), flags.check)
    gin_files = (
        matching_models(summary.config, shipped_folder()) if is_t5(summary) else ()
    )
    if flags.json:
        content = dataclasses.asdict(summary) | {"gin_files": gin_files}
        print(json.dumps(content, indent=2))
    else:
        show(summary, gin_files, make_console())
    if summary.problems:
        more = len(summary.problems) - 1
        rest = f", and {plural(more, 'problem')} more" if more else ""
        raise UsageError(f"{summary.path}: {summary.problems[0]}{rest}")


def is_t5(summary: CheckpointSummary) -> bool:
    """Whether the network is known to be a T5."""
    return summary.config is not None and "num_encoder_layers" in summary.config


def show(
    summary: CheckpointSummary, gin_files: Sequence[str], console: Console
) -> None:
    """Prints the facts, then the arrays with equal layers as one row."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in rows(summary, gin_files):
        facts.add_row(name, Text(value))
    console.print(facts)
    console.print()
    arrays = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    arrays.add_column("array", overflow="fold")
    for header in ("shape", "dtype", "layers", "parameters"):
        arrays.add_column(header, justify="right", no_wrap=True)
    for name, shape, dtype, count, size in collapse(summary.arrays):
        arrays.add_row(
            Text(name), Text(shape), dtype, str(count) if count else "", f"{size:,}"
        )
    console.print(arrays)


def rows(summary: CheckpointSummary, gin_files: Sequence[str]) -> list[tuple[str, str]]:
    """The facts, as name and text."""
    step = "" if summary.step is None else f", step {summary.step}"
    kinds = ", ".join(
        kind if len(summary.dtypes) == 1 else f"{count:,} in {kind}"
        for kind, count in summary.dtypes.items()
    )
    disk = ""
    if summary.disk_bytes is not None:
        disk = f"; {byte_size(summary.disk_bytes)} on disk"
    found = [
        ("path", summary.path),
        ("kind", summary.kind + step),
        (
            "parameters",
            f"{summary.num_parameters:,} ({kinds}), {byte_size(summary.num_bytes)}"
            f"{disk}",
        ),
    ]
    if summary.config is None:
        found.append(("model", "unknown"))
    else:
        found.append(
            ("model", f"{network(summary.config)} (from {summary.config_from})")
        )
    if is_t5(summary):
        fits = ", ".join(gin_files) or "none of those shipped"
        found.append(("gin file", fits))
    beside = ", ".join(summary.vocabulary) or "none found beside it"
    if summary.config_from == "the file":
        beside = "in the file"
    found.append(("vocabulary", beside))
    read = (
        "every number was read" if summary.was_read else "no number was read: --check"
    )
    found.append(("problems", "\n".join(summary.problems) or f"none; {read}"))
    return found


def network(config: Mapping[str, Any]) -> str:
    """A network's shape in words."""
    activations = "-".join(config["mlp_activations"])
    logits = "tied to" if config["logits_via_embedding"] else "apart from"
    if "num_encoder_layers" in config:
        gated, tied = len(config["mlp_activations"]) > 1, config["logits_via_embedding"]
        kind = {(True, False): "T5 1.1", (False, True): "T5 1.0"}.get(
            (gated, tied), "T5"
        )
        layers = (
            f"{config['num_encoder_layers']} encoder and "
            f"{config['num_decoder_layers']} decoder layers"
        )
        heads = plural(config["num_heads"], "head")
    else:
        kind = "decoder-only"
        layers = plural(config["num_layers"], "layer")
        heads = f"{config['num_heads']} heads and {config['num_kv_heads']} for keys,"
    return (
        f"{kind}, {layers}, width {config['emb_dim']}, {heads} of "
        f"{config['head_dim']}, MLP {config['mlp_dim']} {activations}, "
        f"vocabulary {config['vocab_size']}, logits {logits} the embedding"
    )


def collapse(
    arrays: Sequence[ArraySummary],
) -> list[tuple[str, str, str, int, int]]:
    """Arrays that differ in their layer's number alone as one.

    Args:
      arrays: all of them.

    Returns:
      Name with `*` for the number, shape, dtype, how many layers have it (0: it is in
      none), and how many parameters they have together.
    """
    counts: dict[tuple[str, str, str], list[int]] = {}
    for array in arrays:
        name, layered = _LAYER.subn("*", array.name, count=1)
        shape = " x ".join(map(str, array.shape)) or "scalar"
        row = counts.setdefault((name, shape, array.dtype), [0, 0])
        row[0] += layered
        row[1] += array.size
    return [(*key, *row) for key, row in sorted(counts.items())]
