"""The page's figures are those of the records and the paper's; nothing is let in."""

import dataclasses
import html.parser
import re

import pytest

from spec_jax.reports import drawing, figures, html_tables, payoff
from spec_jax.reports.page import report
from spec_jax.reports.results import Results, read_results
from tests.reports import lines


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "full.jsonl"
    return read_results([lines.write(path, lines.every_form())])


@pytest.fixture(scope="module")
def made(full):
    return report(full)


def test_every_section_is_there_and_every_picture_once(made):
    assert not made.absent and "Not measured yet" not in made.html
    names = [picture.name for picture in made.pictures]
    assert len(set(names)) == len(names)
    for wanted in (
        *("speed-ende", "figure1-ende-1-T0", "figure2-ende", "figure3-summarize"),
        *("figure4-ende", "figure5-ende-1-T0", "positions-ende-T1", "lenience-ende-T0"),
        *("alpha-temperature-ende", "gamma-ende-T0", "batch-ende", "cost-summarize"),
        "temperature-ende",
    ):
        assert wanted in names


def test_what_is_not_measured_is_left_out_with_its_command(tmp_path):
    path = lines.write(tmp_path / "a.jsonl", [lines.record()])
    made = report(read_results([path]))
    assert any("spec-jax alpha" in text for text in made.absent)
    assert "<code>spec-jax trace TEXTS" in made.html
    assert 'id="figure5"' not in made.html and 'href="#figure5"' not in made.html
    assert 'id="figure2"' in made.html


def cells(table, group, draft):
    """A row's cells by header."""
    start = table.rows.index(group)
    row = next(row for row in table.rows[start + 1 :] if row[0] == draft)
    return dict(zip(table.headers, row, strict=True))


def test_the_papers_figures_stand_under_ours(full):
    (table,) = html_tables.table_2(full)
    row = cells(table, "ende, T = 1", "base")
    assert (row["gamma"].text, row["gamma"].paper) == ("5", "5")
    assert (row["alpha"].text, row["alpha"].paper) == ("0.640 ± 0.012", "0.68")
    assert (row["c"].text, row["c"].paper) == ("0.090", "0.04")
    assert (row["speed"].paper, row["formula"].paper) == ("2.4", "2.4")
    record = lines.record("base", "ende", 1.0)
    assert row["speed"].text == f"{record.speedup:.2f}"
    assert cells(table, "ende, T = 0", "bigram")["speed"].paper == ""
    # Batches above 1 are not the paper's.
    batches = [r for r in table.rows if not isinstance(r, str) and r[1] == "8"]
    assert batches and not any(row[3].paper for row in batches)
    alpha = cells(html_tables.table_3(full), "summarize", "bigram")
    assert (alpha["T = 0"].text, alpha["T = 0"].paper) == ("0.200 ± 0.008", "0.23")
    lenient = cells(html_tables.table_5(full), "ende, T = 1", "base")
    assert lenient["l = 0.1"].paper == "0.90" and lenient["l = 0.3"].text == "-"


def test_the_papers_speed_stands_under_that_over_t5x(tmp_path):
    baseline = {"tokens_per_second": 500.0, "speedup": 1.77, "identical": 1.0}
    found = Results(records=(lines.record(baseline=baseline),))
    row = cells(html_tables.table_2(found)[0], "ende, T = 0", "small")
    assert (row["over t5x"].text, row["over t5x"].paper) == ("1.77", "3.4")
    assert row["speed"].paper == ""


def test_lenient_speed_has_the_papers(tmp_path):
    lenient = lines.record(rule="lenient", lenience=0.1, lossless=False, gamma=7)
    row = cells(
        html_tables.table_2(Results(records=(lenient,)))[0], "ende, T = 0", "small"
    )
    assert (row["rule"], row["speed"].paper) == ("lenient 0.1", "4.9")
    assert row["alpha"].paper == ""
    # What leaves the target's distribution is no point on theory's lines, nor best.
    assert not figures.points(Results(records=(lenient,)))
    assert not html_tables.best([lenient])


def test_tables_1_and_4_are_computed(made):
    assert html_tables.table_1().rows[3][3] == html_tables.Cell("3.69", "3.69")
    assert html_tables.table_4().rows[0][-1] == html_tables.Cell("3.16", "3.2")


def test_points_stand_on_their_coordinates(full):
    style = figures.styles(full)
    picture = next(p for p in figures.figure_2(full, style) if "ende" in p.name)
    record = lines.record("large", "ende", 0.0, 5)
    marker = next(
        shape
        for shape in picture.drawing.shapes
        if isinstance(shape, drawing.Marker)
        and shape.tip.startswith("ende, large, T = 0,")
    )
    assert f"{record.tokens_per_run:.2f} tokens a run" in marker.tip
    left, right, top, bottom = 40, 420 - 34, 36, 360 - 50
    assert marker.x == pytest.approx(left + record.alpha * (right - left))
    share = (record.tokens_per_run - 1) / 7
    assert marker.y == pytest.approx(bottom - share * (bottom - top))


