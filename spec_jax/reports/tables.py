"""Records as a table like the paper's Table 2."""

from collections.abc import Mapping, Sequence

from spec_jax.core.sampling import GREEDY_TEMPERATURE
from spec_jax.experiments.record import Record

HEADERS = (
    "task",
    "draft",
    "T",
    "gamma",
    "alpha",
    "c",
    "verify cost",
    "tokens/run",
    "tok/s plain",
    "tok/s spec",
    "speed",
    "formula",
    "identical",
    "score plain",
    "score spec",
)


def rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """The cells under `HEADERS`, a row for each record."""
    return [_row(record) for record in records]


def markdown(records: Sequence[Record]) -> str:
    """A Markdown table, how it was measured, and all that must be said with it.

    Raises:
      ValueError: if there is no record.
    """
    return markdown_table(HEADERS, rows(records), notes(records))


def markdown_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]
) -> str:
    """Rows under headers, and notes below.

    Raises:
      ValueError: if there is no row.
    """
    if not rows:
        raise ValueError("want at least one record, got none")
    lines = [markdown_line(headers), markdown_line(["---"] * len(headers))]
    lines += map(markdown_line, rows)
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def notes(records: Sequence[Record]) -> list[str]:
    """Machine and method of the records, differences and warnings, as a list."""
    found = dict.fromkeys(f"- {method(record)}" for record in records)
    for record, run in zip(records, run_names(records), strict=True):
        for at in record.differences:
            found[
                f"- {run}: example {at.example} differs at token {at.position} "
                f"({at.plain} plain, {at.speculative} speculative), where the top two "
                f"logits are {at.gap:.1e} apart"
            ] = None
        if not record.lossless:
            found[
                f"- {run}: the rule is lenient, the output does not follow the target; "
                + bound(record.temperature, record.lenience)
            ] = None
        if (t5x := record.baseline) is not None:
            same = t5x["identical"]
            share = "" if same is None else f", {same:.0%} of its outputs are ours"
            found[
                f"- {run}: t5x's own sampling gives {t5x['tokens_per_second']:.0f} "
                f"tok/s in {record.plain_dtype}; speculative decoding is "
                f"{t5x['speedup']:.2f} times as fast{share}"
            ] = None
        for warning in record.warnings:
            found[f"- Warning, {run}: {warning}"] = None
    return list(found)


def run_names(records: Sequence[Record]) -> list[str]:
    """What tells records from one another in notes, as `ende, T = 0, gamma 4`."""
    names = [_name(record) for record in records]
    for tell in (
        lambda r: f"gamma {r.gamma}",
        lambda r: f"batch {r.batch}",
        lambda r: f"{r.rule} rule",
        lambda r: f"lenience {r.lenience:g}" if r.lenience else "",
    ):
        said: dict[str, set[str]] = {}
        for name, record in zip(names, records, strict=True):
            said.setdefault(name, set()).add(tell(record))
        names = [
            f"{name}, {tell(record)}" if len(said[name]) > 1 else name
            for name, record in zip(names, records, strict=True)
        ]
    return names


def _name(record: Record) -> str:
    """What tells a record from the others of a run."""
    named = [record.draft_name] if record.draft_name else []
    batch = [f"batch {record.batch}"] if named and record.batch > 1 else []
    return ", ".join([record.task, *named, f"T = {record.temperature:g}", *batch])


def method(record: Record) -> str:
    """One sentence: on what and how a record was measured."""
    threads = record.cpu_threads
    packages = ", ".join(f"{name} {v}" for name, v in record.versions.items())
    parts = [
        f"pair {record.pair} on {record.device}"
        + (f" ({threads} thread{'s' if threads != 1 else ''})" if threads else ""),
        f"speculative in {record.dtype}, plain in {record.plain_dtype}",
        f"{record.rule} rule",
        *([] if record.lengths == "fixed" else [f"lengths {record.lengths}"]),
        f"batch {record.batch}",
        *([filters(record.policy)] if filters(record.policy) else []),
        f"{record.num_examples} examples",
        f"medians of {record.repeats} repeats"
        if record.repeats > 1
        else "one timed call of each way",
        packages,
        record.date[:10],
    ]
    return "; ".join(parts) + "."


OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Values of a policy that say nothing."""


def filters(policy: Mapping[str, float]) -> str:
    """What a policy filters by, as `top_k 40`; '' where it takes all."""
    return ", ".join(f"{k} {v:g}" for k, v in policy.items() if v != OFF.get(k))


def _row(record: Record) -> tuple[str, ...]:
    return (
        record.task,
        record.draft,
        f"{record.temperature:g}",
        str(record.gamma),
        f"{record.alpha:.3f}"
        + (f" ± {record.alpha_stderr:.3f}" if record.alpha_stderr is not None else ""),
        f"{record.c:.3f}",
        f"{record.verify_cost:.2f}",
        f"{record.tokens_per_run:.2f}",
        f"{record.tokens_per_second_plain:.0f}",
        f"{record.tokens_per_second_speculative:.0f}",
        f"{record.speedup:.2f}",
        f"{record.speedup_formula:.2f}",
        identical(record),
        score(record.metrics["plain"]),
        score(record.metrics["speculative"]),
    )


def identical(record: Record) -> str:
    """Rows equal to plain decoding, of how many; '-' where draws decide."""
    if record.identical is None:
        return "-"
    return f"{round(record.identical * record.num_examples)}/{record.num_examples}"


def score(scores: dict[str, float | str]) -> str:
    """'BLEU 31.0', the three ROUGE figures, or a metric of the task's own."""
    if "bleu" in scores:
        chrf = f", chrF {scores['chrf']:.1f}" if "chrf" in scores else ""
        return f"BLEU {scores['bleu']:.1f}{chrf}"
    kinds = ("rouge1", "rouge2", "rougeLsum")
    if all(kind in scores for kind in kinds):
        return "ROUGE " + "/".join(f"{scores[kind]:.1f}" for kind in kinds)
    figures = [(k, v) for k, v in scores.items() if not isinstance(v, str)]
    return " ".join(f"{name} {value:.3g}" for name, value in figures[:1]) or "-"


def bound(temperature: float, lenience: float) -> str:
    """What still holds of a lenient output."""
    if temperature <= GREEDY_TEMPERATURE:
        return f"drafted tokens stand where p(x) >= {lenience:g} max p at T = 1"
    return f"no token is more probable than p / {lenience:g}"


def counted(count: int, thing: str) -> str:
    """1 run, 2 runs."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def markdown_line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"
