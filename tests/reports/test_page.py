"""The page's figures are those of the records and the paper's; nothing is let in."""

import dataclasses
import html.parser
import re

import pytest

from spec_jax.core import theory
from spec_jax.reports import decodes, drawing, figures, html_tables, payoff
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
    assert (row["speed"].paper, row["expected"].paper) == ("2.4", "2.4")
    assert row["expected"].text == f"{theory.speedup(0.64, 5, 0.09):.2f}"
    record = lines.record("base", "ende", 1.0)
    assert row["speed"].text == f"{record.speedup:.2f}"
    assert cells(table, "ende, T = 0", "bigram")["speed"].paper == ""
    # Batches above 1 are not the paper's.
    batches = [r for r in table.rows if not isinstance(r, str) and r[1] == "8"]
    assert batches and not any(row[3].paper for row in batches)
    alpha = cells(html_tables.table_3(full)[0], "summarize", "bigram")
    assert (alpha["T = 0"].text, alpha["T = 0"].paper) == ("0.200 ± 0.008", "0.23")
    lenient = cells(html_tables.table_5(full)[0], "ende, T = 1", "base")
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


TOP_K = {"top_k": 40, "top_p": 1.0, "min_p": 0.0}


def test_other_filters_are_other_measurements():
    """The fault: rows of several filters were one, with the median of their speeds."""
    plain, other = lines.record(), lines.record(policy=TOP_K, alpha=0.9)
    found = Results(records=(plain, other))
    (table,) = html_tables.table_2(found)
    assert [row for row in table.rows if isinstance(row, str)] == [
        "ende, T = 0",
        "ende, T = 0, top_k 40",
    ]
    assert cells(table, "ende, T = 0, top_k 40", "small")["alpha"].text[:5] == "0.900"
    assert len(figures.points(found)) == 2
    assert "top_k 40" in table.notes[1] + table.notes[0]


def test_alphas_of_other_machines_and_filters_are_not_mixed():
    """The fault: the last line stood for all, under the first one's name."""
    one = lines.alpha()
    changed = [
        dataclasses.replace(one, alpha=0.5, device="gpu: Example"),
        dataclasses.replace(one, alpha=0.6, policy=TOP_K),
        dataclasses.replace(one, alpha=0.4, pair="other"),
    ]
    tables = html_tables.table_3(Results(alphas=(one, *changed)))
    found = {
        (table.heading, row[0]): row[1].text[:5]
        for table in tables
        for row in table.rows
        if not isinstance(row, str)
    }
    here = "float32, jax 0.12.0, cpu: Example"
    assert found == {
        (here, "small, tiny"): "0.720",
        (here, "small, other"): "0.400",
        (f"{here}, top_k 40", "small, tiny"): "0.600",
        ("float32, jax 0.12.0, gpu: Example", "small, tiny"): "0.500",
    }
    assert all(row[1].paper == "0.75" for row in tables[0].rows[1:])
    newer = dataclasses.replace(one, alpha=0.3, date="2027-01-01T00:00:00+00:00")
    (table,) = html_tables.table_3(Results(alphas=(newer, one)))
    assert table.rows[1][1].text[:5] == "0.300"
    filtered = Results(alphas=(one, dataclasses.replace(changed[1], temperature=1.0)))
    assert not payoff.alpha_by_temperature(filtered, figures.styles(filtered))


def test_where_no_gamma_pays_the_figures_are_of_one_gamma():
    slow = dataclasses.replace(
        lines.choice(), gamma=0, speed=1.0, speeds={1: 0.7, 2: 0.9, 3: 0.8}, c=0.08
    )
    row = cells(html_tables.choices(Results(choices=(slow,))), "ende, T = 0", "small")
    assert row["gamma"] == "none pays (2)" and row["expected"].text == "0.90"
    assert row["verify"] == f"{slow.verify_costs[2]:.2f}"


def test_no_point_stands_on_the_edge_for_another_value():
    """The fault: 11.4 tokens a run, or a best gamma above 20, drawn as 8 and 20."""
    changed = lines.record(gamma=15, tokens_per_run=11.4, alpha=0.95, c=0.01)
    gamma = theory.optimal_gamma(0.95, 0.01, changed.verify_cost)
    assert gamma > 24
    top = 4 * -(-gamma // 4)
    found = Results(records=(changed,))
    for make, bottom, share in (
        (figures.figure_2, 310, (11.4 - 1) / (12 - 1)),
        (figures.figure_3, 270, gamma / top),
    ):
        (picture,) = make(found, figures.styles(found))
        shapes = picture.drawing.shapes
        marker = next(s for s in shapes if isinstance(s, drawing.Marker) and s.tip)
        assert marker.y == pytest.approx(bottom - share * (bottom - 36))


def test_traces_of_several_drafts_are_several_pictures():
    """The fault: bars of two drafts in one picture, and one file for two texts."""
    model = [lines.trace(gamma) for gamma in (7, 3, 0)]
    lookup = [dataclasses.replace(t, draft="lookup") if t.gamma else t for t in model]
    other = [dataclasses.replace(t, source="Another text.") for t in model]
    found = Results(traces=(*model, *lookup, *other))
    assert len(decodes.longest(found.traces)) == 3
    made = report(found)
    bars = [p for p in made.pictures if p.name.startswith("figure5")]
    assert [p.name for p in bars] == [
        "figure5-ende-1-T0",
        "figure5-ende-1-T0-2",
        "figure5-ende-1-T0-3",
    ]
    assert "draft lookup" in bars[1].caption
    for picture in bars:
        names = [s.text for s in picture.drawing.shapes if isinstance(s, drawing.Label)]
        assert [n for n in names if n == "plain" or "γ" in n] == [
            "γ = 7",
            "γ = 3",
            "plain",
        ]


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
