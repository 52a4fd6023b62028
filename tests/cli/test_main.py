import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spec_jax.cli import commands, main

ROOT = Path(main.__file__).parents[2]


def spec_jax(*argv, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "spec_jax.cli", *argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("argv", [(), ("--help",), ("-h",), ("help",)])
def test_the_overview_shows_every_command_with_an_example(run, argv):
    outcome = run(*argv)
    assert outcome.status == 0 and not outcome.err
    for command in commands.COMMANDS:
        assert command.name in outcome.out
        assert f"$ {command.example}\n" in outcome.out


def test_a_commands_help_shows_its_flags_and_macros_only(run):
    out = run("generate", "--help").out
    for flag in commands.find_command(["generate"])[0].flags:
        assert f"--{flag.name}" in out
    assert "NUM_RETURN_SEQUENCES" in out and "[1]" in out
    assert "TRAIN_STEPS" not in out and "--output_dir" not in out
    assert "alsologtostderr" not in out  # absl's own flags


def test_a_commands_own_macros_are_listed_before_included_ones(run, tmp_path):
    path = tmp_path / "mine.gin"
    path.write_text("GAMMA = 11\nDRAFT = 'lookup'\n")
    for given in ([], [f"--gin_file={path}"]):
        out = run("evaluate", *given, "--help").out
        out = out[out.index("macros of") :]
        own = [out.index(f"\n  {name} ") for name in ("TEMPERATURES", "GAMMA", "SEED")]
        assert max(own) < min(out.index(f"\n  {name} ") for name in ("DRAFT", "SPLIT"))


def test_help_says_which_macros_are_needed(run):
    out = run("train", "--help").out
    line = next(
        line for line in out.splitlines() if "MODEL_DIR" in line and "[" in line
    )
    assert "[needed]" in line


def test_both_ways_to_ask_for_help_show_the_same(run):
    for name in ("evaluate", "data vocabulary", "data"):
        words = name.split()
        assert run("help", *words).out == run(*words, "--help").out
    assert "[needed]" not in run("help", "evaluate").out


def test_help_of_a_gin_file_shows_that_files_values(run, tmp_path):
    path = tmp_path / "mine.gin"
    path.write_text("include 'runs/generate.gin'\nGAMMA = 11\nMINE = 12  # my own\n")
    out = run("generate", f"--gin_file={path}", "--help").out
    assert "tokens drafted for one run of the target [11]" in out
    assert "my own [12]" in out


@pytest.mark.parametrize("command", commands.COMMANDS, ids=lambda c: c.name)
def test_examples_are_accepted(command):
    import shlex

    from spec_jax.cli.flags import parse_flags

    program, *words = shlex.split(command.example)
    assert program == "spec-jax"
    found, rest = commands.find_command(words)
    assert found == command
    parse_flags(command, rest)


def test_an_unknown_command_names_the_nearest(fails):
    assert "did you mean evaluate?" in fails("evalute")
    assert "did you mean data vocabulary?" in fails("data", "vocab")
    assert "`spec-jax --help`" in fails("qqqqqqqq")


def test_folders_to_search_are_given_by_commas_and_again(run, tmp_path):
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        text = f"GAMMA = {len(name)}  # in {name}\n"
        (tmp_path / name / f"{name}.gin").write_text(text)
    folders = [f"--gin_search_paths={tmp_path}/one,{tmp_path}/two"]
    folders += [f"--gin_search_paths={tmp_path}/three"]
    for name in ("one", "two", "three"):
        outcome = run("generate", *folders, f"--gin_file={name}.gin", "--help")
        assert f"in {name} [{len(name)}]" in outcome.out, outcome


def test_a_missing_gin_file_is_named(fails, tmp_path):
    """BEHAVIOURS 33: non-zero exit, the path in the message, no traceback."""
    missing = tmp_path / "none.gin"
    assert str(missing) in fails("generate", "x", f"--gin_file={missing}")
    outer = tmp_path / "outer.gin"
    outer.write_text(f"include '{missing}'\n")
    assert str(missing) in fails("evaluate", f"--gin_file={outer}")


def test_data_alone_lists_its_parts(fails, run):
    message = fails("data")
    assert "debian" in message and "vocabulary" in message
    assert "data debian" in run("data", "--help").out


def test_a_flag_before_the_command_is_an_error(fails):
    assert "command first" in fails("--gamma=3", "demo")


def test_debug_shows_the_traceback(run):
    outcome = run("evalute", "--debug")
    assert outcome.status == 2
    assert "Traceback" in outcome.err and "error: no command" in outcome.err


def test_an_interrupt_ends_quietly(run, monkeypatch):
    def interrupted(invocation):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.Command, "main", lambda self: interrupted)
    outcome = run("demo")
    assert outcome.status == 130
    assert not outcome.out and not outcome.err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["evaluate"], True),
        (["distill"], True),
        (["generate", "text", "-o", "out.jsonl"], True),
        (["generate", "text", "--gin.INFER_OUTPUT_DIR=out"], True),
        (["generate", "text"], False),
        (["compare", "text"], False),
    ],
)
def test_an_interrupt_says_where_a_run_goes_on(run, monkeypatch, argv, said):
    def interrupted(invocation):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands.Command, "main", lambda self: interrupted)
    outcome = run(*argv)
    assert outcome.status == 130
    assert ("the same command goes on" in outcome.err) == said


def test_too_little_memory_is_a_user_matter(fails, monkeypatch):
    def hungry(invocation):
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(commands.Command, "main", lambda self: hungry)
    line = fails("demo")
    assert "not enough memory" in line and "7 TiB" in line and "GAMMA" in line


def test_what_nobody_foresaw_is_named_with_its_place(run, monkeypatch):
    def broken(invocation):
        raise KeyError("a fault of ours")

    monkeypatch.setattr(commands.Command, "main", lambda self: broken)
    outcome = run("demo")
    assert outcome.status == 1
    (line,) = outcome.err.splitlines()
    assert line.startswith("internal error: KeyError: 'a fault of ours' (test_main.py")
    assert line.endswith("; --debug shows the traceback")
    assert "Traceback" in run("demo", "--debug").err


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_a_closed_stream_is_no_error(monkeypatch, name):
    monkeypatch.setattr(sys, name, None)
    assert main.main(["--help"]) == 0
    assert getattr(sys, name) is not None


def test_a_stream_that_the_shell_closed_is_no_error():
    command = f"{sys.executable} -m spec_jax.cli"
    script = f"{command} --help <&- >&- && ! {command} evalute 2>&-"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_any_text_can_be_printed(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), "ascii", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(commands.Command, "main", lambda self: lambda _: print("für"))
    assert main.main(["demo"]) == 0
    assert out.buffer.getvalue() == b"f?r\n"


def test_a_device_that_is_not_here_is_named():
    process = spec_jax("demo", env={**os.environ, "JAX_PLATFORMS": "cuda"})
    out, err = process.communicate()
    assert process.returncode == 2 and not out
    assert err.startswith("error: JAX cannot start JAX_PLATFORMS=cuda")
    assert len(err.splitlines()) == 1


def test_version(run):
    assert run("--version").out.startswith("spec-jax ")


def test_a_closed_pipe_ends_quietly():
    process = spec_jax("--help")
    process.stdout.close()  # before anything is printed
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 141
    assert not error


def test_the_module_is_the_program():
    process = spec_jax("evalute")
    out, err = process.communicate()
    assert process.returncode == 2
    assert not out
    assert err == "error: no command 'evalute'; did you mean evaluate?\n"
