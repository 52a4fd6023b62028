"""Records as the paper's Table 2, its figures beside ours."""

from collections.abc import Sequence

from spec_jax.core import paper, theory
from spec_jax.core.paper import SpeedRow
from spec_jax.experiments.record import Record
from spec_jax.reports import tables
from spec_jax.reports.alpha import PAPER_BESIDE
from spec_jax.reports.tables import identical, markdown_table, score

HEADERS = (
    "task",
    "draft",
    "T",
    "batch",
    "gamma",
    "alpha",
    "c",
    "verify cost",
    "tokens/run",
    "speed",
    "over t5x",
    "expected",
    "with verify cost",
    "identical",
    "score plain",
    "score spec",
)
SHORT = (
    "task",
    "draft",
    "T",
    "batch",
    "gamma",
    "alpha",
    "c",
    "tokens/run",
    "speed",
    "with verify cost",
    "identical",
)
"""Of `HEADERS`, where there is little room."""
COLUMNS = (
    "- Speed: over our plain decoding. Expected: theorem 3.8 with alpha, gamma and c; "
    "beside it with the measured cost of verification, which the paper takes as 1. "
    "± is a standard error over texts."
)
OVER_T5X = "The paper's speed is over t5x's decoding, and stands beside `over t5x`."


def rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """The cells under `HEADERS`, a row for each record.

    The paper's figures stand in brackets where it has the row, batch 1 alone.
    """
    return [_row(record) for record in records]


def markdown(records: Sequence[Record]) -> str:
    """A Markdown table and all that must be said with it.

    Raises:
      ValueError: if there is no record.
    """
    return markdown_table(HEADERS, rows(records), notes(records))


def notes(records: Sequence[Record]) -> list[str]:
    """What the columns are, machine and method, differences and warnings."""
    said = [COLUMNS]
    if any(map(paper_row, records)):
        said.append(f"{PAPER_BESIDE} {OVER_T5X}")
    return [*said, *tables.notes(records)]


def paper_row(record: Record) -> SpeedRow | None:
    """The paper's row of a record; None where it has none."""
    if record.batch != 1:
        return None
    return paper.table2_row(
        record.task, record.draft_name or record.draft, record.temperature
    )


def expected(record: Record) -> float:
    """The speed of theorem 3.8, verification taken as one plain step."""
    # Sums of probabilities may round to more than 1.
    return theory.speedup(min(record.alpha, 1.0), record.gamma, record.c)


def _row(record: Record) -> tuple[str, ...]:
    row = paper_row(record)
    error = record.alpha_stderr
    alpha = f"{record.alpha:.3f}" + ("" if error is None else f" ± {error:.3f}")
    t5x = record.baseline
    over = "" if t5x is None else f"{t5x['speedup']:.2f}"
    return (
        record.task,
        record.draft_name or record.draft,
        f"{record.temperature:g}",
        str(record.batch),
        f"{record.gamma}" + _beside(row, "gamma", "d"),
        alpha + _beside(row, "alpha", ".2f"),
        f"{record.c:.3f}" + _beside(row, "c", ".2f"),
        f"{record.verify_cost:.2f}",
        f"{record.tokens_per_run:.2f}",
        f"{record.speedup:.2f}",
        (over + _beside(row, "speed", ".1f")).strip() or "-",
        f"{expected(record):.2f}" + _beside(row, "expected", ".1f"),
        f"{record.speedup_formula:.2f}",
        identical(record),
        score(record.metrics["plain"]),
        score(record.metrics["speculative"]),
    )


def _beside(row: SpeedRow | None, name: str, form: str) -> str:
    return "" if row is None else f" ({getattr(row, name):{form}})"
