"""`spec-jax COMMAND [flags]`: finds the command, runs it, reports errors in a line."""

import dataclasses
import functools
import pathlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from absl import flags

from spec_jax.cli import hosts
from spec_jax.cli.commands import Command, find_command
from spec_jax.cli.errors import UsageError, one_line
from spec_jax.cli.flags import flag_bindings, parse_flags
from spec_jax.cli.runtime import abandon_stdout, prepare_streams, silence
from spec_jax.decoding.tpu import ask_libtpu

INTERNAL_STATUS = 1
USAGE_STATUS = 2
INTERRUPTED_STATUS = 130
CLOSED_PIPE_STATUS = 141
RESUMABLE = (
    "evaluate",
    "sweep",
    "table2",
    "alpha",
    "lenience",
    "train",
    "distill",
)
"""Commands that go on where they were, as does `generate` into a file."""
TO_A_FILE = ("-o", "--output_file", "--gin.INFER_OUTPUT_DIR")


@dataclasses.dataclass(frozen=True)
class Invocation:
    """A command with what the user gave it.

    Attributes:
      command: which.
      flags: its flags' values, by name.
      arguments: its positional arguments.
    """

    command: Command
    flags: flags.FlagValues
    arguments: tuple[str, ...]

    @property
    def gin_files(self) -> list[str]:
        """The files to read, in order."""
        return [self.command.base, *(self.flags.gin_file or ())]

    @property
    def search_folders(self) -> list[str]:
        """Folders of `--gin_search_paths`."""
        given = ",".join(self.flags.gin_search_paths or ())
        return [folder for folder in given.split(",") if folder]

    @functools.cached_property
    def settings(self) -> Any:
        """The command's object as gin files, bindings and flags give it.

        Raises:
          UsageError: if they do not.
        """
        from spec_jax.cli import configuration

        bindings = [
            *(self.flags.gin_bindings or ()),
            *flag_bindings(self.command, self.flags),
        ]
        configuration.configure(
            self.command.name,
            self.gin_files,
            bindings,
            self.search_folders,
            optional=configuration.PATHS if self.flags.dry_run else (),
        )
        return configuration.build(self.command.name)

    def operative_config(self) -> str:
        """What the run used, as a gin file."""
        from spec_jax.cli import configuration

        return configuration.operative_config()


def run(argv: Sequence[str] | None = None) -> None:
    """Entry point; exits with the command's status.

    Args:
      argv: words after the program's name; by default the process's.
    """
    sys.exit(main(sys.argv[1:] if argv is None else argv))


def main(argv: Sequence[str]) -> int:
    """Runs a command line.

    Args:
      argv: words after the program's name.

    Returns:
      0; 2 if the command line, a file or a value is wrong; 1 for what was not
      foreseen; 130 after Ctrl-C; 141 where the reader of the output went away.
    """
    debug = "--debug" in argv
    prepare_streams()
    silence()
    try:
        dispatch(list(argv))
        sys.stdout.flush()
    except KeyboardInterrupt:
        if goes_on(argv):
            print("\ninterrupted: the same command goes on from here", file=sys.stderr)
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        abandon_stdout()
        return CLOSED_PIPE_STATUS
    except Exception as error:
        if debug:
            traceback.print_exc()
        hosts.end_if_lost(error)
        if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
            print(
                f"error: not enough memory ({one_line(error)}): --dry_run tells what "
                "is needed; smaller batches, lengths or GAMMA need less",
                file=sys.stderr,
            )
            return USAGE_STATUS
        if isinstance(error, ValueError | OSError):
            print(f"error: {one_line(error)}", file=sys.stderr)
            return USAGE_STATUS
        advice = "" if debug else "; --debug shows the traceback"
        print(f"internal error: {_with_place(error)}{advice}", file=sys.stderr)
        return INTERNAL_STATUS
    return 0


def goes_on(argv: Sequence[str]) -> bool:
    """Whether a command that was interrupted can be given again to go on."""
    if argv[:1] == ["generate"]:
        return any(word.startswith(TO_A_FILE) for word in argv)
    return bool(argv) and argv[0] in RESUMABLE


def _with_place(error: Exception) -> str:
    """The kind of error, its message, and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{pathlib.Path(frame.filename).name}, line {frame.lineno}"
    return f"{type(error).__name__}: {one_line(error)} ({place})"


def dispatch(argv: list[str]) -> None:
    """Runs a command, or shows help.

    Raises:
      UsageError: for a wrong command line.
    """
    from spec_jax.cli import help as help_texts

    if not argv or argv[0] in ("--help", "-h", "-help", "help"):
        if len(argv) > 1 and argv[0] == "help":
            return dispatch([*argv[1:], "--help"])
        return help_texts.show_overview()
    if argv[0] == "--version":
        return help_texts.show_version()
    if argv[0].startswith("-"):
        raise UsageError(f"want a command first, got {argv[0]}")
    if argv[0] == "data" and len(argv) == 2 and argv[1] in ("--help", "-h"):
        return help_texts.show_overview("data ")
    command, rest = find_command(argv)
    values, arguments = parse_flags(command, rest)
    invocation = Invocation(command, values, tuple(arguments))
    if values.help:
        files = invocation.gin_files if command.base else []
        folders = invocation.search_folders if command.base else []
        return help_texts.show_command(command, files, folders)
    if command.base and values.dry_run:
        from spec_jax.cli import dry_run

        return dry_run.show(invocation)
    ask_libtpu()
    hosts.join(values)
    command.main()(invocation)
    hosts.leave()
