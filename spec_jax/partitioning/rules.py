"""Which axis of the mesh an array's axis lies over, by its logical name.

Names, defaults and order are t5x's: google-research/t5x, partitioning.py,
`standard_logical_axis_rules`.
"""

from collections.abc import Sequence

from jax.sharding import PartitionSpec

LogicalAxes = tuple[str | None, ...]
"""The logical names of an array's axes; None is an axis that is never divided."""

LogicalAxisRules = tuple[tuple[str, str | None], ...]
"""(logical axis, mesh axis or None) in order of preference."""

_UNDIVIDED = (
    "relpos_buckets",
    "abspos_buckets",
    "length",
    "layers",
    "stack",
    "mlp_activations",
)


def standard_logical_axis_rules(
    activation_partitioning_dims: int = 1,
    parameter_partitioning_dims: int = 1,
    additional_rules: Sequence[tuple[str, str | None]] = (),
) -> LogicalAxisRules:
    """t5x's rules: rows over 'data', heads, mlp and vocabulary over 'model'.

    Args:
      activation_partitioning_dims: 2 divides activations' 'embed' over 'model' too.
      parameter_partitioning_dims: 2 divides parameters' 'embed' too: over 'data'
        where 'model' is taken.
      additional_rules: come after the others.

    Returns:
      The rules. With one of the two at 2 'embed' falls back to None at last, which
      t5x does without a rule.

    Raises:
      ValueError: if a number is neither 1 nor 2.
    """
    dims = (activation_partitioning_dims, parameter_partitioning_dims)
    if not set(dims) <= {1, 2}:
        raise ValueError(
            "want activation_partitioning_dims and parameter_partitioning_dims of 1 "
            f"or 2, got {dims[0]} and {dims[1]}"
        )
    divided = [
        ("batch", "data"),
        ("vocab", "model"),
        ("mlp", "model"),
        ("heads", "model"),
        ("kv", None),
        ("joined_kv", "model"),
    ]
    embed: dict[tuple[int, int], list[str | None]] = {
        (1, 1): [None],
        (2, 1): ["model", None],
        (1, 2): ["data", None],
        (2, 2): ["model", "data"],
    }
    # Where it is divided 'embed' chooses last: 'mlp' and 'joined_kv' go first.
    at = 2 if dims == (1, 1) else len(divided)
    divided[at:at] = [("embed", axis) for axis in embed[dims]]
    undivided = [(name, None) for name in _UNDIVIDED]
    return (*divided, *undivided, *map(tuple, additional_rules))


def replicated_rules() -> LogicalAxisRules:
    """Rows over 'data', all else whole on every device: for a small draft."""
    names = dict.fromkeys(name for name, _ in standard_logical_axis_rules())
    return tuple((name, "data" if name == "batch" else None) for name in names)


def mesh_axes(
    names: Sequence[str | None], rules: Sequence[tuple[str, str | None]]
) -> PartitionSpec:
    """Which mesh axis each axis of an array lies over.

    An axis of several rules takes the first whose mesh axis is free; axes choose in
    the order of the rules, as in t5x.

    Args:
      names: the array's logical axes.
      rules: see `standard_logical_axis_rules`.

    Returns:
      The specification, an entry for each axis.

    Raises:
      ValueError: if an axis has no rule, or none whose mesh axis is free; t5x would
        leave that one whole on every device without a word.

    Example:
      >>> tuple(mesh_axes(("embed", "mlp"), standard_logical_axis_rules()))
      (None, 'model')
    """
    chosen: list[str | None] = [None] * len(names)
    open_axes = {i for i, name in enumerate(names) if name is not None}
    taken: dict[str, str] = {}
    for logical, physical in rules:
        for i in sorted(open_axes):
            if names[i] == logical and physical not in taken:
                chosen[i] = physical
                open_axes.remove(i)
                if physical is not None:
                    taken[physical] = logical
    for i in sorted(open_axes):
        wanted = [physical for logical, physical in rules if logical == names[i]]
        if not wanted:
            known = ", ".join(dict.fromkeys(logical for logical, _ in rules))
            raise ValueError(f"want a rule for the axis {names[i]!r}, got {known}")
        raise ValueError(
            f"want different mesh axes for the axes of one array {tuple(names)}, got "
            f"{wanted[-1]!r} for both {taken[wanted[-1]]!r} and {names[i]!r}; add a "
            f"rule ({names[i]!r}, None) to keep that axis whole"
        )
    return PartitionSpec(*chosen)
