"""`spec-jax trace`: what runs did, as text, and the times of their parts."""

import dataclasses

from spec_jax.cli import trace as tracing
from spec_jax.cli.trace import steps_of
from spec_jax.experiments.trace import PLAIN, Part, PartTimes, Step, TraceRecord
from spec_jax.reports.trace import TargetRun

PIECES = ["<pad>", "</s>", "▁ein", "▁Haus", "s", "<0xC3>", "<0xBC>"]


def test_every_status():
    runs = [
        TargetRun(2, (2,), (3,), (4,)),
        TargetRun(2, (2, 3), (), (4,)),
        TargetRun(0, (), (), (2,)),
        TargetRun(1, (1,), (), ()),
    ]
    assert steps_of(runs, PIECES) == (
        Step(
            2,
            (
                Part("accepted", " ein", 1),
                Part("rejected", " Haus", 1),
                Part("correction", "s", 1),
            ),
        ),
        Step(2, (Part("accepted", " ein Haus", 2), Part("bonus", "s", 1))),
        Step(0, (Part("target", " ein", 1),)),
        Step(1, (Part("accepted", "</s>", 1),)),
    )
    assert [step.tokens for step in steps_of(runs, PIECES)] == [2, 3, 1, 1]


def test_bytes_of_one_character_count_where_they_are():
    """Its text appears with its last byte, its tokens stay in their runs."""
    (one, two) = steps_of(
        [TargetRun(1, (5,), (), ()), TargetRun(0, (), (), (6,))], PIECES
    )
    assert one.parts == (Part("accepted", "", 1),)
    assert two.parts == (Part("target", "ü", 1),)


def test_lines_of_texts(run, pair_flags, tmp_path, monkeypatch):
    asked = []
    times = {g: PartTimes(1.0 + g, 2.0, 3.0, 4.0) for g in (2, PLAIN)}

    def parts(pair, plain_pair, gammas, *rest):
        asked.append((gammas, rest[-2]["inputs"].shape, rest[-1]))
        return times

    monkeypatch.setattr(tracing, "part_times", parts)
    path = tmp_path / "trace.jsonl"
    outcome = run(
        "trace",
        *pair_flags,
        "--gin.PLAIN_DTYPE=float32",
        "--gin.GAMMAS=2",
        "--gin.REPEATS=1",
        "--max_new_tokens=6",
        f"--output_file={path}",
        "Save the file.",
        "Close it.",
    )
    assert outcome.status == 0, outcome
    assert asked == [((2,), (1, 32), 6)]
    lines = [TraceRecord.from_json(line) for line in path.read_text().splitlines()]
    assert [(x.number, x.gamma) for x in lines] == [
        (number, gamma) for number in (1, 2) for gamma in (2, PLAIN)
    ]
    for line in lines:
        assert TraceRecord.from_json(line.to_json()) == line and line.kind == "trace"
        assert sum(step.tokens for step in line.steps) == line.tokens
        assert len(line.steps) == line.runs <= line.tokens <= 6
        assert line.times == times[line.gamma] and line.seconds > 0
        assert max(step.drafted for step in line.steps) <= line.gamma
        plain = lines[2 * line.number - 1]
        assert line.output == plain.output  # T = 0, one dtype
        assert plain.draft == "plain" and plain.runs == plain.tokens
        assert {p.status for step in plain.steps for p in step.parts} == {"target"}
    assert lines[0].source == "Save the file." and lines[2].source == "Close it."
    assert "1  Save the file." in outcome.out and "accepted" in outcome.out
    assert outcome.out.count("plain") >= 2


def test_wrong_ones_are_said(fails, pair_flags):
    assert "no draft 'modl'" in fails("trace", *pair_flags, "--draft=modl", "x")
    assert "no text" in fails("trace", *pair_flags, "--input_file=/dev/null")
    assert "want GAMMAS" in fails("trace", *pair_flags, "--gin.GAMMAS=3,0", "x")


def test_parts_are_times_of_their_own_gamma(monkeypatch):
    from spec_jax.experiments import trace as parts
    from spec_jax.experiments.costs import StartCosts, StepCosts

    class Pair:
        params = None

        def autoregressive(self, policy, rule):
            return None

        def speculative(self, gamma, policy, rule):
            return gamma

    monkeypatch.setattr(
        parts,
        "step_costs",
        lambda plain, _, gamma, *a, **k: StepCosts(1.0 + gamma, 10.0 * gamma, 100.0),
    )
    monkeypatch.setattr(parts, "start_costs", lambda *a, **k: StartCosts(0.1, 0.2, 0.3))
    given = dict.fromkeys(("inputs", "prompt", "key"))
    found = parts.part_times(Pair(), Pair(), (7, 3), None, None, given, 8)
    assert {gamma: dataclasses.astuple(one) for gamma, one in found.items()} == {
        7: (0.2, 0.3, 70.0, 100.0),
        3: (0.2, 0.3, 30.0, 100.0),
        PLAIN: (0.1, 0.0, 0.0, 8.0),
    }
