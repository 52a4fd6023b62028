"""Real decodes as the paper's Figures 1 and 5: what each run gave, and took."""

from collections.abc import Sequence

from spec_jax.experiments.trace import TraceRecord
from spec_jax.reports.axes import SIZE, WIDTH, key, ticks
from spec_jax.reports.drawing import MONO_WIDTH, Box, Drawing, Label, Line
from spec_jax.reports.figures import Picture, slug
from spec_jax.reports.tables import counted

LONGEST_TEXT, MOST_RUNS = 84, 40
"""Letters of a line of Figure 1, and its lines."""
TEXT_STYLES = {
    "accepted": ("s3", False),
    "rejected": ("s2", False),
    "correction": ("s1", True),
    "bonus": ("s1", True),
    "target": ("s1", True),
}
"""Role and weight of a part of a decoded text."""


def figure_1(traces: Sequence[TraceRecord]) -> list[Picture]:
    """Texts as they were decoded, a line for each run of the target."""
    return [_decoded_text(trace) for trace in longest(traces)]


def longest(traces: Sequence[TraceRecord]) -> list[TraceRecord]:
    """Of every text, temperature and draft the trace with the largest gamma."""
    best: dict[tuple, TraceRecord] = {}
    for trace in traces:
        place = (*_text(trace), trace.draft, trace.rule)
        if trace.gamma and trace.gamma > (best[place].gamma if place in best else 0):
            best[place] = trace
    return list(best.values())


def _decoded_text(trace: TraceRecord) -> Picture:
    size, height = 13.0, 21.0
    letter = MONO_WIDTH * size
    shapes: list = []
    y = 24.0
    widest = 0.0
    for number, step in enumerate(trace.steps[:MOST_RUNS], 1):
        shapes.append(Label(34, y, f"{number}", "muted", "end", size - 1))
        shapes.append(Label(46, y, f"+{step.tokens}", "ink", "start", size - 1))
        x = 82.0
        for part in step.parts:
            role, bold = TEXT_STYLES[part.status]
            text = part.text.lstrip(" ") if x == 82.0 else part.text
            text = text[: max(0, LONGEST_TEXT - round((x - 82) / letter))]
            if not text:
                continue
            shapes.append(Label(x, y, text, role, size=size, bold=bold, mono=True))
            ends = (
                x + letter * (len(text) - len(text.lstrip(" "))),
                x + letter * len(text),
            )
            if part.status == "rejected":
                shapes.append(Line(tuple((e, y - 4) for e in ends), role, 1.4))
            elif part.status != "accepted":
                shapes.append(Line(tuple((e, y + 3.5) for e in ends), role, 1.4))
            x += letter * len(text)
        widest = max(widest, x)
        y += height
    if len(trace.steps) > MOST_RUNS:
        more = f"and {len(trace.steps) - MOST_RUNS} runs more"
        shapes.append(Label(82, y, more, "muted", size=size - 1))
        y += height
    y += 8
    x = 46.0
    for status, name in (
        ("accepted", "accepted"),
        ("rejected", "rejected"),
        ("correction", "the target's own token"),
    ):
        role, bold = TEXT_STYLES[status]
        shapes.append(Label(x, y, name, role, size=size - 1, bold=bold, mono=True))
        wide = MONO_WIDTH * (size - 1) * len(name)
        if status != "accepted":
            level = y - 4 if status == "rejected" else y + 3.5
            shapes.append(Line(((x, level), (x + wide, level)), role, 1.4))
        x += wide + 20
    widest = max(widest, x)
    title = in_runs(trace)
    drawing = Drawing(widest + 16, y + 14, tuple(shapes), f"{title}: {trace.output}")
    return Picture(
        f"figure1-{slug(trace.task)}-{trace.number}-T{trace.temperature:g}",
        title,
        trace.source,
        drawing,
        title,
    )


