"""XLA's optimized programs as text, parsed: computations, instructions, buffers.

The form is that of `compiled.as_text()`. Nothing here knows a device.
"""

import dataclasses
import functools
import math
import re
from collections.abc import Iterator

_BITS = {"pred": 8, "s4": 4, "u4": 4, "bf16": 16, "c64": 64, "c128": 128}
_NAME = re.compile(r"%([\w.\-]+)")
_COMMENT = re.compile(r"/\*.*?\*/")
_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,<=]*)\](?:\{([^}]*)\})?")
_OPCODE = re.compile(r"\s*([\w\-]+)\(")
_TILE = re.compile(r"\(([\d,*]+)\)")


@dataclasses.dataclass(frozen=True)
class Buffer:
    """An array with its place in memory.

    Attributes:
      dtype: XLA's name of the elements' type.
      dims: sizes of the axes.
      minor_to_major: the axes from the one whose elements are neighbours on.
      tiles: of the layout, from the coarsest on; each over the most minor axes.
      space: 0 is the main memory of the device (HBM on a TPU); the others are on
        the chip itself, or the host's.
    """

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = 0

    @property
    def elements(self) -> int:
        """How many there are, padding not counted."""
        return math.prod(self.dims)

    @property
    def itemsize(self) -> float:
        """Bytes of an element."""
        bits = _BITS.get(self.dtype)
        if bits is None:
            digits = re.search(r"\d+", self.dtype)
            bits = int(digits[0]) if digits else 0
        return bits / 8

    @property
    def bytes(self) -> int:
        """What it takes in memory, the padding of its tiles counted."""
        return self.bytes_of(self.dims)

    def bytes_of(self, dims: tuple[int, ...]) -> int:
        """Of a part of it with these sizes, rounded up to whole tiles."""
        order = self.minor_to_major or tuple(reversed(range(len(dims))))
        sizes = [dims[axis] for axis in reversed(order)]  # major to minor
        for tile in self.tiles[:1]:
            sizes = [1] * (len(tile) - len(sizes)) + sizes
            for at, size in enumerate(reversed(tile), start=1):
                sizes[-at] = -(-sizes[-at] // size) * size
        return math.ceil(math.prod(sizes) * self.itemsize)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation.

    Attributes:
      name: without the percent sign.
      opcode: as XLA writes it.
      shape: of the result, as text.
      operands: names of instructions of the same computation.
      attributes: what follows the operands.
      is_root: whether it is the computation's result.
      literal: what stands in the parentheses of a parameter or constant.
    """

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    attributes: str
    is_root: bool = False
    literal: str = ""

    @functools.cached_property
    def buffers(self) -> tuple[Buffer, ...]:
        """The result's arrays, those of tuples in order."""
        return tuple(parse_buffers(self.shape))

    @property
    def elements(self) -> int:
        """Of the first array."""
        return self.buffers[0].elements if self.buffers else 0

    def calls(self, *attributes: str) -> tuple[str, ...]:
        """Names of the computations in an attribute, such as `body`."""
        found = []
        for name in attributes:
            match = re.search(rf"\b{name}=(\{{[^}}]*\}}|%[\w.\-]+)", self.attributes)
            found += _NAME.findall(match[1]) if match else []
        return tuple(found)

    def number(self, attribute: str) -> int | None:
        """A whole number among the attributes, as `index=2`."""
        match = re.search(rf"\b{attribute}=(\d+)", self.attributes)
        return int(match[1]) if match else None

    @property
    def op_name(self) -> str:
        """What JAX calls it: an argument's path, or the operation's scope."""
        match = re.search(r'op_name="((?:[^"\\]|\\.)*)"', self.attributes)
        return match[1].replace("\\'", "'") if match else self.name


@dataclasses.dataclass(frozen=True)
class Computation:
    """Instructions by name, in the order of the schedule."""

    name: str
    instructions: dict[str, Instruction]

    @functools.cached_property
    def root(self) -> Instruction:
        """The result."""
        return next(one for one in self.instructions.values() if one.is_root)

    @functools.cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        """By number."""
        found = [one for one in self.instructions.values() if one.opcode == "parameter"]
        return tuple(sorted(found, key=lambda one: int(one.literal)))

    @functools.cached_property
    def users(self) -> dict[str, list[Instruction]]:
        """Of each instruction's result."""
        users: dict[str, list[Instruction]] = {name: [] for name in self.instructions}
        for one in self.instructions.values():
            for operand in dict.fromkeys(one.operands):
                users[operand].append(one)
        return users

    def operands(self, instruction: Instruction) -> Iterator[Instruction]:
        """The instructions whose results it takes."""
        for name in instruction.operands:
            yield self.instructions[name]


@dataclasses.dataclass(frozen=True)
class Module:
    """A program."""

    computations: dict[str, Computation]
    entry: Computation


def parse_module(text: str) -> Module:
    """Reads the text of an optimized program.

    Raises:
      ValueError: if it has no entry computation.
    """
    computations, entry, current, name = {}, None, None, ""
    for line in text.splitlines():
        if current is None:
            header = _HEADER.match(line)
            if header:
                current, name = {}, header[2]
                entry = name if header[1] else entry
        elif line.startswith("}"):
            computations[name] = Computation(name, current)
            current = None
        else:
            instruction = _parse_instruction(line)
            if instruction is not None:
                current[instruction.name] = instruction
    if entry is None:
        raise ValueError(
            "want the text of a compiled program, got one without an ENTRY: "
            "compiled.as_text() gives it"
        )
    return Module(computations, computations[entry])


def parse_buffers(shape: str) -> Iterator[Buffer]:
    """The arrays of a shape, as `(bf16[8,128]{1,0:T(8,128)(2,1)S(1)}, u32[])`."""
    for dtype, dims, layout in _ARRAY.findall(_COMMENT.sub("", shape)):
        order, _, rest = layout.partition(":")
        tiles, spaces = (
            re.search(r"T((?:\([\d,*]+\))+)", rest),
            re.search(r"S\((\d+)\)", rest),
        )
        yield Buffer(
            dtype,
            tuple(int(size.lstrip("<=")) for size in dims.split(",") if size),
            tuple(int(axis) for axis in order.split(",") if axis.strip().isdigit()),
            tuple(
                tuple(int(size) for size in tile.replace("*", "1").split(","))
                for tile in _TILE.findall(tiles[1])
            )
            if tiles
            else (),
            int(spaces[1]) if spaces else 0,
        )


def _parse_instruction(line: str) -> Instruction | None:
    match = _INSTRUCTION.match(line)
    if match is None:
        return None
    is_root, name, rest = bool(match[1]), match[2], match[3]
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    shape, rest = rest[:end], rest[end:]
    opcode = _OPCODE.match(rest)
    if opcode is None:
        return None
    opened = opcode.end() - 1
    closed = _closing(rest, opened)
    inside, attributes = rest[opened + 1 : closed], rest[closed + 1 :]
    literal = inside if opcode[1] in ("parameter", "constant") else ""
    operands = () if literal else tuple(_NAME.findall(_COMMENT.sub("", inside)))
    return Instruction(name, opcode[1], shape, operands, attributes, is_root, literal)


def _closing(text: str, opened: int) -> int:
    """Where the parenthesis that opens there is closed."""
    depth = 0
    for at in range(opened, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return len(text)
