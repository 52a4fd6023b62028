"""What a compiled program moves to and from the device's main memory.

XLA's own "bytes accessed" counts copies within the chip too, and the body of a loop
once. Here the optimized program is walked as it is scheduled, and of each
instruction the operands and results that lie in main memory are counted:

- An operand is read once, whole; of one that is only sliced, the slice. What was
  fetched ahead into the chip's memory was counted when it was fetched.
- A result is written once. Of an update in place the slice is written, and where
  it ends within a tile, the tile is read before.
- Slices are rounded up to whole tiles of the array's layout, arrays likewise.
- The body of a loop counts as often as it runs, of branches the costliest does.

An instruction that reads an operand more than once, because it does not fit the
chip, is counted as if it did not: at a few rows a step no product does.
"""

import dataclasses
import re
from collections.abc import Sequence

from spec_jax.experiments.hlo import Buffer, Computation, Instruction, Module
from spec_jax.experiments.operations import count_operations
from spec_jax.experiments.origins import (
    UPDATES,
    Sources,
    carried,
    result_at,
    short_shape,
    sources_of_entry,
)

_FREE = frozenset(
    "parameter constant tuple get-tuple-element bitcast after-all partition-id "
    "replica-id domain opt-barrier add-dependency".split()
)
_FREE_CALLS = ("ConcatBitcast", "AllocateBuffer", "Sharding", "SliceBitcast")
_COLLECTIVES = re.compile(
    r"^(all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|"
    r"collective-broadcast|ragged-all-to-all)(-start)?$"
)
_SLICES = ("slice", "dynamic-slice", "gather")
_PRODUCTS = ("dot", "convolution")


@dataclasses.dataclass(frozen=True)
class Access:
    """Main memory that one instruction reads or writes.

    Attributes:
      instruction: its name.
      opcode: its kind.
      source: the program's argument that the array is, '' for an intermediate one.
      buffer: the array.
      read: bytes, each time.
      written: bytes, each time.
      times: how often the instruction runs.
    """

    instruction: str
    opcode: str
    source: str
    buffer: Buffer
    read: int
    written: int
    times: int

    @property
    def bytes(self) -> int:
        """Read and written, all times."""
        return (self.read + self.written) * self.times


@dataclasses.dataclass(frozen=True)
class Collective:
    """A transfer between chips: its kind, bytes of a chip's result, and how often."""

    kind: str
    shape: str
    bytes: int
    times: int


