"""Which of the shipped gin files under models/ describes a network."""

import ast
import pathlib
import re
from collections.abc import Mapping
from typing import Any

_INCLUDE = re.compile(r"""^include\s+['"](.+)['"]""")
_MODEL = re.compile(r"^MODEL\s*=\s*@(?:(\S+)/)?T5Config\(\)")
_BINDING = re.compile(r"^(?:(\S+)/)?T5Config\.(\w+)\s*=\s*(.+?)\s*(?:#.*)?$")
_DEFAULTS = {"mlp_activations": ("gelu", "linear"), "logits_via_embedding": False}
SIZES = (
    *("vocab_size", "emb_dim", "num_heads", "head_dim", "mlp_dim"),
    *("num_encoder_layers", "num_decoder_layers"),
    *_DEFAULTS,
)
"""What makes two networks take the same weights."""


def matching_models(config: Mapping[str, Any], folder: pathlib.Path) -> tuple[str, ...]:
    """The gin files whose network has the same sizes.

    Args:
      config: T5Config's arguments.
      folder: gin_configs/.

    Returns:
      Their names as `--gin_file` takes them, such as models/t5_1_1/small.gin.
    """
    wanted = _comparable(config)
    return tuple(
        str(file.relative_to(folder))
        for file in sorted((folder / "models").rglob("*.gin"))
        if _comparable(_read_model(file, folder)) == wanted
    )


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: config.get(name, _DEFAULTS.get(name)) for name in SIZES}
    return values | {"mlp_activations": tuple(values["mlp_activations"])}


def _read_model(file: pathlib.Path, folder: pathlib.Path) -> dict[str, Any]:
    """T5Config's arguments that a file and those it includes bind for their MODEL."""
    scope, bindings = None, []
    for line in _lines(file, folder):
        if model := _MODEL.match(line):
            scope = model[1] or ""
        elif binding := _BINDING.match(line):
            try:
                value = ast.literal_eval(binding[3])
            except (ValueError, SyntaxError):
                continue  # a macro, such as the dtype
            bindings.append((binding[1] or "", binding[2], value))
    if scope is None:
        return {}
    # gin: a binding of a scope holds below it too, and the innermost wins.
    parts = scope.split("/") if scope else []
    fields = {}
    for depth in range(len(parts) + 1):
        for where, name, value in bindings:
            if where == "/".join(parts[:depth]):
                fields[name] = value
    return fields


def _lines(file: pathlib.Path, folder: pathlib.Path) -> list[str]:
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        included = _INCLUDE.match(line)
        if included and (folder / included[1]).is_file():
            lines += _lines(folder / included[1], folder)
        else:
            lines.append(line)
    return lines
