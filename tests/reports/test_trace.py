import jax
import numpy as np
import pytest
from rich.console import Console

from spec_jax import SamplingPolicy, Speculative, trace
from spec_jax.base import StepInfo
from spec_jax.drafts.model import ModelDraft
from spec_jax.reports.trace import TargetRun, figure, legend, run_texts, target_runs
from spec_jax.testing.tables import TableDecoder

WORDS = ["<pad>", "</s>", "<unk>", "▁Die", "▁Kat", "ze", "▁sitzt", "▁Hund", "▁", "."]
BYTES = [f"<0x{value:02X}>" for value in range(256)]
PIECES = WORDS + BYTES
ID = {piece: i for i, piece in enumerate(PIECES)}


def ids(*pieces):
    return tuple(ID[piece] for piece in pieces)


def run(accepted=(), rejected=(), chosen=(), drafted=None):
    drafted = len(accepted) + len(rejected) if drafted is None else drafted
    return TargetRun(drafted, ids(*accepted), ids(*rejected), ids(*chosen))


def plain(runs, width=80):
    return [line.plain for line in figure(runs, PIECES, width, color=False)]


def spans(line):
    return [(line.plain[s.start : s.end], str(s.style)) for s in line.spans]


RUNS = [
    run(["▁Die"], ["▁Hund"], ["▁Kat"], drafted=4),
    run(["ze", "▁sitzt", "."], [], ["</s>"]),
]


def test_marks_stand_for_colours():
    assert plain(RUNS) == [
        "1 +2 Die [-Hund-] {+Kat+}",
        "2 +4 ze sitzt.{+</s>+}",
    ]


def test_colours_are_the_papers():
    first, second = figure(RUNS, PIECES, 80, color=True)
    assert first.plain == "1 +2 Die Hund Kat"
    styles = dict(spans(first))
    assert styles["Die"] == "green"
    assert styles["Hund"] == "red strike"
    assert "blue" in styles["Kat"]
    # The text so far, without what was rejected, and what is new.
    assert second.plain == "2 +4 Die Katze sitzt.</s>"
    assert ("ze sitzt.", "green") in spans(second)


def test_lines_fit_and_begin_anew_when_full():
    runs = [run(["▁Die", "▁Kat", "ze"], [], ["▁sitzt"]) for _ in range(12)]
    for width in (30, 50, 80):
        lines = figure(runs, PIECES, width, color=True)
        assert len(lines) == len(runs)
        assert max(line.cell_len for line in lines) <= width
        assert all(line.plain.rstrip().endswith("Die Katze sitzt") for line in lines)


def test_what_follows_a_new_beginning_is_not_dim():
    runs = [run(["▁Die", "▁Kat", "ze"], [], ["▁sitzt"]) for _ in range(3)]
    line = figure(runs, PIECES, 30, color=True)[2]
    assert line.plain == "3 +4 … Die Katze sitzt"
    assert not line.style and "dim" not in dict(spans(line))["Die Katze"]


def test_a_lone_space_is_visible_where_it_is_marked():
    assert plain([run([], ["▁"], ["▁"])]) == ["1 +1 [-▁-]{+▁+}"]


def test_a_character_appears_with_its_last_byte():
    a_umlaut = ["<0xC3>", "<0xA4>"]
    texts = run_texts([run(["▁Die", *a_umlaut], [], ["."])], PIECES)
    assert texts == [[("accepted", " Dieä"), ("chosen", ".")]]
    # Its bytes lie in two runs.
    texts = run_texts([run([], [], a_umlaut[:1]), run(a_umlaut[1:], [], ["."])], PIECES)
    assert texts == [[], [("accepted", "ä"), ("chosen", ".")]]


def test_a_rejected_byte_does_not_touch_the_text():
    # 0xC3 is kept, 0xB6 (of ö) is rejected for 0xA4 (of ä).
    texts = run_texts([run(["<0xC3>"], ["<0xB6>"], ["<0xA4>"])], PIECES)
    assert texts == [[("rejected", "ö"), ("chosen", "ä")]]


