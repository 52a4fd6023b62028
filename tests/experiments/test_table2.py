"""Rows of Table 2: their pairs, their gammas, and the fastest draft."""

import dataclasses
from types import SimpleNamespace

import pytest

from spec_jax.experiments import table2
from spec_jax.experiments.choice import Choice
from spec_jax.experiments.evaluate import EvaluateSettings
from spec_jax.experiments.table2 import fastest, gamma_of_paper, sources
from tests.reports.test_tables import RECORD

TASKS = ("wmt14_ende", "cnn_dailymail")


def test_a_pair_is_for_all_tasks_or_for_the_one_that_it_is_fine_tuned_on():
    small, large = sources({"small": min, "large": max}, ["bigram"], TASKS)
    assert small == table2.Source(min, TASKS, {"small": "model", "bigram": "bigram"})
    assert large == table2.Source(max, TASKS, {"large": "model"})
    pairs = {"wmt14_ende/small": min, "cnn_dailymail/small": max}
    ende, cnn_dm = sources(pairs, ["bigram"], TASKS)
    assert (ende.load, ende.tasks, set(ende.drafts)) == (
        min,
        TASKS[:1],
        {"small", "bigram"},
    )
    assert (cnn_dm.load, cnn_dm.tasks, cnn_dm.drafts) == (
        max,
        TASKS[1:],
        {"small": "model", "bigram": "bigram"},
    )
    with pytest.raises(ValueError, match="none for 'cnn_dailymail'"):
        sources({"wmt14_ende/small": min}, [], TASKS)
    with pytest.raises(ValueError, match=r"want PAIRS of the tasks .* of 'xsum'"):
        sources({"xsum/small": min}, [], TASKS)


def test_gammas_of_the_paper():
    names = ("small", "base", "large")
    assert [gamma_of_paper("ende", name, 1.0) for name in names] == [7, 5, 3]
    assert [gamma_of_paper("cnn_dailymail", name, 0.0) for name in names] == [5, 5, 3]
    with pytest.raises(ValueError, match=r"got ende, small, T = 0\.5; give GAMMA="):
        gamma_of_paper("ende", "small", 0.5)


def test_the_fastest_draft_is_so_in_the_mean_of_logarithms():
    speeds = {"small": (1.0, 2.5), "base": (1.7, 1.7), "large": (1.6, 1.6)}
    records = [
        dataclasses.replace(RECORD, draft_name=name, speedup=speed)
        for name, several in speeds.items()
        for speed in several
    ]
    assert fastest(records) == "base"  # small has the larger arithmetic mean
    with pytest.raises(ValueError, match="got none"):
        fastest([])


CHOICE = Choice(
    task="ende",
    pair="tiny",
    draft="model",
    draft_name="small",
    temperature=0.0,
    batch=1,
    policy={},
    dtype="float32",
    plain_dtype="float32",
    num_examples=1,
    alpha=0.5,
    alpha_stderr=None,
    alpha_tokens=3,
    draft_costs={1: 0.1},
    verify_costs={1: 1.0},
    start_plain=0.0,
    start_speculative=0.0,
    tokens_per_run={1: 1.5},
    formula={1: 1.4},
    speeds={1: 1.4},
    gamma=1,
    speed=1.4,
    speed_low=None,
    speed_high=None,
    c=0.1,
    device="cpu",
    cpu_threads=1,
    versions={},
    seed=0,
    date="",
)


def test_a_choice_is_made_once_for_all_that_decides_it(monkeypatch, tmp_path):
    """Weights, texts, settings but for gamma, the draft's name, and the gammas."""
    made = []

    def choose(*args, **kwargs):
        made.append(kwargs)
        return CHOICE

    monkeypatch.setattr(table2, "choose", choose)
    monkeypatch.setattr(
        table2, "run_head", lambda pair, plain, data, settings: {"is": repr(settings)}
    )
    path = tmp_path / "choices.jsonl"

    def ask(name="small", gammas=(1, 2), **settings):
        settings = EvaluateSettings(**settings)
        pairs = SimpleNamespace(), SimpleNamespace()
        return table2.choose_gamma(pairs, None, settings, name, path, gammas)

    first = ask()
    assert (first.alpha, len(first.run)) == (0.5, 12)
    assert ask(gamma=7) == first and len(made) == 1
    others = [
        {"name": "large"},
        {"gammas": (1, 2, 3)},
        {"temperature": 1.0},
        {"batch": 2},
    ]
    for number, other in enumerate(others, 2):
        assert ask(**other).run != first.run
        assert len(made) == number
    # Half a line that a kill left is none; what others read is the same line.
    path.write_text(path.read_text() + '{"task')
    assert ask() == first and len(made) == 5
    assert Choice.from_json(path.read_text().splitlines()[0]) == CHOICE
