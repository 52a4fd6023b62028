import re
from pathlib import Path

import pytest

from spec_jax.cli.commands import COMMANDS, find_command
from spec_jax.cli.errors import UsageError
from spec_jax.cli.flags import flag_bindings, parse_flags, quote_bare

GENERATE = find_command(["generate"])[0]


def parse(*argv):
    return parse_flags(GENERATE, list(argv))


def test_flags_and_texts_mix():
    values, rest = parse("one", "--gamma=3", "two", "-n", "2", "three")
    assert rest == ["one", "two", "three"]
    assert values.gamma == 3 and values.num_return_sequences == 2


def test_after_two_dashes_all_is_text():
    _, rest = parse("--", "--gamma=3", "--gin.GAMMA=4")
    assert rest == ["--gamma=3", "--gin.GAMMA=4"]


def test_gin_flags_become_bindings():
    values, _ = parse("--gin.GAMMA=3", "--gin_bindings=SEED = 1", "--gin.a/B.c='x'")
    assert values.gin_bindings == ["GAMMA = 3", "SEED = 1", "a/B.c = 'x'"]


def test_flags_that_are_short_for_macros_bind_only_what_was_given():
    values, _ = parse("--temperature=0.5", "--task", "ende", "--truncate")
    assert set(flag_bindings(GENERATE, values)) == {
        "TEMPERATURE = 0.5",
        "MIXTURE_OR_TASK_NAME = 'ende'",
        "TRUNCATE = True",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", "''"),
        ("3", "3"),
        ("1e-3", "1e-3"),
        ("-1", "-1"),
        ("True", "True"),
        ("None", "None"),
        ("'quoted'", "'quoted'"),
        ("bfloat16", "'bfloat16'"),
        ("/tmp/a-b/c.model", "'/tmp/a-b/c.model'"),
        ("gs://bucket/x", "'gs://bucket/x'"),
        ("0.0,1.0", "(0.0,1.0)"),
        ("(0.0, 1.0)", "(0.0, 1.0)"),
        ("ende,summarize", "'ende,summarize'"),
        ("@load_pair", "@load_pair"),
        ("%GAMMA", "%GAMMA"),
        ("[1,", "[1,"),
    ],
)
def test_bare_words_become_text_and_nothing_else_changes(value, expected):
    assert quote_bare(value) == expected


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--gama=3"], "did you mean --gamma?"),
        (["--gamma=three"], "--gamma=three"),
        (["--gin.GAMMA"], "want --gin.NAME=value"),
        (["--gamma"], "--gamma"),
    ],
)
def test_wrong_flags_are_named(argv, said):
    with pytest.raises(UsageError) as raised:
        parse(*argv)
    assert said in str(raised.value)


def test_a_missing_flag_is_named_with_an_example():
    command = find_command(["data", "debian"])[0]
    with pytest.raises(UsageError, match="needs --output_dir, for example: spec-jax"):
        parse_flags(command, [])


def test_a_surplus_argument_is_an_error():
    command = find_command(["evaluate"])[0]
    with pytest.raises(UsageError, match="takes no argument, got 'x'"):
        parse_flags(command, ["x"])


def test_home_is_expanded_in_paths(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    values, rest = parse("-o", "~/out", "--input_file=~/in", "--prefix=~/p", "~/text")
    assert (values.output_file, values.input_file) == ("/home/me/out", "/home/me/in")
    assert (values.prefix, rest) == ("~/p", ["~/text"])


def test_every_path_is_marked_as_one():
    for command in COMMANDS:
        for flag in command.flags:
            named = re.search("file|dir|root|output|target|vocabulary$", flag.name)
            assert bool(named) == (flag.kind is Path), flag


def test_a_number_of_more_than_32_bits_is_an_error():
    with pytest.raises(UsageError, match="--seed=4294967296"):
        parse(f"--seed={2**32}")
