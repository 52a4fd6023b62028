"""A sweep of a tiny pair: which combinations, and the arithmetic of their figures."""

import dataclasses
import itertools

import numpy as np
import pytest

from spec_jax.data.datasets import load_task
from spec_jax.experiments import sweep as sweeping
from spec_jax.experiments.costs import StepCosts
from spec_jax.experiments.outputs import Decoded
from spec_jax.experiments.record import append_record, read_records
from spec_jax.experiments.sweep import (
    SweepRecord,
    SweepSettings,
    combinations,
    modelled_speed,
    rule_gains,
    sweep,
    sweep_batches,
)
from spec_jax.pairs import PACKAGE
from tests.experiments.test_evaluate import pair  # noqa: F401

COSTS = StepCosts(plain=1.0, draft=0.1, verify=1.25)


@pytest.fixture(scope="module")
def data(pair):  # noqa: F811
    lengths = {"inputs": 256, "targets": 7}
    (data,) = load_task(
        "ende", pair.vocabulary, num_examples=12, feature_lengths=lengths
    )
    return data


def settings(**fields):
    fields = {"num_examples": 2, "repeats": 1, "gamma": 2, "most": 3} | fields
    return SweepSettings(**fields)


def test_combinations():
    """Rules that are one at T = 0, and drafts without lengths, come once."""
    cells = list(combinations(settings(), "ende"))
    assert len(cells) == len(set(cells))
    at_zero = [cell for cell in cells if cell[1] == 0]
    assert {cell[3] for cell in at_zero} == {"token", "lenient"}
    assert len(at_zero) == (3 * 3 + 2) * 2
    assert len(cells) == len(at_zero) + 2 * (3 * 3 + 2) * 4
    few = settings(
        temperatures=(0.0,),
        drafts=("lookup",),
        rules=("block",),
        lengths=("optimal", "fixed"),
    )
    assert list(combinations(few, "x")) == [("x", 0.0, "lookup", "block", "fixed")]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"drafts": ("modl",)}, "drafts of model"),
        ({"rules": ()}, "rules of token"),
        ({"lengths": ("long",)}, "lengths of fixed"),
        ({"gamma": 0}, "gamma >= 1"),
        ({"input_length": 1}, "input_length >= 2"),
        ({"lenience": 0.0}, "lenience"),
        ({"threshold": 2.0}, "threshold"),
        ({"temperatures": (-1.0,)}, "temperature"),
        ({"temperatures": ()}, "want some combination"),
        ({"drafts": ("lookup",), "lengths": ("optimal",)}, "lookup want fixed lengths"),
    ],
)
def test_wrong_settings_raise(field, message):
    with pytest.raises(ValueError, match=message):
        settings(**field)


@pytest.fixture
def quick(monkeypatch):
    """Costs without the loops that time them; a draft costs 0.1 a token."""
    monkeypatch.setattr(sweeping, "step_costs", lambda *args, **fields: COSTS)


def test_records(pair, data, quick, tmp_path):  # noqa: F811
    """Written, read again, and none measured twice."""
    with_tables = dataclasses.replace(
        pair, tables=PACKAGE + "pretrained/ngram.safetensors"
    )
    chosen = settings(
        temperatures=(1.0,),
        drafts=("model", "bigram"),
        rules=("token", "coupled"),
        lengths=("fixed", "confidence"),
    )
    begun = []
    records = list(sweep(with_tables, with_tables, data, chosen, begin=begun.append))
    assert [record.cell for record in records] == begun
    assert begun == list(combinations(chosen, "ende"))
    for record in records:
        append_record(tmp_path / "sweep.jsonl", record)
        gamma = 2 if record.lengths == "fixed" else 3
        assert (record.gamma, record.num_examples) == (gamma, 2)
        assert (record.c, record.verify_cost) == (0.1, 1.25)
        assert 1 <= record.tokens_per_run <= gamma + 1
        assert record.drafted_per_run <= gamma
        steps = record.tokens / record.tokens_per_run
        cost = steps * (1.25 + 0.1 * record.drafted_per_run)
        assert record.modelled == pytest.approx(record.tokens / cost)
        assert record.oracle > 0 and record.speedup > 0 and record.lossless
    assert read_records(tmp_path / "sweep.jsonl", SweepRecord) == records
    by_cell = {record.cell: record for record in records}
    model, bigram = (
        by_cell["ende", 1.0, draft, "token", "fixed"] for draft in ("model", "bigram")
    )
    assert model.alpha > bigram.alpha
    rest = sweep(
        with_tables, with_tables, data, chosen, done=begun[1:], begin=begun.append
    )
    assert [record.cell for record in rest] == begun[:1]


def test_modelled_speed():
    """Tokens over drafted c + steps verify_cost; an oracle drafts what is accepted."""
    decoded = Decoded()

    @dataclasses.dataclass
    class Counts:
        emitted, steps, drafted, accepted = 30, 10, 40, 20

    decoded.__class__ = type("Counted", (Decoded,), {"total": Counts()})
    assert modelled_speed(decoded, COSTS) == pytest.approx(30 / (4 + 12.5))
    oracle = modelled_speed(decoded, COSTS, drafts_accepted_only=True)
    assert oracle == pytest.approx(30 / (2 + 12.5))


def test_texts_are_those_that_fit(data):
    batches = sweep_batches(data, settings(num_examples=50, input_length=24))
    lengths = [len(batch.members[0].tokens) for batch in batches]
    assert 0 < len(lengths) < len(data.examples) and max(lengths) <= 24
    assert {batch.inputs.shape for batch in batches} == {(1, 24)}
    with pytest.raises(ValueError, match="at most 3 tokens, got none of 12"):
        sweep_batches(data, settings(input_length=3))


def test_gains_of_other_rules(pair, data, quick):  # noqa: F811
    """Blocks above T = 0, several draws of each text; branches at each temperature."""
    chosen = settings(temperatures=(0.0, 1.0), repeats=2)
    blocks, branches = rule_gains(pair, pair, data, chosen)
    assert [gain.gamma for gain in blocks] == [1, 2, 3]
    assert {gain.temperature for gain in blocks} == {1.0}
    assert blocks[0].block == pytest.approx(blocks[0].token, abs=1e-5)
    grid = list(itertools.product((0.0, 1.0), (1, 2, 3, 4)))
    assert [(gain.temperature, gain.branches) for gain in branches] == grid
    for temperature in (0.0, 1.0):
        first = [x.first for x in branches if x.temperature == temperature]
        assert first == sorted(first) and 0 <= first[0] <= first[-1] <= 1 + 1e-6
        assert np.isfinite(first).all()
    assert {gain.cost for gain in branches} == {2 * 0.1 + 1.25}
