"""alpha by draft, temperature and lenience as Markdown, beside the paper's."""

from collections.abc import Sequence

from spec_jax.core import paper
from spec_jax.experiments.alpha_record import AlphaRecord
from spec_jax.experiments.record import Record
from spec_jax.reports.tables import filters, markdown_table


def markdown(records: Sequence[AlphaRecord]) -> str:
    """Table 3: a row for each task and draft, columns by temperature.

    Raises:
      ValueError: if there is no record.
    """
    _check(records)
    temperatures = sorted({record.temperature for record in records})
    with_paper = [
        t
        for t in temperatures
        if any(paper.table3_alpha(r.task, r.draft_name, t) is not None for r in records)
    ]
    headers = ["task", "draft"]
    for t in temperatures:
        headers += [f"T = {t:g}", *(["paper"] if t in with_paper else [])]
    by_cell = {record.cell: record for record in records}
    rows = []
    for task, draft in dict.fromkeys((r.task, r.draft_name) for r in records):
        row = [task, draft]
        for t in temperatures:
            row.append(_measured(by_cell.get((task, draft, t, 1.0))))
            if t in with_paper:
                row.append(_printed(paper.table3_alpha(task, draft, t)))
        rows.append(row)
    return markdown_table(headers, rows, notes(records))


def lenience_markdown(
    records: Sequence[AlphaRecord], speeds: Sequence[tuple[str, Record]] = ()
) -> str:
    """Table 5: a row for each task, temperature and draft, columns by lenience.

    Args:
      records: of several leniences.
      speeds: names of drafts, and decodes with them at temperature 0 under the rule of
        each l; there may be none.

    Raises:
      ValueError: if there is no record.
    """
    _check(records)
    leniences = sorted({record.lenience for record in records}, reverse=True)
    by_cell = {record.cell: record for record in records}
    headers = ["task", "T", "draft", *(f"l = {one:g}" for one in leniences)]
    rows = []
    for task, t, draft in dict.fromkeys(
        (r.task, r.temperature, r.draft_name) for r in records
    ):
        row = [task, f"{t:g}", draft]
        for one in leniences:
            cell = _measured(by_cell.get((task, draft, t, one)))
            printed = paper.table5_alpha(task, draft, t, one)
            row.append(cell + _beside(printed))
        rows.append(row)
    text = markdown_table(headers, rows, [PAPER_BESIDE, RULE, *notes(records)])
    if not speeds:
        return text
    return f"{text}\n{_speeds(speeds)}"


PAPER_BESIDE = "- In brackets: the paper's, with T5-XXL."
RULE = (
    "- For l below 1 the output does not follow the target: above T = 0 no token is "
    "more probable than p / l, at T = 0 drafted tokens stand where p(x) >= l max p."
)


def notes(records: Sequence[AlphaRecord]) -> list[str]:
    """On what, with what and how the records were measured, as a list."""
    found = {}
    for task, t in dict.fromkeys((r.task, r.temperature) for r in records):
        chosen = [r for r in records if (r.task, r.temperature) == (task, t)]
        for tokens, texts in dict.fromkeys((r.tokens, r.num_examples) for r in chosen):
            found[
                f"- {task}, T = {t:g}: {tokens:,} tokens that the target generated for "
                f"{texts:,} texts; ± is a standard error over texts."
            ] = None
    names: dict[str, list[str]] = {}
    for record in records:
        names.setdefault(_method(record), []).append(record.pair)
    for method, pairs in names.items():
        found[f"- {', '.join(dict.fromkeys(pairs))} {method}."] = None
    return list(found)


def _method(record: AlphaRecord) -> str:
    """With what and how it was measured."""
    threads = f" (threads: {record.cpu_threads})" if record.cpu_threads else ""
    packages = ", ".join(f"{name} {v}" for name, v in record.versions.items())
    parts = [
        f"in {record.dtype} on {record.device}{threads}",
        *([filters(record.policy)] if filters(record.policy) else []),
        packages,
        record.date[:10],
    ]
    return "; ".join(parts)


def _speeds(speeds: Sequence[tuple[str, Record]]) -> str:
    """Speeds over plain decoding: a row for each task and draft."""
    by_cell = {(r.task, name, r.lenience or 1.0): r for name, r in speeds}
    leniences = sorted({lenience for _, _, lenience in by_cell}, reverse=True)
    headers = ["task", "draft", *(f"l = {one:g}" for one in leniences)]
    rows = []
    for task, draft in dict.fromkeys((r.task, name) for name, r in speeds):
        row = [task, draft]
        for one in leniences:
            record = by_cell.get((task, draft, one))
            cell = "" if record is None else f"{record.speedup:.2f}"
            row.append(cell + _beside(paper.table5_speed(task, draft, 0.0, one)))
        rows.append(row)
    gammas = ", ".join(map(str, sorted({r.gamma for _, r in speeds})))
    said = f"Speed at T = 0 over plain decoding, gamma {gammas}; the paper's: gamma 8."
    return f"{said}\n\n" + markdown_table(headers, rows, [])


def _check(records: Sequence[AlphaRecord]) -> None:
    if not records:
        raise ValueError("want at least one line of alpha, got none")


def _measured(record: AlphaRecord | None) -> str:
    if record is None:
        return ""
    error = record.alpha_stderr
    return f"{record.alpha:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _printed(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _beside(value: float | None) -> str:
    return "" if value is None else f" ({value:g})"
