"""Tables of compiled programs: what they move, and the speeds that follow from it."""

import dataclasses
from collections.abc import Iterable, Sequence

from spec_jax.core.paper import TABLE_2, SpeedRow
from spec_jax.core.theory import speedup
from spec_jax.experiments.chips import GIB
from spec_jax.experiments.tpu_compile import CompileRecord
from spec_jax.reports.tables import markdown_table


def markdown(records: Sequence[CompileRecord]) -> str:
    """Programs, what they move by kind, collectives, costs and expected speeds."""
    parts = [programs(records), moved(records), transfers(records), costs(records)]
    return "\n".join(part for part in parts if part)


def programs(records: Sequence[CompileRecord]) -> str:
    """A row a program: memory, bytes against the fewest, time at the chip's peak."""
    headers = (
        "pair",
        "program",
        "HBM used",
        "of",
        "MB moved",
        "fewest",
        "excess",
        "Gop",
        "ms at peak",
        "ms likely",
        "copied",
        "put back",
    )
    rows = [
        (
            one.pair,
            one.program,
            f"{one.hbm_used / GIB:.2f} GiB",
            f"{one.hbm_chip / GIB:.0f} GiB",
            f"{one.bytes / 1e6:.1f}",
            f"{one.fewest_bytes / 1e6:.1f}",
            f"{one.excess:+.1%}",
            f"{one.operations / 1e9:.2f}",
            f"{one.peak_seconds * 1e3:.3f}",
            f"{1e3 * one.likely_seconds:.3f}" if one.likely_seconds else "",
            str(len(one.copied)),
            str(len(one.copies) - len(one.copied)),
        )
        for one in records
    ]
    return markdown_table(headers, rows, ())


def moved(records: Sequence[CompileRecord]) -> str:
    """MB a step by what is moved."""
    kinds = list(dict.fromkeys(kind for one in records for kind in one.moved))
    rows = [
        (
            one.pair,
            one.program,
            *(f"{one.moved.get(kind, 0) / 1e6:.1f}" for kind in kinds),
        )
        for one in records
    ]
    return markdown_table(("pair", "program", *kinds), rows, ())


def transfers(records: Sequence[CompileRecord]) -> str:
    """Transfers between chips by kind and shape; '' where there are none."""
    rows = []
    for one in records:
        counts: dict[tuple[str, str, int], int] = {}
        for each in one.collectives:
            key = each["kind"], each["shape"], each["bytes"]
            counts[key] = counts.get(key, 0) + each["times"]
        rows += [
            (one.pair, one.program, kind, shape, f"{size:,}", str(count))
            for (kind, shape, size), count in sorted(counts.items())
        ]
    headers = ("pair", "program", "transfer", "shape", "bytes", "a step")
    return markdown_table(headers, rows, ()) if rows else ""


@dataclasses.dataclass(frozen=True)
class Prediction:
    """A row of the paper's Table 2 from costs of compiled programs.

    Attributes:
      row: the paper's.
      chips: their kind, how many share the target, and rows if they are several.
      by: peak, or likely: see `step_costs`.
      c: of a draft step.
      verify: the rest of a speculative step, in plain steps.
    """

    row: SpeedRow
    chips: str
    by: str
    c: float
    verify: float

    @property
    def speed(self) -> float:
        """By theorem 3.8 with the paper's alpha and this cost of verification."""
        return speedup(self.row.alpha, self.row.gamma, self.c, self.verify)


def predictions(records: Sequence[CompileRecord]) -> list[Prediction]:
    """Of pairs whose steps are all there, by chips and pair, in Table 2's order.

    A row takes the steps of its temperature, or where those are not there of another.
    """
    groups: dict[tuple, dict[float, list[CompileRecord]]] = {}
    for one in records:
        place = one.topology, one.num_partitions, one.pair, one.batch
        by_temperature = groups.setdefault(place, {})
        by_temperature.setdefault(one.temperature, []).append(one)
    found = []
    for (topology, chips, pair, rows), by_temperature in groups.items():
        draft = pair.rpartition("+")[2]
        name = topology.partition(":")[0] + ("" if chips == 1 else f", {chips} chips")
        name += "" if rows == 1 else f", {rows} rows"
        for by in ("peak", "likely"):
            known: dict[float, tuple[float, float]] = {}
            for temperature, own in by_temperature.items():
                measured = step_costs(own, by == "likely")
                if measured is not None:
                    known[temperature] = measured
            for row in TABLE_2 if known else ():
                if row.draft == draft:
                    other = next(iter(known.values()))
                    pair_costs = known.get(row.temperature, other)
                    found.append(Prediction(row, name, by, *pair_costs))
    return found


def costs(records: Sequence[CompileRecord]) -> str:
    """c, verification and Table 2's speeds, beside the paper's; '' if a step lacks."""
    headers = (
        "task",
        "draft",
        "T",
        "gamma",
        "alpha",
        "by",
        "c",
        "paper's c",
        "verify",
        "speed",
        "paper expects",
        "paper measured",
    )
    rows = [
        (
            one.row.task,
            one.row.draft,
            f"{one.row.temperature:g}",
            str(one.row.gamma),
            f"{one.row.alpha:.2f}",
            one.by,
            f"{one.c:.4f}",
            f"{one.row.c:.2f}",
            f"{one.verify:.3f}",
            f"{one.speed:.1f}",
            f"{one.row.expected:.1f}",
            f"{one.row.speed:.1f}",
        )
        for one in predictions(records)
    ]
    return markdown_table(headers, rows, ()) if rows else ""


def step_costs(
    records: Iterable[CompileRecord], likely: bool = False
) -> tuple[float, float] | None:
    """c and what a verification costs, in plain steps.

    Args:
      records: of one pair.
      likely: by the compiler's cycles too, instead of the chip's peak alone.

    Returns:
      None where one of the three steps or the chip's clock is not known.
    """
    records = tuple(records)
    seconds = {
        one.program: one.likely_seconds if likely else one.peak_seconds
        for one in records
    }
    gammas = {one.gamma for one in records if one.program == "speculative"}
    steps = [seconds.get(name) for name in ("plain", "draft", "speculative")]
    if not all(steps) or len(gammas) != 1:
        return None
    plain, draft, step = steps
    return draft / plain, (step - gammas.pop() * draft) / plain