def test_bytes_that_make_no_character_are_spelled():
    texts = run_texts([run(["<0xFF>", "▁Die"], ["<0xC3>"], ["<0xC3>"])], PIECES)
    assert texts == [
        [
            ("accepted", "\\xff Die"),
            ("rejected", "\\xc3"),
            ("chosen", "\\xc3"),
        ]
    ]
    texts = run_texts([run(["<0xC3>", "."], [], ["."])], PIECES)
    assert texts == [[("accepted", "\\xc3."), ("chosen", ".")]]


@pytest.mark.parametrize("byte", ["<0x1B>", "<0x07>", "<0x0A>", "<0x7F>"])
def test_no_output_commands_the_terminal(byte):
    (line,) = plain([run([byte], [], ["."])])
    assert line.isprintable()


def test_ids_without_a_piece_are_shown_as_numbers():
    texts = run_texts([TargetRun(0, (), (), (len(PIECES) + 5,))], PIECES)
    assert texts == [[("chosen", f"<{len(PIECES) + 5}>")]]


def test_the_legend_explains_both():
    assert legend(color=False).plain == (
        "accepted   [-rejected-]   {+the target's own token+}"
    )
    assert "strike" in str(legend(color=True).spans)


def test_a_console_prints_what_the_lines_say():
    console = Console(width=60, color_system="truecolor", force_terminal=True)
    with console.capture() as capture:
        for line in figure(RUNS, PIECES, 60, color=True):
            console.print(line)
    assert "\x1b[31;9m" in capture.get().replace("\x1b[9;31m", "\x1b[31;9m")
    assert "\x1b[32m" in capture.get()


def step_info(**fields):
    """One row's arrays [steps, ...] with the batch axis put in."""
    defaults = {"length": [0, 0], "residual_empty": [False, False]}
    return StepInfo(
        **{k: np.asarray(v)[:, None] for k, v in (defaults | fields).items()}
    )


def test_runs_come_from_the_arrays_of_a_trace():
    infos = step_info(
        proposed=[[3, 7, 5], [5, 6, 9]],
        num_proposed=[3, 3],
        num_accepted=[1, 3],
        emitted=[[3, 4, 0, 0], [5, 6, 9, 1]],
        num_emitted=[2, 4],
    )
    assert target_runs(infos) == [
        TargetRun(3, (3,), (7,), (4,)),
        TargetRun(3, (5, 6, 9), (), (1,)),
    ]


def test_steps_after_the_end_are_left_out_and_cut_ones_have_no_choice():
    infos = step_info(
        proposed=[[3, 1, 5], [0, 0, 0]],
        num_proposed=[2, 0],
        num_accepted=[2, 0],
        emitted=[[3, 1, 5, 6], [0, 0, 0, 0]],
        num_emitted=[2, 0],
    )
    assert target_runs(infos) == [TargetRun(2, (3, 1), (), ())]


def test_the_runs_of_a_real_trace_add_up_to_its_output():
    size = 7
    policy = SamplingPolicy(temperature=1.0)
    decoder = TableDecoder(size)
    params = {
        name: jax.random.normal(jax.random.key(seed), (size,) * 3)
        for seed, name in enumerate(("target", "draft"))
    }
    draft = ModelDraft(decoder, policy, 3)
    algorithm = Speculative(decoder, draft, policy, eos_id=1)
    prompt = np.full((4, 1), 2, np.int32)
    out, infos = trace(
        algorithm, params, None, prompt, jax.random.key(3), max_new_tokens=20
    )
    for row in range(4):
        runs = target_runs(infos, row)
        tokens = [t for run in runs for t in (*run.accepted, *run.chosen)]
        assert tokens == np.asarray(out.tokens)[row, : out.lengths[row]].tolist()
        assert len(runs) == out.stats.row(row).steps
        assert sum(run.num_drafted for run in runs) == out.stats.row(row).drafted
        assert all(not run.rejected or run.chosen for run in runs)