def test_drafts_differ_by_colour_and_marker(full):
    style = figures.styles(full)
    looks = [style(name) for name in ("small", "base", "large", "bigram")]
    assert len({look["role"] for look in looks}) == 4
    assert len({look["shape"] for look in looks}) == 4
    assert style("small", False)["filled"] is False


@pytest.mark.parametrize("palette", [drawing.LIGHT, drawing.DARK])
def test_colours_are_readable(palette):
    """Text has a contrast of 4.5 with the page, as WCAG 2 wants."""

    def luminance(color):
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [
            x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    ground = luminance(palette["ground"])
    for role in ("ink", "muted", *drawing.SERIES):
        light, dark = sorted((luminance(palette[role]), ground), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, role


def test_drafting_pays_above_the_line():
    assert payoff.least_alpha(0.1, 1.0) == pytest.approx(0.1, abs=2e-4)
    assert payoff.least_alpha(0.0, 1.5) == pytest.approx(1 / 3, abs=1e-3)
    assert payoff.least_alpha(2.0, 1.0) == float("inf")


class Tags(html.parser.HTMLParser):
    """Open tags, and everything that could be fetched."""

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.policy = [], [], ""
        self.void = {"meta", "link", "br"}

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.void:
            self.open.append(tag)
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        assert tag not in ("script", "iframe", "object", "img")
        assert not any(name.startswith("on") for name in attrs)
        if tag != "a":
            self.fetched += [v for k, v in attrs.items() if k in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(made):
    tags = Tags()
    tags.feed(made.html)
    assert not tags.open
    assert tags.fetched == ["data:,"]
    assert tags.policy.startswith("default-src 'none'")
    assert "url(" not in made.html and "@import" not in made.html


def test_texts_of_users_stay_text(made):
    assert "&lt;save&gt; the file" in made.html and "<save>" not in made.html
    assert "&lt;b&gt;&amp;" in made.html
    for picture in made.pictures:
        assert "<save>" not in drawing.svg(picture.alone, alone=True)


def test_marks_of_a_decoded_text(made):
    assert '<span class="accepted">um die</span>' in made.html
    assert '<span class="rejected">Daten</span>' in made.html
    assert '<span class="own">Datei</span>' in made.html
    assert "16 tokens in 4 runs of the target" in made.html


def test_a_picture_alone_brings_its_colours(made):
    picture = made.pictures[0]
    text = drawing.svg(picture.alone, alone=True)
    assert "prefers-color-scheme:dark" in text and picture.drawing.title in text
    used = set(re.findall(r"[fl]-(\w+)", re.sub("<style>.*</style>", "", text)))
    assert used <= set(drawing.LIGHT)
    assert set(drawing.LIGHT) == set(drawing.DARK)


def test_the_same_results_make_the_same_page(full, made):
    assert report(full) == made


def test_notes_are_said_once_for_all_rows(full):
    (table,) = html_tables.table_2(full)
    assert len(table.notes) == 1 and "batch" not in table.notes[0]
    assert "64 examples" in table.notes[0]
    busy = lines.record(batch=4, warnings=("the machine was busy",))
    notes = html_tables.table_2(Results(records=(lines.record(), busy)))[0].notes
    assert len(notes) == 2 and notes[1].endswith("the machine was busy")


@pytest.mark.parametrize(
    "line",
    [
        lines.record(),
        lines.record(acceptance_by_position=(None, None), alpha_stderr=None),
        lines.record(alpha=1.0000001, alpha_stderr=None),
        lines.record(rule="lenient", lossless=False, lenience=0.5),
        lines.record(batch=8),
        lines.record(temperature=0.7, task="my_file.jsonl"),
        lines.alpha(),
        lines.alpha(lenience=0.3),
        lines.choice(),
        dataclasses.replace(lines.choice(), gamma=0, speed=1.0, speed_low=None),
        lines.trace(),
        lines.trace(gamma=0),
        dataclasses.replace(lines.trace(), steps=(), runs=0, tokens=0),
    ],
    ids=lambda line: type(line).__name__,
)
def test_a_single_line_is_a_report(line, tmp_path):
    made = report(read_results([lines.write(tmp_path / "a.jsonl", [line])]))
    assert "Sources" in made.html and made.absent
    for picture in made.pictures:
        text = drawing.svg(picture.alone, alone=True)
        assert "nan" not in text and "inf" not in re.sub(r"<style>.*</style>", "", text)
