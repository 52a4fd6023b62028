"""Pictures of where speculation pays, and where it stops to."""

import math

import numpy as np

from spec_jax.core import paper, theory
from spec_jax.experiments.record import Record
from spec_jax.reports.axes import beside, chart, round_up
from spec_jax.reports.drawing import Label, Line
from spec_jax.reports.figures import (
    Picture,
    Point,
    Styles,
    points,
    points_by_place,
    slug,
    tasks,
)
from spec_jax.reports.results import Results, draft_name, rows
from spec_jax.reports.tables import filters

VERIFY_COSTS = (1.0, 1.25, 1.5, 2.0)
"""Lines of the map of costs."""
DASHES = ((), (8, 3), (4, 3), (1.5, 3))
MOST_GAMMA = 32


def positions(results: Results, style: Styles) -> list[Picture]:
    """How often the i-th drafted token is kept."""
    found = []
    chosen = [row.record for row in rows(results.records)]
    chosen = [r for r in chosen if r.batch == 1 and r.lossless and _shares(r)]
    for task, t in sorted({(r.task, r.temperature) for r in chosen}):
        lines = [r for r in chosen if (r.task, r.temperature) == (task, t)]
        # Of a draft the last one counts: the paper's rule, the longest proposals.
        lines.sort(key=lambda r: (r.rule == "token", r.gamma))
        lines = list({draft_name(r): r for r in lines}.values())
        longest = max(len(r.acceptance_by_position) for r in lines)
        frame = chart(
            (0.7, longest + 0.3),
            (0, 1),
            "place of the drafted token",
            "share of steps that keep it",
            f"Acceptance by position, {task}, T = {t:g}",
            x_ticks=range(1, longest + 1),
        )
        shapes: list = []
        for r in lines:
            name = draft_name(r)
            at = _shares(r)
            theory_at = [(i, r.alpha**i) for i in range(1, longest + 1)]
            shapes.append(frame.curve(theory_at, "muted", width=1, dash=(1.5, 3)))
            shapes.append(frame.curve(at, style.role(name)))
            for i, share in at:
                tip = f"{name}, γ {r.gamma}: token {i} kept in {share:.0%} of steps"
                shapes.append(frame.point(i, share, tip=tip, **style(name)))
        caption = (
            "Of the steps that drafted that many tokens, the share that kept the one "
            "in that place, and so all before it. Dotted: powers of alpha, which "
            "independent acceptances would give."
        )
        legend = style.legend([draft_name(r) for r in lines])
        legend.append(
            ({"kind": "line", "role": "muted", "dash": (1.5, 3)}, "powers of alpha")
        )
        found.append(
            Picture(
                f"positions-{slug(task)}-T{t:g}",
                f"{task}, T = {t:g}",
                caption,
                frame.drawing(shapes, legend),
            )
        )
    return found


def _shares(record: Record) -> list[tuple[int, float]]:
    """(place from 1, share of steps) where there were any."""
    shares = enumerate(record.acceptance_by_position, 1)
    return [(i, share) for i, share in shares if share is not None]


