"""Which argument of a program each of its arrays is, however often it is renamed."""

from spec_jax.experiments.hlo import Buffer, Computation, Instruction, Module

_ALIASES = frozenset("get-tuple-element bitcast opt-barrier add-dependency".split())
UPDATES = ("dynamic-update-slice", "scatter")


class Sources:
    """Which argument of the program each array of a computation is."""

    def __init__(self, module: Module, computation: Computation, given: dict):
        self._module, self._computation, self._given = module, computation, given
        self._found: dict[str, tuple[str, ...]] = {}

    def of(self, name: str) -> tuple[str, ...]:
        """For each array of an instruction's result; '' for one that is none."""
        if name not in self._found:
            self._found[name] = self._trace(self._computation.instructions[name])
        return self._found[name]

    def _trace(self, one: Instruction) -> tuple[str, ...]:
        nothing = ("",) * max(len(one.buffers), 1)
        if one.opcode == "parameter":
            found = self._given.get(int(one.literal), nothing)
            return found if len(found) == len(nothing) else nothing
        if one.opcode == "tuple":
            return tuple(source for name in one.operands for source in self.of(name))
        if one.opcode == "get-tuple-element":
            whole = self._computation.instructions[one.operands[0]]
            before = _leaves_before(whole, one.number("index") or 0)
            found = self.of(whole.name)
            return found[before : before + len(nothing)]
        if one.opcode == "while":
            return self.of(one.operands[0])
        if one.opcode in ("copy-start", "slice-start"):
            return self.of(one.operands[0])[:1] * len(nothing)
        follows = one.opcode in _ALIASES or one.opcode in UPDATES
        if follows or one.opcode in ("copy", "copy-done", "slice-done"):
            return self.of(one.operands[0])[:1] * len(nothing)
        if one.opcode == "custom-call" and "ConcatBitcast" in one.attributes:
            return self.of(one.operands[0])[:1]
        if one.opcode == "fusion":
            return tuple(
                self.updated(one, at) or self._remade(one, buffer)
                for at, buffer in enumerate(one.buffers)
            )
        return nothing

    def _remade(self, one: Instruction, result: Buffer) -> str:
        """The argument that a result on the chip is a changed whole of; else ''.

        So a select over a cache that is fetched, changed and put back is noticed.
        """
        for name in one.operands:
            operand = self._computation.instructions[name]
            array = operand.buffers[0] if len(operand.buffers) == 1 else None
            if (
                result.space
                and array
                and array.dims == result.dims
                and self.of(name)[0]
            ):
                return self.of(name)[0]
        return ""

    def updated(self, one: Instruction, at: int) -> str:
        """The argument that a fusion's result is, by an update in place; else ''."""
        fused = self._module.computations[one.calls("calls")[0]]
        place, root = result_at(self._module, fused, fused.root, at)
        if place is not fused or root.opcode not in UPDATES:
            return ""
        target = _behind(place, place.instructions[root.operands[0]])
        if target.opcode != "parameter":
            return ""
        return self.of(one.operands[int(target.literal)])[0]


def sources_of_entry(entry: Computation) -> dict:
    """The names of the program's arguments, for its computation's parameters."""
    return {
        int(one.literal): (one.op_name,) * len(one.buffers) for one in entry.parameters
    }


def carried(loop: Instruction, sources: tuple[str, ...]) -> tuple[str, ...]:
    """The sources of what a loop carries, with names for arrays that have none."""
    return tuple(
        source or f"carried[{i}] {short_shape(buffer)}"
        for i, (source, buffer) in enumerate(zip(sources, loop.buffers, strict=True))
    )


def _leaves_before(whole: Instruction, index: int) -> int:
    """Arrays of a tuple before its element of that number."""
    depth, element, count = 0, 0, 0
    for sign in whole.shape:
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(sign, 0)
        if sign == "," and depth == 1:
            element += 1
        if sign == "[" and element < index:
            count += 1
    return count


def _behind(computation: Computation, one: Instruction) -> Instruction:
    """The instruction whose array it is, by another name."""
    while one.opcode in _ALIASES or one.opcode in ("copy", "convert", "reshape"):
        one = computation.instructions[one.operands[0]]
    return one


def result_at(
    module: Module, computation: Computation, root: Instruction, at: int
) -> tuple[Computation, Instruction]:
    """The instruction, through nested fusions, that makes one array of a result."""
    while True:
        if root.opcode == "tuple":
            root = computation.instructions[root.operands[at]]
            at = 0
        elif root.opcode == "bitcast":
            root = computation.instructions[root.operands[0]]
        elif root.opcode == "get-tuple-element":
            at = root.number("index") or 0
            root = computation.instructions[root.operands[0]]
        elif root.opcode == "fusion":
            computation = module.computations[root.calls("calls")[0]]
            root = computation.root
        else:
            return computation, root


def short_shape(buffer: Buffer) -> str:
    """As bf16[8,128]."""
    return f"{buffer.dtype}[{','.join(map(str, buffer.dims))}]"
