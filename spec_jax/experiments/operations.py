"""Arithmetic of a compiled program's instructions."""

import re
from collections.abc import Iterator

from spec_jax.experiments.hlo import Computation, Instruction, Module

_ARITHMETIC = frozenset(
    "add subtract multiply divide maximum minimum power tanh exponential log rsqrt "
    "sqrt negate logistic".split()
)


def count_operations(module: Module, computation: Computation, one: Instruction) -> int:
    """Additions, multiplications and the like of one instruction, padding left out.

    Args:
      module: has what a fusion is made of.
      computation: that the instruction is in.
      one: the instruction.
    """
    if one.opcode == "fusion":
        inner = module.computations[one.calls("calls")[0]]
        parts = inner.instructions.values()
        return sum(count_operations(module, inner, part) for part in parts)
    if one.opcode in ("dot", "convolution"):
        return round(2 * one.elements * _contracted(computation, one))
    if one.opcode in ("reduce", "reduce-window"):
        return computation.instructions[one.operands[0]].elements
    return one.elements if one.opcode in _ARITHMETIC else 0


def _contracted(computation: Computation, one: Instruction) -> float:
    """Terms of each sum of a product, on average."""
    left, right = (each.buffers[0] for each in list(computation.operands(one))[:2])
    if one.opcode == "dot":
        axes = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", one.attributes)
        size = 1
        for axis in axes[1].split(",") if axes and axes[1] else ():
            size *= left.dims[int(axis)]
        return size
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.attributes)
    if labels is None:
        return 1
    left_at, right_at, result_at = labels[1], labels[2], labels[3]
    taps = right.dims[right_at.index("i")]
    for axis, window in enumerate(_windows(one.attributes)):
        place = str(axis)
        if place in result_at:
            count = one.buffers[0].dims[result_at.index(place)]
            size = left.dims[left_at.index(place)]
            taps *= _taps(window, size, count) / max(count, 1)
    return taps


def _windows(attributes: str) -> Iterator[dict[str, tuple[int, ...]]]:
    """Of each spatial axis: size, pad, stride and dilations where they are given."""
    match = re.search(r"window=\{([^}]*)\}", attributes)
    fields = dict(field.split("=") for field in match[1].split()) if match else {}
    columns = {name: value.split("x") for name, value in fields.items()}
    for axis in range(len(columns.get("size", ()))):
        yield {
            name: tuple(int(number) for number in values[axis].split("_"))
            for name, values in columns.items()
        }


def _taps(window: dict[str, tuple[int, ...]], size: int, count: int) -> int:
    """Products along an axis that take an element and no padding.

    A batched product is a convolution whose window is mostly beside its input.
    """
    (stride,) = window.get("stride", (1,))
    (spread,), (apart,) = window.get("lhs_dilate", (1,)), window.get("rhs_dilate", (1,))
    before = window.get("pad", (0, 0))[0]
    found = 0
    for tap in range(window["size"][0]):
        # Places at = place * stride + tap * apart - before that hold an element.
        found += sum(
            at % spread == 0 and 0 <= at < (size - 1) * spread + 1
            for at in range(
                tap * apart - before, count * stride + tap * apart - before, stride
            )
        )
    return found