def alpha_by_temperature(results: Results, style: Styles) -> list[Picture]:
    """alpha against temperature, a line for each draft."""
    values: dict[tuple, tuple[float, float | None]] = {}
    for line in (*results.sweeps, *results.records, *results.alphas):
        # The paper's alpha has no filters.
        if filters(getattr(line, "policy", {})):
            continue
        if getattr(line, "lenience", None) in (None, 1.0):
            place = (line.task, draft_name(line), line.temperature)
            values[place] = (line.alpha, line.alpha_stderr)
    found = []
    for task in sorted({place[0] for place in values}):
        places = [place for place in values if place[0] == task]
        temperatures = sorted({t for _, _, t in places})
        if len(temperatures) < 2:
            continue
        frame = chart(
            (0, max(temperatures) * 1.03),
            (0, 1),
            "temperature",
            "alpha",
            f"alpha by temperature, {task}",
        )
        shapes: list = []
        for draft in dict.fromkeys(draft for _, draft, _ in places):
            at = sorted(
                (t, *values[task, draft, t])
                for t in temperatures
                if (task, draft, t) in values
            )
            role = style.role(draft)
            shapes.append(frame.curve([(t, a) for t, a, _ in at], role))
            for t, alpha, stderr in at:
                shapes += frame.upright_error(t, alpha, stderr, role)
                tip = f"{draft}, T = {t:g}: alpha {alpha:.3f}"
                shapes.append(frame.point(t, alpha, tip=tip, **style(draft)))
                printed = paper.table3_alpha(task, draft, t)
                if printed is not None:
                    mark = {"shape": "diamond", "role": role, "filled": False}
                    shapes.append(frame.point(t, printed, tip="the paper's", **mark))
        legend = style.legend([draft for _, draft, _ in places])
        if any(paper.table3_alpha(*place) is not None for place in places):
            legend.append(
                (
                    {"shape": "diamond", "role": "muted", "filled": False},
                    "paper, T5-XXL",
                )
            )
        caption = (
            "alpha is the mean of Σ min(p, q) over the target's own output; upright "
            "bars are its standard error."
        )
        found.append(
            Picture(
                f"alpha-temperature-{slug(task)}",
                task,
                caption,
                frame.drawing(shapes, legend),
            )
        )
    return found


def lenience(results: Results, style: Styles) -> list[Picture]:
    """alpha against lenience, a picture for each task and temperature."""
    lines = {
        (a.task, a.temperature, draft_name(a), a.lenience): a
        for a in results.alphas
        if not filters(a.policy)
    }
    found = []
    for task, t in sorted({(task, t) for task, t, _, l in lines if l < 1}):
        lenient = {k[2] for k in lines if k[:2] == (task, t) and k[3] < 1}
        at = {k: a for k, a in lines.items() if k[:2] == (task, t) and k[2] in lenient}
        least = min(l for *_, l in at)
        names = sorted({l for *_, l in at})
        # 1 stands at the left: the output follows the target there.
        frame = chart(
            (0, -math.log(least) * 1.03),
            (0, 1),
            "lenience l",
            "alpha",
            f"alpha by lenience, {task}, T = {t:g}",
            x_ticks=[-math.log(l) for l in names],
            tick_names=[f"{l:g}" for l in names],
        )
        shapes: list = []
        for draft in dict.fromkeys(place[2] for place in at):
            own = sorted((-math.log(k[3]), a) for k, a in at.items() if k[2] == draft)
            role = style.role(draft)
            shapes.append(frame.curve([(x, a.alpha) for x, a in own], role))
            for x, a in own:
                shapes += frame.upright_error(x, a.alpha, a.alpha_stderr, role)
                tip = f"{draft}, l = {a.lenience:g}: alpha {a.alpha:.3f}"
                shapes.append(frame.point(x, a.alpha, tip=tip, **style(draft)))
                printed = paper.table5_alpha(task, draft, t, a.lenience)
                if printed is not None:
                    mark = {"shape": "diamond", "role": role, "filled": False}
                    shapes.append(frame.point(x, printed, tip="the paper's", **mark))
        legend = style.legend([place[2] for place in at])
        legend.append(
            ({"shape": "diamond", "role": "muted", "filled": False}, "paper, T5-XXL")
        )
        caption = (
            "From 1, where the output follows the target, to more lenient: above "
            "T = 0 no token is more probable than p / l."
        )
        found.append(
            Picture(
                f"lenience-{slug(task)}-T{t:g}",
                f"{task}, T = {t:g}",
                caption,
                frame.drawing(shapes, legend),
            )
        )
    return found


