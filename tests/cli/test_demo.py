import re
from xml.etree import ElementTree

import pytest

from spec_jax.cli.demo import choose_texts

SHORT = ["--gin.MAX_NEW_TOKENS=6", "--gin.REPEATS=1", "--gin.PLAIN_DTYPE=float32"]


@pytest.fixture
def demo(run, pair_flags):
    def call(*argv):
        outcome = run("demo", *pair_flags, *SHORT, *argv)
        assert outcome.status == 0, outcome
        return outcome.out

    return call


def test_samples_are_held_out_texts_of_every_task():
    texts = choose_texts(None, [])
    assert {text.task for text in texts} == {"ende", "summarize"}
    assert all(text.reference for text in texts)
    assert {text.task for text in choose_texts("summarize", [])} == {"summarize"}
    (given,) = choose_texts("summarize", ["mine"])
    assert (given.task, given.source, given.reference) == ("summarize", "mine", None)


def test_it_shows_runs_and_a_table(demo):
    out = demo("Choose the item.", "Save the file.", "--temperature=1")
    assert "Choose the item." in out and "accepted" in out
    assert "1 +" in out and "{+" in out
    assert "\x1b" not in out  # no colours where there is no terminal
    table = out[out.index("tokens a run") :].split()
    assert "all" in table and any(word.endswith("x") for word in table)


def test_one_drafted_token_is_one(demo):
    said = lambda gamma: " ".join(  # noqa: E731
        demo("Save the file.", f"--gamma={gamma}").split()
    )
    assert "the draft has proposed one token, the target keeps" in said(1)
    assert "the draft has proposed up to 2 tokens, the target keeps" in said(2)


def test_a_seed_shows_the_same_again(demo):
    def figure(*argv):
        out = demo("Choose the item.", "--temperature=1", *argv)
        return re.findall(r"^ +\d+ \+\d.*$", out, re.MULTILINE)

    assert len(figure("--seed=1")) > 1
    assert figure("--seed=1") == figure("--seed=1")
    assert figure("--seed=1") != figure("--seed=2")


def test_an_empty_text_is_an_error(fails, pair_flags):
    assert "text 1 is empty" in fails("demo", *pair_flags, " ")


def test_an_unknown_task_is_an_error(fails):
    assert "unknown task 'foo'" in fails("demo", "--task=foo")


def test_it_draws_what_it_shows(demo, tmp_path):
    picture = tmp_path / "new" / "demo.svg"
    demo("Choose the item.", f"--svg_file={picture}")
    drawn = ElementTree.parse(picture)
    words = " ".join("".join(drawn.getroot().itertext()).split())
    assert "Choose the item." in words and "tokens a run" in words
    assert "http" not in picture.read_text().replace("http://www.w3.org", "")


def test_a_picture_that_cannot_be_written_is_an_error(fails, pair_flags, tmp_path):
    assert "is a folder" in fails("demo", *pair_flags, f"--svg_file={tmp_path}", "A.")


def test_a_text_that_is_too_long_names_what_this_command_has(fails, pair_flags):
    message = fails("demo", *pair_flags, "word " * 2000, "--gin.MAX_INPUT_LENGTH=1024")
    assert "the limit is 1024" in message and "--truncate" not in message
