"""The paper's printed figures, to stand beside measured ones.

Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative
Decoding", 2023, https://arxiv.org/abs/2211.17192. Where a table and a function of
`spec_jax.core.theory` say the same, they differ by the paper's rounding alone.
"""

import dataclasses
import re

ENDE, CNN_DM = "EnDe", "CNN/DM"
"""The paper's tasks: WMT English to German, CNN/DailyMail summaries."""


@dataclasses.dataclass(frozen=True)
class IdealRow:
    """A row of Table 1: what a draft that costs nothing would bring.

    Attributes:
      alpha: expected acceptance.
      gamma: drafted tokens of a step.
      operations: factor of arithmetic operations.
      speed: factor of wall time.
    """

    alpha: float
    gamma: int
    operations: float
    speed: float


@dataclasses.dataclass(frozen=True)
class SpeedRow:
    """A row of Tables 2 and 4: T5 1.1 XXL, batch 1, one TPU v4 chip.

    Attributes:
      task: EnDe or CNN/DM.
      draft: T5 1.1 small, base or large.
      temperature: 0 is argmax.
      gamma: drafted tokens of a step.
      alpha: expected acceptance.
      speed: measured, over t5x's plain decoding.
      c: a draft step's time over the target's.
      expected: speed by theorem 3.8, from unrounded alpha and c: from the printed
        ones it comes out within 0.07.
    """

    task: str
    draft: str
    temperature: float
    gamma: int
    alpha: float
    speed: float
    c: float
    expected: float


@dataclasses.dataclass(frozen=True)
class AlphaRow:
    """A row of Table 3: alpha over 10,000 tokens that the target generated.

    Attributes:
      target: the model, and its task where it has one of the two.
      task: EnDe, CNN/DM, or '' for another.
      draft: unigram, bigram, or the size of a model.
      greedy: alpha at T = 0.
      standard: alpha at T = 1.
    """

    target: str
    task: str
    draft: str
    greedy: float
    standard: float


@dataclasses.dataclass(frozen=True)
class LenienceRow:
    """A row of Table 5: EnDe, alpha as the lenience l falls.

    Attributes:
      draft: unigram, bigram, small or base.
      temperature: 0 is argmax.
      alpha: for each of `LENIENCES`.
      speed: for each of them; None where none was measured.
    """

    draft: str
    temperature: float
    alpha: tuple[float, ...]
    speed: tuple[float, ...] | None = None


@dataclasses.dataclass(frozen=True)
class BestGammas:
    """Figure 3 at one alpha: the best gamma for each of `FIGURE_3_COSTS`."""

    alpha: float
    gammas: tuple[int, ...]


TABLE_1 = (
    IdealRow(0.6, 2, 1.53, 1.96),
    IdealRow(0.7, 3, 1.58, 2.53),
    IdealRow(0.8, 2, 1.23, 2.44),
    IdealRow(0.8, 5, 1.63, 3.69),
    IdealRow(0.9, 2, 1.11, 2.71),
    IdealRow(0.9, 10, 1.60, 6.86),
)

TABLE_2 = (
    SpeedRow(ENDE, "small", 0.0, 7, 0.75, 3.4, 0.02, 3.2),
    SpeedRow(ENDE, "base", 0.0, 7, 0.80, 2.8, 0.04, 3.3),
    SpeedRow(ENDE, "large", 0.0, 7, 0.82, 1.7, 0.11, 2.5),
    SpeedRow(ENDE, "small", 1.0, 7, 0.62, 2.6, 0.02, 2.3),
    SpeedRow(ENDE, "base", 1.0, 5, 0.68, 2.4, 0.04, 2.4),
    SpeedRow(ENDE, "large", 1.0, 3, 0.71, 1.4, 0.11, 2.0),
    SpeedRow(CNN_DM, "small", 0.0, 5, 0.65, 3.1, 0.02, 2.4),
    SpeedRow(CNN_DM, "base", 0.0, 5, 0.73, 3.0, 0.04, 2.6),
    SpeedRow(CNN_DM, "large", 0.0, 3, 0.74, 2.2, 0.11, 2.0),
    SpeedRow(CNN_DM, "small", 1.0, 5, 0.53, 2.3, 0.02, 1.9),
    SpeedRow(CNN_DM, "base", 1.0, 3, 0.55, 2.2, 0.04, 1.8),
    SpeedRow(CNN_DM, "large", 1.0, 3, 0.56, 1.7, 0.11, 1.6),
)

TABLE_3 = (
    AlphaRow("GPT-like 97M", "", "unigram", 0.03, 0.03),
    AlphaRow("GPT-like 97M", "", "bigram", 0.05, 0.05),
    AlphaRow("GPT-like 97M", "", "6M", 0.88, 0.89),
    AlphaRow("T5-XXL EnDe", ENDE, "unigram", 0.08, 0.07),
    AlphaRow("T5-XXL EnDe", ENDE, "bigram", 0.20, 0.19),
    AlphaRow("T5-XXL EnDe", ENDE, "small", 0.75, 0.62),
    AlphaRow("T5-XXL EnDe", ENDE, "base", 0.80, 0.68),
    AlphaRow("T5-XXL EnDe", ENDE, "large", 0.82, 0.71),
    AlphaRow("T5-XXL CNN/DM", CNN_DM, "unigram", 0.13, 0.08),
    AlphaRow("T5-XXL CNN/DM", CNN_DM, "bigram", 0.23, 0.16),
    AlphaRow("T5-XXL CNN/DM", CNN_DM, "small", 0.65, 0.53),
    AlphaRow("T5-XXL CNN/DM", CNN_DM, "base", 0.73, 0.55),
    AlphaRow("T5-XXL CNN/DM", CNN_DM, "large", 0.74, 0.56),
    AlphaRow("LaMDA 137B", "", "100M", 0.61, 0.57),
    AlphaRow("LaMDA 137B", "", "2B", 0.71, 0.71),
    AlphaRow("LaMDA 137B", "", "8B", 0.75, 0.74),
)