def by_gamma(results: Results, style: Styles) -> list[Picture]:
    """Speed against gamma where several were measured or computed."""
    groups: dict[tuple, dict[int, Point]] = {}
    by_place: dict[tuple, dict[int, Point]] = {}
    for p in points_by_place(results):
        if p.batch == 1 and p.rule == "token":
            place = p.task, p.temperature, p.draft, p.place
            by_place.setdefault(place, {}).setdefault(p.gamma, p)
    for place, group in sorted(by_place.items(), key=lambda item: len(item[1])):
        groups[place[:3]] = group  # the place with the most gammas comes last
    expected = {
        (c.task, c.temperature, draft_name(c)): c.speeds
        for c in results.choices
        if c.batch == 1 and not filters(c.policy)
    }
    wanted = [
        place for place, group in groups.items() if len(group) > 2 or place in expected
    ]
    wanted += [place for place in expected if place not in groups]
    found = []
    for task, t in sorted({place[:2] for place in wanted}):
        own = [place for place in wanted if place[:2] == (task, t)]
        gammas = {
            g
            for place in own
            for g in (*groups.get(place, ()), *expected.get(place, ()))
        }
        speeds = [p.speed for place in own for p in groups.get(place, {}).values()]
        speeds_measured = bool(speeds)
        speeds += [s for place in own for s in expected.get(place, {}).values()]
        frame = chart(
            (0.5, max(gammas) + 0.5),
            (0, round_up(max(speeds) * 1.02)),
            "gamma",
            "times plain decoding",
            f"Speed by gamma, {task}, T = {t:g}",
            x_ticks=sorted(gammas),
        )
        shapes: list = [_even(frame)]
        for place in own:
            draft = place[2]
            role = style.role(draft)
            curve = sorted(expected.get(place, {}).items())
            if curve:
                shapes.append(frame.curve(curve, role, width=1, dash=(4, 3)))
            at = sorted(groups.get(place, {}).items())
            if len(at) > 1:
                shapes.append(frame.curve([(g, p.speed) for g, p in at], role))
            shapes += [
                frame.point(g, p.speed, tip=p.tip, **style(draft)) for g, p in at
            ]
        legend = style.legend([place[2] for place in own])
        if any(place in expected for place in own):
            legend.append(
                (
                    {"kind": "line", "role": "muted", "dash": (4, 3)},
                    "expected from alpha and costs",
                )
            )
        measured = "Points are measured, batch 1" if speeds_measured else "Batch 1"
        caption = f"{measured}. Below 1 drafting loses."
        found.append(
            Picture(
                f"gamma-{slug(task)}-T{t:g}",
                f"{task}, T = {t:g}",
                caption,
                frame.drawing(shapes, legend),
            )
        )
    return found


def by_batch(results: Results, style: Styles) -> list[Picture]:
    """Speed against batch size."""
    return _speed_against(
        results,
        style,
        "batch",
        "rows decoded together",
        "A call of the target on more rows has less idle arithmetic left for "
        "verification, and a batch waits for its slowest row. Below 1 drafting loses.",
    )


def by_temperature(results: Results, style: Styles) -> list[Picture]:
    """Speed against temperature, batch 1."""
    return _speed_against(
        results,
        style,
        "temperature",
        "temperature",
        "The fastest measured gamma of each draft, batch 1. Warmer sampling is harder "
        "to guess. Below 1 drafting loses.",
    )


def _speed_against(results, style, field: str, x_name: str, caption: str):
    """The fastest gamma by a field with at least two values, a picture a task."""
    found = []
    lines: dict[tuple, dict[float, Point]] = {}
    for p in points_by_place(results):
        if field == "temperature" and p.batch != 1:
            continue
        warmth = p.temperature if field == "batch" else 0.0
        group = lines.setdefault((p.task, p.draft, warmth, p.place), {})
        x = getattr(p, field)
        if x not in group or p.speed > group[x].speed:
            group[x] = p
    # Of one draft the line with the most values: places are not mixed.
    best: dict[tuple, dict[float, Point]] = {}
    for place, group in sorted(lines.items(), key=lambda item: len(item[1])):
        if len(group) > 1:
            best[place[:3]] = group
    for task in sorted({place[0] for place in best}):
        own = {place: group for place, group in best.items() if place[0] == task}
        xs = sorted({x for group in own.values() for x in group})
        speeds = [p.speed for group in own.values() for p in group.values()]
        log = field == "batch"
        ends = (xs[0] / 1.1, xs[-1] * 1.1) if log else (0, xs[-1] * 1.03)
        frame = chart(
            ends,
            (0, round_up(max(max(speeds), 1.2) * 1.02)),
            x_name,
            "times plain decoding",
            f"Speed by {field}, {task}",
            x_ticks=xs,
            x_log=log,
        )
        shapes: list = [_even(frame)]
        for (_, draft, t), group in own.items():
            at = sorted(group.items())
            dash = (4, 3) if log and t else ()
            line = frame.curve(
                [(x, p.speed) for x, p in at], style.role(draft), dash=dash
            )
            shapes.append(line)
            for x, p in at:
                marker = style(draft, not (log and t))
                shapes.append(frame.point(x, p.speed, tip=p.tip, **marker))
        warm = [t for _, _, t in own] if log else []
        legend = style.legend([place[1] for place in own], warm)
        found.append(
            Picture(
                f"{field}-{slug(task)}", task, caption, frame.drawing(shapes, legend)
            )
        )
    return found


