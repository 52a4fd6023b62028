"""The pages' code runs as it stands there, and their links lead somewhere."""

import pathlib
import re

import numpy as np
import pytest

from spec_jax.pairs import DRAFTS, LENGTHS, RULES

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "README.md"]


def test_bring_your_own_decoder_runs(capsys):
    page = ROOT / "docs" / "decoders.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 5
    names = {"__name__": "decoders"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    greedy = names["same"].tokens
    assert len(np.unique(greedy)) > 2
    np.testing.assert_array_equal(names["out"].tokens, greedy)
    np.testing.assert_array_equal(names["again"].tokens, greedy)
    assert names["again"].stats.tokens_per_target_run > 1
    same, tokens_per_target_run = capsys.readouterr().out.split()
    assert same == "True" and float(tokens_per_target_run) > 1


def test_a_rule_is_proved_as_the_page_says():
    page = ROOT / "docs" / "drafts.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    names = {"__name__": "drafts"}
    exec(compile(block, str(page), "exec"), names)
    assert names["law"].shape == (3, 3, 3)


def test_the_page_names_what_there_is():
    """Every rule, draft and length policy, and no other."""
    text = (ROOT / "docs" / "drafts.md").read_text("utf-8")
    text = text.partition("## What it measured")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    named = re.findall(r"`(\w+)`", " ".join(rows))
    assert sorted(named) == sorted([*DRAFTS, *RULES, *LENGTHS])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing
