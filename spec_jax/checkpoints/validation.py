"""Whether the arrays of a checkpoint are those a model wants."""

from collections.abc import Mapping
from typing import Any

from spec_jax.checkpoints.storage import CheckpointError

SHOWN = 4
HEAD = "decoder/logits_dense/kernel"
EMBEDDING = "token_embedder/embedding"


def flatten(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A nested dict as one dict, keys joined by `/`.

    Raises:
      CheckpointError: if a key itself holds `/`.
    """
    flat = {}
    for key, value in tree.items():
        if "/" in str(key):
            raise CheckpointError(f"{key!r}: a parameter's key must not hold '/'")
        if isinstance(value, Mapping):
            flat |= {f"{key}/{below}": leaf for below, leaf in flatten(value).items()}
        else:
            flat[str(key)] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flatten`.

    Raises:
      CheckpointError: if one name is both an array and a folder of arrays.
    """
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *folders, last = name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
            if not isinstance(node, dict):
                raise CheckpointError(f"{name} lies below another array")
        if last in node:
            raise CheckpointError(f"{name} is given twice")
        node[last] = leaf
    return tree


def check_fits(
    stored: Mapping[str, Any], expected: Mapping[str, Any], path: str, name: str = ""
) -> None:
    """Compare names and shapes before anything is read.

    Args:
      stored: arrays of the checkpoint by name; only `.shape` is used.
      expected: the model's parameters by name; only `.shape` is used.
      path: the checkpoint, for the message.
      name: whose parameters these are, "target" or "draft", for the message.

    Raises:
      CheckpointError: lists missing keys, surplus keys and wrong shapes, each with
        the shape on both sides, and says what the likely cause is.
    """
    missing = sorted(expected.keys() - stored.keys())
    surplus = sorted(stored.keys() - expected.keys())
    wrong = sorted(
        key
        for key in expected.keys() & stored.keys()
        if tuple(stored[key].shape) != tuple(expected[key].shape)
    )
    if not (missing or surplus or wrong):
        return
    lines = [f"the checkpoint {path} does not fit the {name} model".replace("  ", " ")]
    lines += _listed(
        "missing from the checkpoint",
        [f"{key} {tuple(expected[key].shape)}" for key in missing],
    )
    lines += _listed(
        "not in the model", [f"{key} {tuple(stored[key].shape)}" for key in surplus]
    )
    lines += _listed(
        "shapes differ",
        [
            f"{key}: {tuple(stored[key].shape)} in the checkpoint, "
            f"{tuple(expected[key].shape)} in the model"
            for key in wrong
        ],
    )
    lines += [f"  hint: {hint}" for hint in _hints(missing, surplus, wrong)]
    raise CheckpointError("\n".join(lines))


def _listed(title: str, items: list[str]) -> list[str]:
    if not items:
        return []
    rest = [f"    ... and {len(items) - SHOWN} more"] if len(items) > SHOWN else []
    return [
        f"  {title} ({len(items)}):",
        *(f"    {item}" for item in items[:SHOWN]),
        *rest,
    ]


def _hints(missing: list[str], surplus: list[str], wrong: list[str]) -> list[str]:
    hints = []
    if HEAD in missing:
        hints.append(
            "the checkpoint ties its logits to the embedding (T5 v1.0) and the model "
            "does not (v1.1): set logits_via_embedding=True"
        )
    if HEAD in surplus:
        hints.append(
            "the checkpoint has its own logits layer (T5 v1.1) and the model ties "
            "logits to the embedding (v1.0): set logits_via_embedding=False"
        )
    if any("/mlp/wi/" in key for key in missing):
        hints.append(
            "the checkpoint's MLPs are gated (T5 v1.1): set "
            "mlp_activations=('gelu', 'linear')"
        )
    if any("/mlp/wi_0/" in key for key in missing):
        hints.append(
            "the checkpoint's MLPs are not gated (T5 v1.0): set "
            "mlp_activations=('relu',)"
        )
    if wrong and set(wrong) <= {EMBEDDING, HEAD}:
        hints.append(
            "only the vocabulary differs: set vocab_size to the checkpoint's, or pass "
            "resize_vocabulary=True if both have one tokenizer and differ in padding"
        )
    return hints
