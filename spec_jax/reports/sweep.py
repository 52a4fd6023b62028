"""Records of a sweep as Markdown tables."""

from collections.abc import Sequence

from spec_jax.experiments.rules import BlockGain, BranchGain
from spec_jax.experiments.sweep import SweepRecord
from spec_jax.reports.tables import bound, markdown_line

HEADERS = (
    "draft",
    "rule",
    "lengths",
    "alpha",
    "c",
    "verify",
    "drafted/run",
    "tokens/run",
    "speed",
    "modelled",
    "oracle",
    "gap",
)


def markdown(
    records: Sequence[SweepRecord],
    blocks: Sequence[BlockGain] = (),
    branches: Sequence[BranchGain] = (),
) -> str:
    """A table for each task and temperature, the fastest first, and what holds for all.

    Raises:
      ValueError: if there is no record.
    """
    if not records:
        raise ValueError("want at least one record of a sweep, got none")
    lines = []
    for task, temperature in dict.fromkeys((r.task, r.temperature) for r in records):
        chosen = [r for r in records if (r.task, r.temperature) == (task, temperature)]
        chosen.sort(key=lambda record: -record.speedup)
        lines += [f"## {task}, T = {temperature:g}", "", *_table(HEADERS, chosen, _row)]
        lines.append("")
        for lenience in {r.lenience for r in chosen if not r.lossless}:
            lines += [
                "The lenient rule's output does not follow the target: "
                f"{bound(temperature, lenience)}.",
                "",
            ]
    lines += ["Other rules are lossless; at T = 0 they are one.", ""]
    lines += [_method(records), ""]
    if blocks:
        headers = ("task", "T", "gamma", "token rule", "block rule", "gain", "steps")
        lines += ["## Expected tokens of a step on the same drafts", ""]
        lines += [*_table(headers, blocks, _block_row), ""]
    if branches:
        headers = (
            "task", "T", "branches", "first accepted", "tokens/run", "cost", "speed",
            "positions",
        )  # fmt: skip
        lines += ["## Several first tokens without replacement", ""]
        lines += [*_table(headers, branches, _branch_row), ""]
    return "\n".join(lines)


def _table(headers, records, row) -> list[str]:
    rules = ["---"] * len(headers)
    return [markdown_line(x) for x in (headers, rules, *map(row, records))]


def _row(record: SweepRecord) -> tuple[str, ...]:
    error = "" if record.alpha_stderr is None else f" ± {record.alpha_stderr:.3f}"
    return (
        record.draft,
        record.rule,
        record.lengths,
        f"{record.alpha:.3f}{error}",
        f"{record.c:.3f}",
        f"{record.verify_cost:.2f}",
        f"{record.drafted_per_run:.2f}",
        f"{record.tokens_per_run:.2f}",
        f"{record.speedup:.2f}",
        f"{record.modelled:.2f}",
        f"{record.oracle:.2f}",
        f"{record.oracle / record.modelled - 1:.0%}",
    )


def _block_row(gain: BlockGain) -> tuple[str, ...]:
    return (
        gain.task,
        f"{gain.temperature:g}",
        f"{gain.gamma}",
        f"{gain.token:.3f}",
        f"{gain.block:.3f}",
        f"{gain.gain - 1:.1%} ± {gain.stderr / gain.token:.1%}",
        f"{gain.steps}",
    )


def _branch_row(gain: BranchGain) -> tuple[str, ...]:
    return (
        gain.task,
        f"{gain.temperature:g}",
        f"{gain.branches}",
        f"{gain.first:.3f}",
        f"{gain.tokens:.2f}",
        f"{gain.cost:.2f}",
        f"{gain.speed:.2f}",
        f"{gain.steps}",
    )


def _method(records: Sequence[SweepRecord]) -> str:
    """On what and how they were measured, for all that differ."""
    said = dict.fromkeys(
        f"{r.num_examples} texts of {r.task}, batch 1, medians of {r.repeats} "
        f"repeats; {r.device}"
        + (f", threads: {r.cpu_threads}" if r.cpu_threads else "")
        + f"; speculative in {r.dtype}, plain in {r.plain_dtype}; "
        + ", ".join(f"{name} {version}" for name, version in r.versions.items())
        + "."
        for r in records
    )
    return " ".join(said)