@dataclasses.dataclass(frozen=True)
class Copy:
    """An argument of the program that an instruction writes out again, whole.

    Attributes:
      instruction: its name.
      source: the argument.
      bytes: written each time.
      times: how often.
      put_back: whether it comes from the chip's own memory, where it was fetched
        once and perhaps updated: that costs the writing, and no second reading.
    """

    instruction: str
    source: str
    bytes: int
    times: int
    put_back: bool


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Of a whole program.

    Attributes:
      accesses: to main memory.
      copies: of arguments.
      collectives: between chips.
      operations: additions, multiplications and the like.
      cycles: of the chip, as the compiler estimates each instruction, one after
        another; what it takes to start one is among them.
    """

    accesses: tuple[Access, ...]
    copies: tuple[Copy, ...]
    collectives: tuple[Collective, ...]
    operations: int
    cycles: int

    @property
    def read(self) -> int:
        """Bytes."""
        return sum(one.read * one.times for one in self.accesses)

    @property
    def written(self) -> int:
        """Bytes."""
        return sum(one.written * one.times for one in self.accesses)

    @property
    def bytes(self) -> int:
        """Read and written."""
        return self.read + self.written

    def by_source(self) -> dict[str, int]:
        """Bytes of each argument of the program, and of all intermediate arrays."""
        found: dict[str, int] = {}
        for one in self.accesses:
            found[one.source] = found.get(one.source, 0) + one.bytes
        return found


def count_traffic(
    module: Module,
    loops: Sequence[int] = (1,),
    inside: bool = False,
    copy_bytes: int = 2**16,
) -> Traffic:
    """Counts what a program moves.

    Args:
      module: the optimized program.
      loops: how often the body of a loop runs whose count the program does not say:
        of one that is in no other, of one within one, and so on.
      inside: whether only that is counted which is in such a loop, whose carried
        arrays are sources too. Copies are noticed before and after it as well.
      copy_bytes: a smaller argument may be copied unnoticed.
    """
    counter = _Counter(module, tuple(loops), inside, copy_bytes)
    counter.walk(module.entry, 1, sources_of_entry(module.entry))
    return Traffic(
        tuple(counter.accesses),
        tuple(counter.copies),
        tuple(counter.collectives),
        counter.operations,
        counter.cycles,
    )


class _Counter:
    """Walks computations; what it finds is in its lists."""

    def __init__(
        self,
        module: Module,
        loops: tuple[int, ...],
        inside: bool,
        copy_bytes: int,
    ):
        self.module, self.loops = module, loops
        self.inside, self.copy_bytes = inside, copy_bytes
        self.accesses: list[Access] = []
        self.copies: list[Copy] = []
        self.collectives: list[Collective] = []
        self.operations = self.cycles = 0
        self.is_counting, self.depth = not inside, 0

    def walk(self, computation: Computation, times: int, sources: dict) -> None:
        """Counts the instructions of a computation that runs so often.

        `sources` says which arguments of the program its parameters are: for each
        the source of each array in it.
        """
        known = Sources(self.module, computation, sources)
        for one in computation.instructions.values():
            if one.opcode in _FREE or one.opcode.endswith(("-done", "-update")):
                continue
            if one.opcode == "while":
                self._loop(one, times, {0: known.of(one.operands[0])})
            elif one.opcode == "conditional":
                self._branches(one, times, known)
            elif one.opcode == "call" or one.opcode == "async-start":
                names = one.calls("to_apply", "calls", "called_computations")
                given = {i: known.of(name) for i, name in enumerate(one.operands)}
                for name in names:
                    self.walk(self.module.computations[name], times, given)
            else:
                self._count(computation, one, times, known)

    def _loop(self, one: Instruction, times: int, given: dict) -> None:
        runs, before = _trip_count(one), (self.is_counting, self.depth)
        if runs is None:
            if self.inside and not self.depth:
                given = {0: carried(one, given[0])}
            runs = self.loops[min(self.depth, len(self.loops) - 1)]
            self.is_counting, self.depth = True, self.depth + 1
        for name in one.calls("body", "condition"):
            self.walk(self.module.computations[name], times * runs, given)
        self.is_counting, self.depth = before

    def _branches(self, one: Instruction, times: int, known: "Sources") -> None:
        names = one.calls(
            "branch_computations", "true_computation", "false_computation"
        )
        tried = []
        for i, name in enumerate(names):
            branch = _Counter(self.module, self.loops, self.inside, self.copy_bytes)
            branch.is_counting, branch.depth = self.is_counting, self.depth
            given = {0: known.of(one.operands[i + 1])}
            branch.walk(self.module.computations[name], times, given)
            tried.append(branch)
        worst = max(tried, key=lambda b: sum(one.bytes for one in b.accesses))
        self.accesses += worst.accesses
        self.copies += worst.copies
        self.collectives += worst.collectives
        self.operations += worst.operations
        self.cycles += worst.cycles

    def _count(
        self, computation: Computation, one: Instruction, times: int, known: "Sources"
    ) -> None:
        if one.opcode == "custom-call" and any(
            f'custom_call_target="{name}"' in one.attributes for name in _FREE_CALLS
        ):
            return
        results, fused = _results(one), self._fused(one)
        if self.is_counting:
            self.operations += times * count_operations(self.module, computation, one)
            self.cycles += times * _cycles(one)
            collective = _COLLECTIVES.match(one.opcode)
            if collective:
                size = sum(_bytes(buffer) for buffer in results)
                shape = ", ".join(short_shape(buffer) for buffer in results)
                self.collectives.append(Collective(collective[1], shape, size, times))
            self._count_reads(computation, one, times, known, fused)
        for at, buffer in enumerate(results):
            if buffer.space:
                continue
            size, is_update = self._written(one, computation, fused, at, buffer)
            if not is_update and not self._is_product(one, fused, at):
                self._notice_copy(one, computation, buffer, times, known)
            if self.is_counting:
                source = ""
                if is_update:
                    source = known.updated(one, at) if fused else known.of(one.name)[at]
                self.accesses.append(
                    Access(one.name, one.opcode, source, buffer, 0, size, times)
                )

    def _count_reads(self, computation, one, times, known, fused) -> None:
        read_of: dict[str, int] = {}
        for i, name in enumerate(one.operands):
            operand = computation.instructions[name]
            if len(operand.buffers) != 1 or operand.buffers[0].space:
                continue
            buffer = operand.buffers[0]
            if fused:
                size = _read(self.module, fused, fused.parameters[i], buffer)
            else:
                size = _operand_read(one, i, computation, buffer)
            read_of[name] = max(read_of.get(name, 0), size)
        for name, size in read_of.items():
            if size:
                buffer = computation.instructions[name].buffers[0]
                source = known.of(name)[0]
                self.accesses.append(
                    Access(one.name, one.opcode, source, buffer, size, 0, times)
                )

    def _fused(self, one: Instruction) -> Computation | None:
        if one.opcode != "fusion":
            return None
        return self.module.computations[one.calls("calls")[0]]

    def _written(self, one, computation, fused, at, buffer) -> tuple[int, bool]:
        """Bytes of a result, and whether it is an update in place."""
        place, root = (fused, fused.root) if fused else (computation, one)
        place, root = result_at(self.module, place, root, at)
        if root.opcode not in UPDATES:
            return buffer.bytes, False
        update = _update_of(place, root)
        return min(_part(buffer, update.buffers[0]), buffer.bytes), True

    def _is_product(self, one, fused, at) -> bool:
        """Whether a matrix product is among what a result is made of."""
        if fused is None:
            return one.opcode in _PRODUCTS
        root = fused.root
        made = fused.instructions[root.operands[at]] if root.opcode == "tuple" else root
        return _is_product(self.module, fused, made)

    def _notice_copy(self, one, computation, buffer, times, known) -> None:
        """Whether a result is a whole argument again, moved, cast or selected from."""
        for name in one.operands:
            operand = computation.instructions[name]
            if len(operand.buffers) != 1:
                continue
            source = known.of(name)[0]
            array = operand.buffers[0]
            large = array.elements * array.itemsize >= self.copy_bytes
            if source and large and buffer.elements >= array.elements:
                self.copies.append(
                    Copy(one.name, source, buffer.bytes, times, array.space != 0)
                )
                return


def _is_product(module: Module, fused: Computation, made: Instruction) -> bool:
    """Whether a matrix product is among what a value of a fusion is made of."""
    waiting, seen = [made], {made.name}
    while waiting:
        one = waiting.pop()
        if one.opcode in _PRODUCTS:
            return True
        if one.opcode == "fusion":
            inner = module.computations[one.calls("calls")[0]]
            if _is_product(module, inner, inner.root):
                return True
        new = [name for name in one.operands if name not in seen]
        seen.update(new)
        waiting += [fused.instructions[name] for name in new]
    return False


def _results(one: Instruction) -> tuple[Buffer, ...]:
    """The arrays that an instruction writes; those of a start are its destination."""
    if one.opcode == "copy-start":
        return one.buffers[:1]
    if one.opcode.endswith("-start"):
        # Operands come first in the tuple, then results, then the context.
        count = len(one.operands)
        return one.buffers[count : count + 1]
    return one.buffers


def _part(whole: Buffer, part: Buffer) -> int:
    """Bytes of a slice, in whole tiles of the array that it lies in."""
    if len(part.dims) == len(whole.dims):
        return whole.bytes_of(part.dims)
    return min(part.bytes, whole.bytes)


def _operand_read(
    one: Instruction, i: int, computation: Computation, buffer: Buffer
) -> int:
    """Bytes that an instruction outside of fusions reads of an operand."""
    if i == 0 and (one.opcode in _SLICES or one.opcode == "slice-start"):
        return min(_part(buffer, _results(one)[0]), buffer.bytes)
    if i == 0 and one.opcode in UPDATES:
        update = _update_of(computation, one)
        return _torn(buffer, update.buffers[0])
    return buffer.bytes


def _update_of(computation: Computation, one: Instruction) -> Instruction:
    """What an update writes into its first operand."""
    return computation.instructions[one.operands[1 if one.opcode[0] == "d" else 2]]


def _torn(whole: Buffer, part: Buffer) -> int:
    """What an update reads first: its tiles, where it does not fill them."""
    size = _part(whole, part)
    return 0 if size <= part.elements * part.itemsize else min(size, whole.bytes)


def _read(
    module: Module, computation: Computation, value: Instruction, buffer: Buffer
) -> int:
    """Bytes that a fusion reads of the array that `value` stands for."""
    total = 0
    for user in computation.users[value.name]:
        for i, name in enumerate(user.operands):
            if name == value.name:
                total += _read_by(module, computation, user, i, buffer)
    if value.is_root:
        total += buffer.bytes
    return min(total, buffer.bytes)


def _read_by(module, computation, user, i, buffer) -> int:
    if user.opcode == "fusion":
        inner = module.computations[user.calls("calls")[0]]
        return _read(module, inner, inner.parameters[i], buffer)
    if user.opcode in _SLICES:
        return _part(buffer, user.buffers[0]) if i == 0 else buffer.bytes
    if user.opcode in UPDATES and i == 0:
        update = _update_of(computation, user)
        return _torn(buffer, update.buffers[0])
    passes = user.opcode in ("bitcast", "reshape", "convert", "copy", "transpose")
    if passes and user.elements == buffer.elements:
        if user.is_root:
            return buffer.bytes
        renamed = dataclasses.replace(user.buffers[0], dtype=buffer.dtype)
        size = _read(module, computation, user, renamed)
        return min(size, buffer.bytes) if size < renamed.bytes else buffer.bytes
    return buffer.bytes


def _cycles(one: Instruction) -> int:
    match = re.search(r'estimated_cycles":"(\d+)"', one.attributes)
    return int(match[1]) if match else 0


def _trip_count(one: Instruction) -> int | None:
    match = re.search(r'known_trip_count":\{"n":"(\d+)"', one.attributes)
    return int(match[1]) if match else None


def _bytes(buffer: Buffer) -> int:
    """Of an array, padding not counted."""
    return int(buffer.elements * buffer.itemsize)
