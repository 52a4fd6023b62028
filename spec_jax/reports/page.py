"""Every table and picture of some results as one HTML page without scripts."""

import dataclasses
import html
from collections.abc import Callable, Sequence

from spec_jax.core import paper
from spec_jax.experiments.trace import TraceRecord
from spec_jax.reports import (
    compiled,
    decodes,
    drawing,
    figures,
    html_tables,
    overview,
    payoff,
)
from spec_jax.reports.figures import Picture
from spec_jax.reports.results import Results, draft_name
from spec_jax.reports.tables import filters

ARXIV = "https://arxiv.org/abs/2211.17192"
MOST_TEXTS = 6
"""Decoded texts of the page."""
STYLE = """
*{box-sizing:border-box}
html{color-scheme:light dark;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);line-height:1.5;
font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main,header,footer{max-width:1080px;margin:0 auto;padding:0 20px}
header{padding-top:40px}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 8px;letter-spacing:-.01em}
h2{font-size:1.35rem;margin:56px 0 8px;padding-top:16px;
border-top:1px solid var(--grid)}
h3{font-size:1rem;margin:24px 0 8px;overflow-wrap:anywhere}
p{max-width:70ch;margin:8px 0;overflow-wrap:anywhere}
a{color:var(--s1)}
nav{margin:16px 0;display:flex;flex-wrap:wrap;gap:4px 18px}
.muted,.notes,figcaption,footer{color:var(--muted);font-size:.875rem}
.notes{padding-left:1.2em;max-width:90ch;overflow-wrap:anywhere}
.cards{display:grid;gap:12px;margin:24px 0;padding:0;list-style:none;
grid-template-columns:repeat(auto-fit,minmax(min(100%,150px),1fr))}
.cards li{border:1px solid var(--grid);border-radius:10px;padding:14px 16px;
overflow-wrap:anywhere}
.cards b{display:block;font-size:2rem;line-height:1.15;
font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;max-width:100%;margin:8px 0}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
th,td{padding:6px 12px 6px 0;text-align:right;vertical-align:top;white-space:nowrap}
th:not(:last-child),td:not(:last-child){padding-right:18px}
th{color:var(--muted);font-weight:500;border-bottom:1px solid var(--muted)}
td{border-bottom:1px solid var(--grid)}
.group th{color:var(--ink);font-weight:600;padding-top:16px;
border-bottom:1px solid var(--grid)}
.text{text-align:left}
.paper{display:block;color:var(--muted);font-size:.78rem}
.grid{display:grid;gap:28px 32px;margin:16px 0;
grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr))}
figure{margin:0;min-width:0}
figure h3{margin-top:0}
svg{display:block;width:100%;height:auto}
figcaption{max-width:62ch;margin-top:6px}
dt{font-weight:600;margin-top:10px}
dd{margin:0;max-width:70ch;overflow-wrap:anywhere}
code{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;
font-size:.9em;overflow-wrap:anywhere}
.runs{list-style:none;margin:8px 0;padding:0;font-family:ui-monospace,Menlo,Consolas,
'DejaVu Sans Mono',monospace;font-size:.875rem;line-height:1.7}
.runs li{display:grid;grid-template-columns:2.2em 2.6em 1fr;overflow-wrap:anywhere}
.runs li>span:first-child{color:var(--muted);text-align:right;padding-right:.8em}
.accepted{color:var(--s3)}
.rejected{color:var(--s2);text-decoration:line-through}
.own{color:var(--s1);font-weight:600;text-decoration:underline;
text-underline-offset:3px}
.text-in{margin:4px 0 0;color:var(--muted)}
@media(max-width:480px){main,header,footer{padding-left:14px;padding-right:14px}
h1{font-size:1.5rem}h2{margin-top:40px}}
@media print{.scroll{overflow:visible}}
"""


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
      anchor: its address in the page.
      heading: of it.
      lead: a sentence or two before it.
      body: HTML; '' where results for it are missing.
      absent: what makes those.
      pictures: in it.
    """

    anchor: str
    heading: str
    lead: str
    body: str
    absent: str
    pictures: tuple[Picture, ...] = ()


@dataclasses.dataclass(frozen=True)
class Report:
    """What a report consists of.

    Attributes:
      html: the page.
      pictures: those that it shows, for files of their own.
      absent: sections without results, and what makes those.
    """

    html: str
    pictures: tuple[Picture, ...]
    absent: tuple[str, ...]


def report(results: Results) -> Report:
    """The page and pictures of some results."""
    sections = _sections(results)
    pictures = named_apart(
        [picture for section in sections for picture in section.pictures]
    )
    absent = tuple(
        f"{section.heading}: {section.absent}"
        for section in sections
        if not section.body
    )
    return Report(_page(results, sections), pictures, absent)


def named_apart(pictures: Sequence[Picture]) -> tuple[Picture, ...]:
    """Pictures whose names differ, so that no file takes another's place."""
    names: set[str] = set()
    found = []
    for picture in pictures:
        name, number = picture.name, 1
        while name.lower() in names:
            number += 1
            name = f"{picture.name}-{number}"
        names.add(name.lower())
        found.append(dataclasses.replace(picture, name=name))
    return tuple(found)