LENIENCES = (1.0, 0.5, 0.3, 0.1)
"""The columns of Table 5."""

TABLE_5 = (
    LenienceRow("unigram", 1.0, (0.07, 0.1, 0.11, 0.16)),
    LenienceRow("bigram", 1.0, (0.19, 0.23, 0.25, 0.32)),
    LenienceRow("small", 1.0, (0.62, 0.71, 0.76, 0.84)),
    LenienceRow("base", 1.0, (0.68, 0.8, 0.83, 0.90)),
    # Appendix A.5: gamma 8, c = 0.015.
    LenienceRow("small", 0.0, (0.75, 0.75, 0.8, 0.87), (3.3, 3.3, 3.9, 4.9)),
)

FIGURE_3_COSTS = (0.01, 0.02, 0.05, 0.1)
"""The values of c in Figure 3."""

FIGURE_3 = (
    BestGammas(0.5, (5, 4, 3, 2)),
    BestGammas(0.6, (7, 6, 4, 3)),
    BestGammas(0.7, (9, 8, 6, 4)),
    BestGammas(0.8, (14, 11, 8, 6)),
    BestGammas(0.9, (24, 19, 13, 10)),
)

FIGURE_2_GAMMAS = (1, 3, 5, 7, float("inf"))
"""The curves of Figure 2: tokens per run against alpha."""

FIGURE_4_GAMMAS = (1, 3, 5, 7, 10)
"""The curves of Figure 4: speed and operations against alpha."""

FIGURE_1_RUNS, FIGURE_1_TOKENS = 9, 38
"""Figure 1: one sentence, its runs of the target and its tokens."""

FIGURE_5_GAMMAS = (7, 3)
"""Figure 5: the traces beside plain decoding's."""

BIGRAM_SPEED = 1.25
"""Section 4.2: EnDe with the bigram draft at gamma 3."""

_TASKS = (
    (re.compile(r"(^|_)en_?de(_|$)"), ENDE),
    (re.compile(r"summari[sz]e|cnn_?dm|cnn_dailymail"), CNN_DM),
)


def paper_task(task: str) -> str | None:
    """The paper's task that one of ours stands for, as `ende` for EnDe.

    Args:
      task: a name as records have it, such as `ende`, `wmt14_ende_v003`,
        `wmt_t2t_ende_v003`, `summarize`, `cnn_dailymail_v002`.

    Returns:
      EnDe or CNN/DM; None for any other.

    Example:
      >>> paper_task("wmt_t2t_ende_v003"), paper_task("xsum_v110")
      ('EnDe', None)
    """
    name = task.lower()
    for pattern, found in _TASKS:
        if pattern.search(name):
            return found
    return None


def table2_row(task: str, draft_name: str, temperature: float | int) -> SpeedRow | None:
    """The row of Table 2 with that task, draft and temperature.

    Args:
      task: as `paper_task` takes it.
      draft_name: small, base or large.
      temperature: 0 or 1.

    Returns:
      The row; None where the paper has none.
    """
    wanted = (paper_task(task), draft_name, temperature)
    rows = (r for r in TABLE_2 if (r.task, r.draft, r.temperature) == wanted)
    return next(rows, None)


def table3_alpha(task: str, draft_name: str, temperature: float | int) -> float | None:
    """Alpha of T5-XXL in Table 3.

    Args:
      task: as `paper_task` takes it.
      draft_name: unigram, bigram, small, base or large.
      temperature: 0 or 1.

    Returns:
      The printed figure; None where the paper has none.
    """
    known = paper_task(task)
    for row in TABLE_3:
        if known is not None and (row.task, row.draft) == (known, draft_name):
            return {0: row.greedy, 1: row.standard}.get(temperature)
    return None


def table5_alpha(
    task: str, draft_name: str, temperature: float | int, lenience: float | int
) -> float | None:
    """Alpha under lenience in Table 5, as `table3_alpha` finds its own."""
    return _lenient(task, draft_name, temperature, lenience, "alpha")


def table5_speed(
    task: str, draft_name: str, temperature: float | int, lenience: float | int
) -> float | None:
    """Speed under lenience in appendix A.5, as `table3_alpha` finds its own."""
    return _lenient(task, draft_name, temperature, lenience, "speed")


def _lenient(task, draft_name, temperature, lenience, column) -> float | None:
    for row in TABLE_5:
        if (paper_task(task), draft_name, temperature) == (
            ENDE,
            row.draft,
            row.temperature,
        ) and lenience in LENIENCES:
            values = getattr(row, column)
            return None if values is None else values[LENIENCES.index(lenience)]
    return None