def figure_5(traces: Sequence[TraceRecord]) -> list[Picture]:
    """Where the time of a decode goes, a bar for each gamma."""
    groups: dict[tuple, dict[int, TraceRecord]] = {}
    plain: dict[tuple, TraceRecord] = {}
    for trace in traces:  # the newest of each comes last
        if trace.gamma:
            place = (*_text(trace), trace.draft, trace.rule)
            groups.setdefault(place, {})[trace.gamma] = trace
        else:
            plain[_text(trace)] = trace
    found = []
    for (*text, _, _), group in groups.items():
        beside = plain.get(tuple(text))
        found.append([*group.values(), *([beside] if beside else [])])
    drafted = {tuple(text) for *text, _, _ in groups}
    found += [[trace] for text, trace in plain.items() if text not in drafted]
    return [_trace_bars(group) for group in found]


def _text(trace: TraceRecord) -> tuple:
    """What traces of one picture share: the text, and with what it was decoded."""
    jax = trace.versions.get("jax", "?")
    machine = trace.pair, trace.device, trace.cpu_threads, jax
    return trace.task, trace.source, trace.temperature, trace.number, *machine


def in_runs(trace: TraceRecord) -> str:
    """How many tokens came in how many runs."""
    tokens, runs = counted(trace.tokens, "token"), counted(trace.runs, "run")
    return f"{tokens} in {runs} of the target"


def _trace_bars(group: Sequence[TraceRecord]) -> Picture:
    order = sorted(group, key=lambda trace: (trace.gamma == 0, -trace.gamma))
    spans = [_spans(trace) for trace in order]
    longest = 1000 * max(sum(seconds for _, seconds in row) for row in spans) or 1.0
    frame_top, row_height, left = 16, 46, 66
    width = WIDTH - left - 12
    shapes: list = []
    bottom = frame_top + row_height * len(order)
    for value in ticks(0, longest, 6):
        x = left + value / longest * width
        shapes.append(Line(((x, frame_top - 6), (x, bottom)), "grid", 1))
        shapes.append(Label(x, bottom + 15, f"{value:g}", "muted", "middle", SIZE - 1))
    shapes.append(Label(left + width / 2, bottom + 33, "milliseconds", "ink", "middle"))
    roles = {"encoder": "s5", "draft": "s2", "target": "s1"}
    for i, (trace, row) in enumerate(zip(order, spans, strict=True)):
        top = frame_top + i * row_height + 6
        name = f"γ = {trace.gamma}" if trace.gamma else "plain"
        shapes.append(Label(left - 8, top + 13, name, "ink", "end", SIZE, bold=True))
        runs = counted(trace.runs, "run")
        shapes.append(Label(left - 8, top + 27, runs, "muted", "end", SIZE - 2))
        at = 0.0
        for kind, seconds in row:
            start, wide = left + 1000 * at / longest * width, 1000 * seconds / longest
            wide *= width
            # The draft's calls are low, so that they differ in shape too.
            high, below = (14, 7) if kind == "draft" else (28, 0)
            gap = min(0.8, wide / 4)
            shapes.append(
                Box(
                    start,
                    top + below,
                    max(wide - gap, 0.3),
                    high,
                    roles[kind],
                    tip=f"{kind}: {1000 * seconds:.2f} ms",
                )
            )
            at += seconds
    legend = [
        ({"kind": "box", "role": roles[k]}, name)
        for k, name in (
            ("encoder", "encoder, caches"),
            ("draft", "draft (low)"),
            ("target", "target"),
        )
    ]
    shapes += key(legend, left, bottom + 56, WIDTH - 6)
    first = order[0]
    times = ", ".join(
        f"{'plain' if not t.gamma else f'γ = {t.gamma}'} {1000 * t.seconds:.1f} ms"
        for t in order
    )
    caption = (
        f"{first.task}, T = {first.temperature:g}, draft {first.draft}, "
        f"{first.device}. Each part's length is its measured time, in the "
        f"order of the decode. Whole calls: {times}."
    )
    drawing = Drawing(WIDTH, bottom + 72, tuple(shapes), "Where the time goes")
    name = f"figure5-{slug(first.task)}-{first.number}-T{first.temperature:g}"
    return Picture(name, f"Text {first.number}", caption, drawing)


def _spans(trace: TraceRecord) -> list[tuple[str, float]]:
    """(what, seconds) in the order of a decode."""
    times = trace.times
    spans = [("encoder", times.target_start + times.draft_start)]
    step = [("draft", times.draft_call)] * trace.gamma
    spans += [*step, ("target", times.target_call)] * len(trace.steps)
    return spans