def _sections(results: Results) -> list[Section]:
    style = figures.styles(results)

    def drawn(*makers: Callable) -> list[Picture]:
        return [picture for make in makers for picture in make(results, style)]

    def make(anchor, heading, lead, absent, before="", pictures=()):
        body = before + _grid(pictures)
        return Section(anchor, heading, lead, body, absent, tuple(pictures))

    evaluate = "`spec-jax table2` or `spec-jax evaluate` measures it."
    tables = "".join(html_tables.markup(t) for t in html_tables.table_2(results))
    chosen = html_tables.choices(results)
    by_draft = "".join(map(html_tables.markup, html_tables.table_3(results)))
    by_lenience = "".join(map(html_tables.markup, html_tables.table_5(results)))
    on_chip = make(
        "compiled",
        "Table 2 on a chip that is not here",
        "T5-XXL with its drafts, from programs that were compiled and not run.",
        "",
        pictures=drawn(compiled.by_compiler),
    )
    shown = decodes.longest(results.traces)[:MOST_TEXTS]
    texts = "".join(map(_decoded, shown))
    return [
        make(
            "speed",
            "Speed",
            "How many times as fast as plain decoding of the same target.",
            evaluate,
            pictures=overview.overview(results, style),
        ),
        make(
            "table2",
            "Table 2",
            "Every measured row; under a figure the paper's, where it has one.",
            evaluate,
            tables,
        ),
        make(
            "alpha",
            "Table 3",
            "alpha, how often a draft's guess stands, on what the target wrote itself.",
            "`spec-jax alpha` measures it.",
            by_draft,
        ),
        make(
            "temperature",
            "Alpha against temperature",
            "",
            "`spec-jax alpha --gin.TEMPERATURES=0,.5,1` measures it.",
            pictures=drawn(payoff.alpha_by_temperature),
        ),
        Section(
            "figure1",
            "Figure 1",
            "Texts as they were decoded: a line for each run of the target, and the "
            "tokens that it gave.",
            texts,
            "`spec-jax trace TEXTS --output_file=trace.jsonl` decodes some.",
            tuple(decodes.figure_1(shown)),
        ),
        make(
            "figure2",
            "Figure 2: tokens a run",
            "",
            evaluate,
            pictures=drawn(figures.figure_2),
        ),
        make(
            "figure3",
            "Figure 3: the best gamma",
            "",
            "`spec-jax choose-gamma TEXTS --output_file=choice.jsonl` or "
            "`spec-jax evaluate` measures it.",
            html_tables.markup(chosen) if chosen else "",
            drawn(figures.figure_3),
        ),
        make(
            "figure4",
            "Figure 4: speed and operations",
            "",
            evaluate,
            pictures=drawn(figures.figure_4),
        ),
        make(
            "figure5",
            "Figure 5: where the time goes",
            "",
            "`spec-jax trace TEXTS --output_file=trace.jsonl` measures it.",
            pictures=decodes.figure_5(results.traces)[:MOST_TEXTS],
        ),
        make(
            "positions",
            "Acceptance by position",
            "",
            evaluate,
            pictures=drawn(payoff.positions),
        ),
        make(
            "lenience",
            "Table 5: lenience",
            "alpha where the output may leave the target's distribution.",
            "`spec-jax lenience` measures it.",
            by_lenience,
            drawn(payoff.lenience),
        ),
        make(
            "gamma",
            "Speed by gamma",
            "",
            "`spec-jax evaluate --gin.GAMMAS=1,3,5,7` measures it.",
            pictures=drawn(payoff.by_gamma),
        ),
        make(
            "batch",
            "Where it stops paying: batch",
            "",
            "`spec-jax table2` measures batches of 2, 4 and 8.",
            pictures=drawn(payoff.by_batch),
        ),
        make(
            "warm",
            "Where it stops paying: temperature",
            "",
            evaluate,
            pictures=drawn(payoff.by_temperature),
        ),
        make(
            "cost",
            "Where it stops paying: costs",
            "",
            evaluate,
            pictures=drawn(payoff.by_cost),
        ),
        *([on_chip] if on_chip.body else []),
        Section(
            "paper",
            "The paper's tables",
            "Computed by this project's formulas, with the printed figures under them.",
            '<div class="grid">'
            + "".join(
                f"<div>{html_tables.markup(table)}</div>"
                for table in (html_tables.table_1(), html_tables.table_4())
            )
            + "</div>",
            "",
        ),
    ]