def by_cost(results: Results, style: Styles) -> list[Picture]:
    """The map of alpha and c: above its lines some gamma pays."""
    found = []
    measured = points(results)
    for task in tasks(measured):
        chosen = [p for p in measured if p.task == task and p.batch == 1]
        chosen = list({(p.draft, p.temperature): p for p in chosen}.values())
        if not chosen:
            continue
        most = max(0.3, round_up(max(p.c for p in chosen) * 1.1))
        frame = chart(
            (0, most),
            (0, 1),
            "c, time of a draft step over a plain one",
            "alpha",
            f"Where drafting pays, {task}",
            right=40,
        )
        shapes: list = []
        for cost, dash in zip(VERIFY_COSTS, DASHES, strict=True):
            costs = np.linspace(0, most, 31).tolist()
            line = [(c, a) for c in costs if (a := least_alpha(c, cost)) <= 1]
            if len(line) > 1:
                shapes.append(frame.curve(line, "muted", dash=dash))
                x, y = line[-1]
                shapes.append(
                    Label(frame.x(x) + 4, frame.y(y) + 4, f"{cost:g}", "muted", size=11)
                )
        for p in chosen:
            shapes += frame.upright_error(
                p.c, p.alpha, p.alpha_stderr, style.role(p.draft)
            )
            shapes.append(
                frame.point(
                    p.c, p.alpha, tip=p.tip, **style(p.draft, p.temperature == 0)
                )
            )
        shapes += beside(
            [(frame.x(p.c), frame.y(p.alpha)) for p in chosen],
            [f"{p.verify_cost:.2f}" for p in chosen],
        )
        legend = [
            ({"kind": "line", "role": "muted", "dash": dash}, f"verification {cost:g}")
            for cost, dash in zip(VERIFY_COSTS, DASHES, strict=True)
        ]
        legend += style.legend(
            [p.draft for p in chosen], [p.temperature for p in chosen]
        )
        caption = (
            "Above a line some gamma is faster than plain decoding, for the cost of "
            "verification that the line is of: at 1, the paper's, where alpha exceeds "
            "c. The small number at a point is its own measured cost."
        )
        found.append(
            Picture(f"cost-{slug(task)}", task, caption, frame.drawing(shapes, legend))
        )
    return found


def least_alpha(c: float, verify_cost: float) -> float:
    """The alpha from which some gamma is faster than plain decoding.

    Args:
      c: time of a draft step over a plain one.
      verify_cost: of the rest of a step; the same for every gamma.

    Returns:
      It, to 1e-4; more than 1 where none is.
    """

    def pays(alpha):
        return any(
            theory.speedup(alpha, gamma, c, verify_cost) > 1 + 1e-9
            for gamma in range(1, MOST_GAMMA + 1)
        )

    low, high = 0.0, 1.0
    if not pays(high):
        return math.inf
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def _even(frame) -> Line:
    """The line at plain decoding's speed."""
    ends = ((frame.x.start, frame.y(1)), (frame.x.end, frame.y(1)))
    return Line(ends, "ink", 1.2)
