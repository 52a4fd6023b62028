"""Table 2 as Markdown, the paper's figures beside ours."""

import dataclasses

import pytest

from spec_jax.reports.table2 import HEADERS, SHORT, markdown, rows
from tests.reports.test_tables import RECORD

LARGE = dataclasses.replace(
    RECORD,
    draft_name="large",
    temperature=1.0,
    identical=None,
    differences=(),
    warnings=("busy",),
)
BATCH = dataclasses.replace(LARGE, batch=4)


def cells(record):
    return dict(zip(HEADERS, *rows([record]), strict=True))


def test_the_papers_figures_stand_beside_ours():
    row = cells(LARGE)
    assert row["gamma"] == "4 (3)"
    assert row["alpha"] == "0.654 ± 0.012 (0.71)"
    assert row["c"] == "0.098 (0.11)"
    # The paper's speed is over t5x's decoding, ours over our own.
    assert (row["speed"], row["over t5x"]) == ("1.50", "(1.4)")
    # (1 - .6543^5) / (1 - .6543) / (4 * .098 + 1), by hand.
    assert row["expected"] == "1.83 (2.0)"
    assert row["with verify cost"] == "1.60"
    timed = dataclasses.replace(
        LARGE, baseline={"tokens_per_second": 1.0, "speedup": 2.25, "identical": None}
    )
    assert cells(timed)["over t5x"] == "2.25 (1.4)"


@pytest.mark.parametrize(
    "record", [BATCH, dataclasses.replace(LARGE, draft_name=""), RECORD]
)
def test_other_rows_have_nothing_beside(record):
    """Other batches, drafts without a size."""
    row = cells(record)
    assert not any("(" in cell for cell in row.values())
    assert row["over t5x"] == "-"


def test_the_table_says_what_its_columns_are_and_whose_a_warning_is():
    text = markdown([LARGE, BATCH])
    assert text.count("\n| ende | large | 1 |") == 2
    assert "In brackets: the paper's" in text
    assert "- Warning, ende, large, T = 1: busy" in text
    assert "- Warning, ende, large, T = 1, batch 4: busy" in text
    assert "In brackets" not in markdown([BATCH])
    assert set(SHORT) < set(HEADERS)
    with pytest.raises(ValueError, match="want at least one record"):
        markdown([])