def _page(results: Results, sections: Sequence[Section]) -> str:
    title = "Speculative decoding: what was measured, beside the paper"
    links = "".join(
        f'<a href="#{section.anchor}">{html.escape(section.heading)}</a>'
        for section in sections
        if section.body
    )
    shown = [section for section in sections if section.body]
    body = "\n".join([*map(_section, shown), _absent(sections)])
    sources = ", ".join(f"<code>{html.escape(file)}</code>" for file in results.files)
    notes = "".join(f"<li>{_inline(note)}</li>" for note in results.notes)
    # The policy lets nothing in: no script, font, picture or request. The icon is
    # empty, or a browser would ask the page's server for one.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    style = drawing.colors(":root") + drawing.rules() + STYLE
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="muted">Leviathan, Kalman and Matias, “Fast Inference from Transformers via
Speculative Decoding” (<a href="{ARXIV}">arXiv 2211.17192</a>). Its figures are of
T5 1.1 XXL on a TPU v4; a draft guesses γ tokens, one run of the target judges them,
and α is how often a guess stands.</p>
{_cards(results)}
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{body}
</main>
<footer>
<h2>Sources</h2>
<p>{sources}</p>
{f'<ul class="notes">{notes}</ul>' if notes else ""}
</footer>
</body>
</html>
"""


def _cards(results: Results) -> str:
    """The fastest row of each task and temperature in large figures."""
    items = []
    for record in html_tables.best(results.records):
        name = draft_name(record)
        row = paper.table2_row(record.task, name, record.temperature)
        said = f"; paper {row.speed:g}×" if row else ""
        items.append(
            f"<li><b>{record.speedup:.2f}×</b>"
            f"{html.escape(record.task)}, T\u00a0=\u00a0{record.temperature:g}"
            f"{_after(filters(record.policy))}"
            f'<br><span class="muted">draft {html.escape(name)}, '
            f"γ {record.gamma}, α {record.alpha:.2f}, "
            f"{record.tokens_per_run:.1f} tokens a run{said}</span></li>"
        )
    return f'<ul class="cards">{"".join(items)}</ul>' if items else ""


def _after(text: str) -> str:
    return f", {html.escape(text)}" if text else ""


def _section(section: Section) -> str:
    lead = f"<p>{html.escape(section.lead)}</p>" if section.lead else ""
    return (
        f'<section id="{section.anchor}"><h2>{html.escape(section.heading)}</h2>'
        f"{lead}{section.body}</section>"
    )


def _absent(sections: Sequence[Section]) -> str:
    """What there is no result for, and the commands that make it."""
    items = "".join(
        f"<dt>{html.escape(section.heading)}</dt><dd>{_inline(section.absent)}</dd>"
        for section in sections
        if not section.body
    )
    if not items:
        return ""
    return (
        '<section id="absent"><h2>Not measured yet</h2><p class="muted">No line of '
        f"these is among the results.</p><dl>{items}</dl></section>"
    )


def _grid(pictures: Sequence[Picture]) -> str:
    """Pictures side by side; what is said of all of them is said once."""
    if not pictures:
        return ""
    captions = {picture.caption for picture in pictures}
    once = len(captions) == 1
    shown = "".join(
        f"<figure><h3>{html.escape(picture.heading)}</h3>"
        + drawing.svg(picture.drawing)
        + ("" if once else f"<figcaption>{html.escape(picture.caption)}</figcaption>")
        + "</figure>"
        for picture in pictures
    )
    before = f'<p class="muted">{html.escape(captions.pop())}</p>' if once else ""
    return f'{before}<div class="grid">{shown}</div>'


def _decoded(trace: TraceRecord) -> str:
    """Figure 1 of one text, as lines that wrap."""
    head = (
        f"{decodes.in_runs(trace)} "
        f"({trace.tokens / max(trace.runs, 1):.1f} a run): {trace.task}, "
        f"T = {trace.temperature:g}, draft {trace.draft}, γ {trace.gamma}"
    )
    items = []
    for number, step in enumerate(trace.steps, 1):
        parts = "".join(_part(part.status, part.text) for part in step.parts)
        items.append(
            f"<li><span>{number}</span><span>+{step.tokens}</span>"
            f"<span>{parts}</span></li>"
        )
    legend = (
        '<span class="accepted">accepted</span> · '
        '<span class="rejected">rejected</span> · '
        '<span class="own">the target’s own token</span>'
    )
    return (
        f"<h3>{html.escape(head)}</h3>"
        f'<p class="text-in">{html.escape(trace.source)}</p>'
        f'<ol class="runs">{"".join(items)}</ol><p class="muted">{legend}</p>'
    )


def _part(status: str, text: str) -> str:
    kind = status if status in ("accepted", "rejected") else "own"
    # A line under a space would look like an underscore.
    bare = text.lstrip(" ")
    space = " " * (len(text) - len(bare))
    shown = bare if bare else "␣" * len(space)
    return f'{space}<span class="{kind}">{html.escape(shown)}</span>'


def _inline(text: str) -> str:
    """Text in which `code` is marked as such."""
    parts = html.escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts)
    )
