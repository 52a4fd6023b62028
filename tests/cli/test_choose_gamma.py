"""`spec-jax choose-gamma`: words that follow from figures, and flags that work."""

import dataclasses
import pathlib
import re
import shlex

import pytest

from spec_jax.cli import configuration
from spec_jax.cli.choose_gamma import advise
from spec_jax.cli.commands import find_command
from spec_jax.cli.flags import parse_flags
from spec_jax.experiments import choice as choosing
from spec_jax.experiments.choice import Choice
from spec_jax.experiments.costs import StepCosts
from spec_jax.experiments.rules import BlockGain
from spec_jax.experiments.trace import TraceRecord

CHOICE = Choice(
    task="ende",
    pair="tiny",
    draft="model",
    draft_name="model",
    temperature=0.7,
    batch=1,
    policy={"top_k": 0, "top_p": 0.9, "min_p": 0.0},
    dtype="float32",
    plain_dtype="float32",
    num_examples=20,
    alpha=0.7,
    alpha_stderr=0.02,
    alpha_tokens=500,
    draft_costs={1: 0.1, 2: 0.2},
    verify_costs={1: 1.1, 2: 1.2},
    start_plain=2.0,
    start_speculative=3.0,
    tokens_per_run={1: 1.7, 2: 2.1},
    formula={1: 1.4, 2: 1.5},
    speeds={1: 1.35, 2: 1.45},
    gamma=2,
    speed=1.45,
    speed_low=1.3,
    speed_high=1.6,
    c=0.1,
    device="cpu: none",
    cpu_threads=1,
    versions={},
    seed=0,
    date="2026-01-01",
)
SLOW = dataclasses.replace(
    CHOICE, gamma=0, speed=1.0, speeds={1: 0.9, 2: 0.8}, speed_low=0.8, speed_high=0.95
)


def gain(block):
    return BlockGain(
        task="ende",
        temperature=0.7,
        gamma=2,
        steps=50,
        token=2.0,
        block=block,
        stderr=0.01,
        least=0.0,
    )


def test_words_and_flags_where_it_pays():
    said = advise([CHOICE, SLOW])
    assert said.sentences == (
        "Use the draft model with gamma 2 and the rule token. Expect 1.45 times plain "
        "decoding's speed (95% interval 1.30 to 1.60): a run of the target brings 2.10 "
        "tokens and takes 1.40 plain steps.",
    )
    values, _ = parse_flags(find_command(["generate"])[0], shlex.split(said.flags))
    assert (values.draft, values.gamma, values.rule) == ("model", 2, "token")
    assert (values.temperature, values.top_p, values.batch_size) == (0.7, 0.9, 1)
    bindings = said.gin.splitlines()
    configuration.configure("generate", ["runs/generate.gin"], bindings)
    settings = configuration.build("generate")
    assert (settings.draft, settings.gamma, settings.batch_size) == ("model", 2, 1)
    assert (settings.policy.temperature, settings.policy.top_p) == (0.7, 0.9)


def test_the_block_rule_where_it_brings_something():
    said = advise([CHOICE], gain(2.1))
    assert "and the rule block" in said.sentences[0] and "--rule=block" in said.flags
    assert "RULE = 'block'" in said.gin
    assert "brings 5.0% more tokens a run than the token rule" in said.sentences[1]
    assert "--rule=token" in advise([CHOICE], gain(2.01)).flags
    assert "lenient" not in str(said)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"alpha": 0.08, "tokens_per_run": {1: 1.08, 2: 1.08}},
            "alpha 0.08 is not above c 0.10, so a drafted token costs more than it "
            "saves at any gamma",
        ),
        (
            {"verify_costs": {1: 2.0, 2: 3.0}},
            "verification is too costly, the target's call on 2 tokens takes 2.00; "
            "with gamma 1 a run of the target brings 1.70 tokens and takes 2.10 plain "
            "steps",
        ),
        (
            {"start_speculative": 60.0},
            "with gamma 1 a run of the target brings 1.70 tokens and takes 1.20 plain "
            "steps; what is done once for a text adds to it",
        ),
    ],
)
def test_why_nothing_pays(changes, reason):
    changed = dataclasses.replace(SLOW, **changes)
    if "start_speculative" in changes:
        changed = dataclasses.replace(changed, verify_costs={1: 1.0, 2: 1.0})
        reason = reason.replace("takes 1.20", "takes 1.10")
    said = advise([changed])
    assert said.flags == said.gin == ""
    assert said.sentences[0].startswith("No draft pays on these texts")
    assert said.sentences[1] == f"  model: {reason}."


