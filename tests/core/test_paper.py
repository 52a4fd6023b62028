"""The paper's figures are found under our tasks' names, and nothing else is."""

import pytest

from spec_jax.core import paper


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("ende", "EnDe"),
        ("wmt14_ende_v003", "EnDe"),
        ("wmt_t2t_ende_v003", "EnDe"),
        ("wmt19_ende", "EnDe"),
        ("summarize", "CNN/DM"),
        ("cnn_dailymail_v002", "CNN/DM"),
        ("xsum_v110", None),
        ("lm1b", None),
        ("wmt14_enfr_v003", None),
        ("legende", None),
        ("calendar.jsonl", None),
    ],
)
def test_tasks(task, expected):
    assert paper.paper_task(task) == expected


def test_rows():
    row = paper.table2_row("wmt14_ende_v003", "large", 1.0)
    assert (row.gamma, row.speed, row.c, row.expected) == (3, 1.4, 0.11, 2.0)
    assert paper.table2_row("summarize", "small", 0.0).speed == 3.1
    assert paper.table2_row("ende", "small", 0.5) is None
    assert paper.table2_row("ende", "bigram", 0.0) is None
    assert paper.table2_row("xsum", "small", 0.0) is None


def test_alphas():
    assert paper.table3_alpha("summarize", "bigram", 1.0) == 0.16
    assert paper.table3_alpha("ende", "bigram", 0) == 0.20
    assert paper.table3_alpha("ende", "lookup", 0) is None
    assert paper.table3_alpha("ende", "small", 0.3) is None
    # Other targets of Table 3 belong to no task of ours.
    assert paper.table3_alpha("lm1b", "bigram", 0) is None
    for row in paper.TABLE_2:  # the two tables print the same alpha
        assert paper.table3_alpha(
            {"EnDe": "ende", "CNN/DM": "summarize"}[row.task],
            row.draft,
            row.temperature,
        ) == pytest.approx(row.alpha)


def test_lenience():
    assert paper.table5_alpha("ende", "base", 1.0, 0.5) == 0.8
    assert paper.table5_alpha("ende", "small", 0.0, 0.1) == 0.87
    assert paper.table5_speed("ende", "small", 0.0, 0.1) == 4.9
    assert paper.table5_speed("ende", "small", 1.0, 0.1) is None
    assert paper.table5_alpha("ende", "base", 1.0, 0.7) is None
    assert paper.table5_alpha("summarize", "base", 1.0, 0.5) is None
