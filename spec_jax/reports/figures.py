"""The paper's Figures 2 to 4: theory as lines, measured points on them."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from spec_jax.core import paper, theory
from spec_jax.reports.axes import Chart, beside, chart, round_up
from spec_jax.reports.drawing import (
    MARKERS,
    SERIES,
    Drawing,
    Label,
    Line,
    headed,
)
from spec_jax.reports.results import Results, draft_name, rows
from spec_jax.reports.tables import filters

ALPHAS = tuple(np.linspace(0, 1, 101).tolist())
DASHES = ((), (8, 3), (4, 3), (1.5, 3))


@dataclasses.dataclass(frozen=True)
class Picture:
    """A drawing with what is said of it.

    Attributes:
      name: of its files.
      heading: above it.
      caption: below it.
      drawing: itself.
      title: in a file of its own; '' takes the drawing's.
    """

    name: str
    heading: str
    caption: str
    drawing: Drawing
    title: str = ""

    @property
    def alone(self) -> Drawing:
        """The drawing as a file of its own, with its title in it."""
        return headed(self.drawing, self.title or self.drawing.title)


@dataclasses.dataclass(frozen=True)
class Point:
    """What a picture needs of a measurement.

    Attributes:
      task: of the texts.
      draft: as tables call it.
      temperature: of both.
      gamma: drafted tokens of a step.
      batch: rows.
      alpha: measured.
      alpha_stderr: of it.
      c: of a draft step.
      verify_cost: of the rest of a step.
      tokens_per_run: measured.
      speed: over plain decoding.
      rule: of verification.
      place: pair, device, jax and filters; speeds of two of them are not compared.
    """

    task: str
    draft: str
    temperature: float
    gamma: int
    batch: int
    alpha: float
    alpha_stderr: float | None
    c: float
    verify_cost: float
    tokens_per_run: float
    speed: float
    rule: str
    place: tuple[str, str, str, str]

    @property
    def tip(self) -> str:
        """The point in words."""
        filtered = f"{self.place[-1]}, " if self.place[-1] else ""
        return (
            f"{self.task}, {self.draft}, T = {self.temperature:g}, "
            f"{filtered}gamma {self.gamma}, batch {self.batch}: "
            f"alpha {self.alpha:.3f}, c {self.c:.3f}, "
            f"verification {self.verify_cost:.2f}, {self.tokens_per_run:.2f} tokens a "
            f"run, {self.speed:.2f} times plain decoding"
        )


def points(results: Results) -> list[Point]:
    """Of each draft, temperature, filters, gamma, batch and rule the newest one."""
    found: dict[tuple, Point] = {}
    for point in points_by_place(results):
        key = (*dataclasses.astuple(point)[:5], point.rule, point.place[-1])
        found.setdefault(key, point)
    return list(found.values())


def points_by_place(results: Results) -> list[Point]:
    """Lossless measurements with a fixed gamma, the newest first.

    Those of `evaluate` go before those of `sweep`.
    """
    found: dict[tuple, Point] = {}
    every: list = [row.record for row in rows(results.records)]
    every.sort(key=lambda record: record.date, reverse=True)
    every += results.sweeps
    for line in every:
        if not line.lossless or line.lengths != "fixed" or line.rule == "coupled":
            continue
        point = Point(
            line.task,
            draft_name(line),
            line.temperature,
            line.gamma,
            getattr(line, "batch", 1),
            min(line.alpha, 1.0),  # a sum of probabilities may round to more
            line.alpha_stderr,
            line.c,
            line.verify_cost,
            line.tokens_per_run,
            line.speedup,
            line.rule,
            (
                getattr(line, "pair", ""),
                line.device,
                line.versions.get("jax", ""),
                filters(getattr(line, "policy", {})),
            ),
        )
        key = (*dataclasses.astuple(point)[:5], point.rule, point.place)
        found.setdefault(key, point)
    return list(found.values())


class Styles:
    """A colour and a marker for each draft, the same in all pictures.

    Args:
      names: of the drafts, in the order in which they came.
    """

    ORDER = ("small", "base", "large", "model", "bigram", "unigram", "lookup", "chain")

    def __init__(self, names: Sequence[str]):
        known = [name for name in self.ORDER if name in names]
        every = known + [n for n in dict.fromkeys(names) if n not in known]
        self._places = {name: i % len(SERIES) for i, name in enumerate(every)}

    def __call__(self, draft: str, filled: bool = True) -> dict:
        """Options of a marker."""
        i = self._places[draft]
        return {"shape": MARKERS[i], "role": SERIES[i], "filled": filled}

    def role(self, draft: str) -> str:
        """Its colour alone."""
        return SERIES[self._places[draft]]

    def legend(self, drafts: Sequence[str], temperatures: Sequence[float] = ()) -> list:
        """Entries for those that a picture has."""
        entries = [(self(d), d) for d in self._places if d in drafts]
        if len(set(temperatures)) > 1:
            plain = {"shape": "circle", "role": "muted"}
            entries.append(({**plain, "filled": True}, "T = 0"))
            entries.append(({**plain, "filled": False}, "T > 0"))
        return entries


def styles(results: Results) -> Styles:
    """For every draft of some results."""
    lines = (*results.records, *results.sweeps, *results.alphas, *results.choices)
    names = [draft_name(line) for line in lines]
    return Styles(names + [one.pair.rpartition("+")[2] for one in results.compiled])


def tasks(lines: Sequence) -> list[str]:
    """Their tasks, each once, in order."""
    return sorted({line.task for line in lines})


def figure_2(results: Results, style: Styles) -> list[Picture]:
    """Tokens per run against alpha, a picture for each task."""
    found = []
    measured = points(results)
    for task in tasks(measured):
        chosen = [p for p in measured if p.task == task and p.batch == 1]
        if not chosen:
            continue
        top = math.ceil(max([8, *(p.tokens_per_run for p in chosen)]))
        frame = chart(
            (0, 1),
            (1, top),
            "alpha",
            "tokens a run",
            f"Tokens a run, {task}",
            y_ticks=range(1, top + 1, 1 + top // 12),
            height=360,
            right=34,
        )
        shapes = _gamma_curves(frame, paper.FIGURE_2_GAMMAS, chosen)
        shapes += _measured(frame, [(p, p.tokens_per_run) for p in chosen], style)
        caption = (
            "Lines: equation 1 of the paper, (1 − α^(γ+1)) / (1 − α), for independent "
            "acceptances. Points: measured tokens a run, with alpha's standard error; "
            "the small number is gamma. A point on its line accepts as theory says."
        )
        found.append(
            _picture(
                f"figure2-{slug(task)}",
                _heading(task, chosen),
                caption,
                frame,
                shapes,
                style,
                chosen,
            )
        )
    return found


def figure_3(results: Results, style: Styles) -> list[Picture]:
    """The best gamma against alpha."""
    measured = points(results)
    every = tasks([*measured, *results.choices])
    found = []
    for task in every:
        best = [*_best_gammas(task, measured, results)]
        top = 4 * math.ceil(max([20, *(gamma for _, gamma, *_ in best)]) / 4)
        frame = chart(
            (0, 1),
            (0, top),
            "alpha",
            "best gamma",
            f"Best gamma, {task}",
            y_ticks=range(0, top + 1, 4 * math.ceil(top / 24)),
        )
        shapes: list = []
        for c, dash in zip(paper.FIGURE_3_COSTS, DASHES, strict=True):
            steps = [(a, theory.optimal_gamma(a, c, max_gamma=40)) for a in ALPHAS[:-1]]
            stairs = [
                at
                for (a, g), (b, _) in itertools.pairwise(steps)
                for at in ((a, g), (b, g))
            ]
            shapes.append(frame.curve(stairs, "muted", dash=dash))
        drafts, temperatures = [], []
        for alpha, gamma, filled, line, tip in best:
            name = line.draft if isinstance(line, Point) else draft_name(line)
            drafts.append(name)
            temperatures.append(line.temperature)
            shapes.append(frame.point(alpha, gamma, tip=tip, **style(name, filled)))
        legend = [
            ({"kind": "line", "role": "muted", "dash": dash}, f"c = {c:g}")
            for c, dash in zip(paper.FIGURE_3_COSTS, DASHES, strict=True)
        ]
        caption = (
            "Lines: the gamma of the largest speed by theorem 3.8, for four costs c of "
            "a draft step. Points: filled where several gammas were measured, the "
            "fastest of them; open, what measured alpha, c and cost of verification "
            "give by the theorem."
        )
        legend += style.legend(drafts)
        found.append(
            Picture(
                f"figure3-{slug(task)}",
                f"{task}",
                caption,
                frame.drawing(shapes, legend),
            )
        )
    return found


def _best_gammas(task, measured: Sequence[Point], results: Results):
    """(alpha, gamma, several were measured, line, tip) of a task, batch 1."""
    groups: dict[tuple, list[Point]] = {}
    for p in measured:
        if p.task == task and p.batch == 1:
            place = p.draft, p.temperature, p.place[-1]
            groups.setdefault(place, []).append(p)
    chosen = {
        (draft_name(c), c.temperature, filters(c.policy)): c
        for c in results.choices
        if c.task == task and c.batch == 1
    }
    for place, group in groups.items():
        several = len({p.gamma for p in group}) > 2
        best = max(group, key=lambda p: p.speed)
        if several:
            yield best.alpha, best.gamma, True, best, f"fastest measured: {best.tip}"
        elif place not in chosen:
            p = best
            gamma = theory.optimal_gamma(p.alpha, p.c, p.verify_cost)
            tip = f"gamma {gamma} by theorem 3.8 for {p.tip}"
            yield p.alpha, gamma, False, p, tip
    for line in chosen.values():
        tip = (
            f"gamma {line.gamma} chosen for {draft_name(line)}, "
            f"T = {line.temperature:g}, alpha {line.alpha:.3f}, c {line.c:.3f}"
        )
        yield line.alpha, line.gamma, False, line, tip


def figure_4(results: Results, style: Styles) -> list[Picture]:
    """Speed and operations against alpha."""
    found = []
    measured = points(results)
    for task in tasks(measured):
        chosen = [p for p in measured if p.task == task and p.batch == 1]
        if not chosen:
            continue
        top = max(6.0, round_up(max(p.speed for p in chosen)))
        frame = chart(
            (0, 1),
            (0, top),
            "alpha",
            "times plain decoding",
            f"Speed, {task}",
            y_ticks=range(int(top) + 1),
            height=360,
            right=34,
        )
        shapes = _gamma_curves(frame, paper.FIGURE_4_GAMMAS, chosen)
        for gamma in paper.FIGURE_4_GAMMAS:
            work = [(a, theory.operations(a, gamma, 0.0)) for a in ALPHAS]
            shapes.append(frame.curve(work, "muted", dash=(1.5, 3)))
        for p in chosen:
            bound = min(theory.expected_tokens(p.alpha, p.gamma), top)
            ends = tuple((frame.x(p.alpha), frame.y(y)) for y in (p.speed, bound))
            shapes.append(Line(ends, style.role(p.draft), 1, (2, 2)))
        shapes += _measured(frame, [(p, p.speed) for p in chosen], style)
        caption = (
            "Solid: speed by theorem 3.8 for a draft that costs nothing. Dotted: "
            "arithmetic operations over plain decoding's, theorem 3.11, in the same "
            "order. Points: measured speed; the thin line above each is what drafting, "
            "verification and starting take from it."
        )
        found.append(
            _picture(
                f"figure4-{slug(task)}",
                _heading(task, chosen),
                caption,
                frame,
                shapes,
                style,
                chosen,
            )
        )
    return found


def _gamma_curves(frame: Chart, gammas, chosen: Sequence[Point]) -> list:
    """Equation 1 for the paper's gammas and thin lines for other measured ones."""
    shapes: list = []
    others = sorted({p.gamma for p in chosen} - set(gammas))
    leftmost = max(gammas)
    for gamma in [*others, *gammas]:
        role, width = ("muted", 1.3) if gamma in gammas else ("ink", 1.3)
        curve = [
            (alpha, theory.expected_tokens(alpha, gamma))
            for alpha in ALPHAS
            if gamma < float("inf") or alpha < 1
        ]
        line = frame.curve(curve, role, width=width)
        shapes.append(line)
        x, y = line.points[-1]
        name = "γ ∞" if gamma == float("inf") else f"γ {gamma}"
        if y > frame.y.end + 4:  # it ends at the right
            shapes.append(Label(x + 5, y + 4, name, "muted", size=11))
        elif gamma in gammas:
            anchor, away = ("end", -4) if gamma == leftmost else ("start", 3)
            shapes.append(Label(x + away, y + 11, name, "muted", anchor, 11))
    return shapes