def test_what_is_not_sure_is_said():
    unsure = dataclasses.replace(CHOICE, speed_low=0.9)
    first, second = advise([unsure]).sentences
    assert first.startswith("It may pay to use the draft model")
    assert second.startswith("The interval reaches below 1")
    one = dataclasses.replace(
        CHOICE, num_examples=1, alpha_tokens=300, speed_low=None, speed_high=None
    )
    assert "1 text with 300 tokens of output say" not in advise([CHOICE]).sentences
    assert advise([one]).sentences[-1].startswith("1 text with 300 tokens of output")
    assert "interval" not in str(advise([one]).sentences)
    assert advise([one]).sentences[0].startswith("It may pay to use")
    few = dataclasses.replace(CHOICE, alpha_tokens=30)
    assert "20 texts with 30 tokens of output" in advise([few]).sentences[-1]


def test_it_measures_drafts_on_texts(run, pair_flags, tmp_path, monkeypatch):
    costs = StepCosts(plain=1.0, draft=0.1, verify=1.2)
    monkeypatch.setattr(choosing, "step_costs", lambda *a, **k: costs)
    path = tmp_path / "choice.jsonl"
    outcome = run(
        "choose-gamma",
        *pair_flags,
        "--gin.PLAIN_DTYPE=float32",
        "--drafts=model,lookup",
        "--gin.MOST=2",
        "--max_new_tokens=6",
        "--temperature=1",
        f"--output_file={path}",
        "Save the file.",
        "",
        "Close the window.",
    )
    assert outcome.status == 0, outcome
    choices = [Choice.from_json(line) for line in path.read_text().splitlines()]
    assert {choice.draft for choice in choices} == {"model", "lookup"}
    speeds = [choice.speeds[choice.best] for choice in choices]
    assert speeds == sorted(speeds, reverse=True)
    for choice in choices:
        assert choice.num_examples == 2 and list(choice.speeds) == [1, 2]
        assert choice.verify_costs == {1: 1.2, 2: 1.2}
    words = " ".join(outcome.out.split())
    assert "2 texts" in words and "say little" in words
    assert "Use the draft" in words or "may pay" in words or "No draft pays" in words


def test_wrong_ones_are_said(fails, pair_flags):
    assert "no draft 'modl'" in fails("choose-gamma", *pair_flags, "--drafts=modl", "x")
    assert "no text" in fails("choose-gamma", *pair_flags, "--input_file=/dev/null")
    assert "want most >= 1" in fails("choose-gamma", *pair_flags, "--gin.MOST=0", "x")
    message = fails("choose-gamma", *pair_flags, "--drafts=bigram", "Hi")
    assert "wants tables" in message


def test_the_page_defines_every_field():
    page = pathlib.Path(__file__).parents[2] / "docs" / "choose_gamma.md"
    tables = re.split(r"^## ", page.read_text("utf-8"), flags=re.MULTILINE)
    for kind in (Choice, TraceRecord):
        (table,) = (
            text for text in tables if text.startswith(f"A line of {kind.__name__}")
        )
        rows = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
        named = re.findall(r"`(\w+)`", " ".join(rows))
        assert sorted(named) == sorted(field.name for field in dataclasses.fields(kind))
