"""Tables of compiled programs, from records made by hand."""

import dataclasses

import pytest

from spec_jax.core.theory import speedup
from spec_jax.experiments.tpu_compile import CompileRecord
from spec_jax.reports.compile import markdown, predictions, step_costs
from spec_jax.reports.compiled import by_compiler
from spec_jax.reports.drawing import Box, Marker
from spec_jax.reports.figures import styles
from spec_jax.reports.page import report
from spec_jax.reports.results import Results, read_results

STEP = CompileRecord(
    pair="t5_1_1_xxl+small",
    program="plain",
    topology="v4:2x2x1",
    num_partitions=1,
    dtype="bfloat16",
    batch=1,
    input_length=512,
    new_tokens=128,
    gamma=7,
    temperature=0.0,
    hbm={"arguments": 2**33, "temporaries": 2**30},
    hbm_chip=2**35,
    bytes_read=11_900_000_000,
    bytes_written=100_000_000,
    fewest_bytes=11_400_000_000,
    moved={"target weights": 12_000_000_000},
    operations=10**10,
    cycles=21 * 10**6,
    copies=({"source": "w", "put_back": True}, {"source": "c", "put_back": False}),
    collectives=(),
    compile_seconds=1.0,
    versions={},
)


def step(program, size, cycles=0):
    return dataclasses.replace(
        STEP,
        program=program,
        bytes_read=size,
        bytes_written=0,
        operations=0,
        cycles=cycles,
    )


def test_a_row_says_what_is_used_moved_and_copied():
    row = markdown([STEP]).splitlines()[2]
    assert "9.00 GiB | 32 GiB | 12000.0 | 11400.0 | +5.3%" in row
    assert row.endswith("| 1 | 1 |")
    # A v4 has 1.049 GHz: 275e12 operations in 8 units of 128 x 128.
    assert "| 10.000 | 20.018 |" in row


def test_costs_are_those_of_the_bytes():
    records = [
        step("plain", 12 * 10**9),
        step("draft", 12 * 10**7),
        step("speculative", 13 * 10**9),
    ]
    c, verify = step_costs(records)
    assert c == pytest.approx(0.01)
    assert verify == pytest.approx((13 - 7 * 0.12) / 12)
    assert step_costs(records[:2]) is None
    # Cycles that take longer than the bytes count instead: here a draft's alone.
    slow = [records[0], step("draft", 12 * 10**7, cycles=524_520), records[2]]
    likely, _ = step_costs(slow, likely=True)
    assert likely == pytest.approx(0.05, rel=1e-3)
    assert step_costs(slow)[0] == pytest.approx(0.01)
    unknown = [dataclasses.replace(one, topology="v6e:2x2") for one in records]
    assert step_costs(unknown, likely=True) is None
    line = next(x for x in markdown(records).splitlines() if x.startswith("| EnDe"))
    assert f"{speedup(0.75, 7, c, verify):.1f} | 3.2 | 3.4 |" in line


def test_transfers_are_counted_by_shape():
    one = {"kind": "all-reduce", "shape": "bf16[8,4096]", "bytes": 65536, "times": 2}
    text = markdown([dataclasses.replace(STEP, collectives=(one, one))])
    assert "| all-reduce | bf16[8,4096] | 65,536 | 4 |" in text


def test_a_line_is_read_back(tmp_path):
    path = tmp_path / "compile.jsonl"
    path.write_text(STEP.to_json() + "\n", "utf-8")
    assert read_results([path]).compiled == (STEP,)


def test_the_picture_has_bars_of_the_peak_and_markers_of_the_cycles():
    records = [
        step("plain", 12 * 10**9),
        step("draft", 12 * 10**7, cycles=524_520),
        step("speculative", 13 * 10**9, cycles=14 * 10**6),
    ]
    every = predictions(records)
    rows = [one.row for one in every if one.by == "peak"]
    assert [(row.task, row.draft) for row in rows] == [("EnDe", "small")] * 2 + [
        ("CNN/DM", "small")
    ] * 2
    results = Results(compiled=tuple(records))
    first, second = by_compiler(results, styles(results))
    assert (first.name, second.name) == ("compiled-v4-EnDe", "compiled-v4-CNN_DM")
    shapes = first.drawing.shapes
    bars = [shape for shape in shapes if isinstance(shape, Box)]
    known = [
        one for one in shapes if isinstance(one, Marker) and one.shape == "diamond"
    ]
    ours = [
        one
        for one in shapes
        if isinstance(one, Marker) and one.tip and one not in known
    ]
    assert len(bars) == len(ours) == 2
    for bar, marker in zip(bars, ours, strict=True):
        assert marker.x < bar.x + bar.width  # cycles make it slower than the peak
    assert "compiled-v4-EnDe" in {one.name for one in report(results).pictures}
    tips = [one.tip for one in known if one.tip]
    assert tips == ["the paper measured 3.4", "the paper measured 2.6"]
    warm = [dataclasses.replace(one, temperature=1.0) for one in records]
    warm[1] = dataclasses.replace(warm[1], bytes_read=24 * 10**7)
    costs = {one.row.temperature: one.c for one in predictions(records + warm)[:2]}
    assert costs == {0: pytest.approx(0.01), 1: pytest.approx(0.02)}
    four = [dataclasses.replace(one, num_partitions=4) for one in records]
    assert {one.chips for one in predictions(records + four)} == {"v4", "v4, 4 chips"}
    eight = [dataclasses.replace(one, batch=8, bytes_read=10**9) for one in records]
    apart = predictions([*records, *eight])
    assert {one.chips for one in apart} == {"v4", "v4, 8 rows"}
    assert apart[: len(every)] == every