def _measured(
    frame: Chart, places: Sequence[tuple[Point, float]], style: Styles
) -> list:
    """Points with alpha's standard error, and their gamma where there is room."""
    shapes: list = []
    for p, y in places:
        shapes += frame.error(p.alpha, y, p.alpha_stderr, style.role(p.draft))
    for p, y in places:
        marker = style(p.draft, p.temperature == 0)
        shapes.append(frame.point(p.alpha, y, tip=p.tip, **marker))
    alike = len({p.gamma for p, _ in places}) == 1
    at = [(frame.x(p.alpha), frame.y(y)) for p, y in places]
    names = ["" if alike else f"{p.gamma}" for p, _ in places]
    return shapes + beside(at, names)


def _heading(task: str, chosen: Sequence[Point]) -> str:
    """The task, and the gamma where it is that of all points."""
    gammas = {p.gamma for p in chosen}
    return f"{task}, γ {gammas.pop()}" if len(gammas) == 1 else task


def _picture(name, heading, caption, frame, shapes, style, chosen) -> Picture:
    legend = style.legend([p.draft for p in chosen], [p.temperature for p in chosen])
    return Picture(name, heading, caption, frame.drawing(shapes, legend))


def slug(text: str) -> str:
    """A task's name as part of a file's."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in text)[:60]
