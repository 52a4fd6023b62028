"""The flags of a command: absl's, with gin's as t5x has them."""

import ast
import functools
import math
import os
import pathlib
import re

from absl import flags

from spec_jax.cli.commands import COMMANDS, HOSTS, Command
from spec_jax.cli.errors import UsageError, did_you_mean
from spec_jax.cli.settings import LARGEST, SMALLEST


def define_flags(command: Command) -> flags.FlagValues:
    """absl flags of one command; flags and positional arguments may mix."""
    values = flags.FlagValues()
    values.set_gnu_getopt(True)
    define = {
        str: flags.DEFINE_string,
        pathlib.Path: flags.DEFINE_string,
        int: functools.partial(
            flags.DEFINE_integer, lower_bound=SMALLEST, upper_bound=LARGEST
        ),
        float: flags.DEFINE_float,
        bool: flags.DEFINE_boolean,
    }
    for flag in command.flags:
        define[flag.kind](
            flag.name,
            flag.default,
            flag.help,
            flag_values=values,
            short_name=flag.short,
        )
    if command.base:
        for name, text in GIN_FLAGS.items():
            flags.DEFINE_multi_string(name, None, text, flag_values=values)
        flags.DEFINE_boolean("dry_run", False, DRY_RUN, flag_values=values)
    flags.DEFINE_boolean("help", False, "", flag_values=values, short_name="h")
    flags.DEFINE_boolean(
        "debug", False, "show the traceback of an error", flag_values=values
    )
    return values


GIN_FLAGS = {
    "gin_file": "a gin file; repeat it, later ones win",
    "gin_search_paths": "folders to look for gin files in, separated by commas",
    "gin_bindings": "a binding; repeat it; wins over every file",
}

DRY_RUN = "print the configuration, shapes and memory; load and write nothing"


def parse_flags(command: Command, arguments: list[str]):
    """Flags and positional arguments.

    Raises:
      UsageError: for an unknown flag, a bad value, a missing flag or a surplus
        argument.
    """
    values = define_flags(command)
    try:
        rest = values(["spec-jax", *_rewrite_gin(arguments)], known_only=False)[1:]
    except flags.Error as error:
        raise UsageError(_flag_message(error, values, command)) from None
    if values.help:
        return values, rest
    for flag in command.flags:
        if flag.kind is pathlib.Path and values[flag.name].value is not None:
            values[flag.name].value = os.path.expanduser(values[flag.name].value)
    missing = [
        f.name for f in command.flags if f.required and values[f.name].value is None
    ]
    if missing:
        raise UsageError(
            f"{command.name} needs --{missing[0]}, for example: {command.example}"
        )
    if rest and not command.arguments:
        raise UsageError(f"{command.name} takes no argument, got {rest[0]!r}")
    return values, rest


def _flag_message(
    error: flags.Error, values: flags.FlagValues, command: Command
) -> str:
    if isinstance(error, flags.UnrecognizedFlagError):
        if error.flagname in (flag.name for flag in HOSTS):
            several = [one.name for one in COMMANDS if set(HOSTS) <= set(one.flags)]
            return (
                f"{command.name} runs in one process, got --{error.flagname}; "
                f"{' and '.join(several)} run in several"
            )
        near = did_you_mean(error.flagname, [n for n in values if len(n) > 1])
        return f"unknown flag --{error.flagname}{near.replace('mean ', 'mean --')}"
    return " ".join(str(error).split())


def _rewrite_gin(arguments: list[str]) -> list[str]:
    """`--gin.NAME=value` as t5x rewrites it, `--gin_bindings=NAME = value`."""
    rewritten, literal = [], False
    for argument in arguments:
        literal = literal or argument == "--"
        if not literal and argument.startswith("--gin."):
            name, equals, value = argument.removeprefix("--gin.").partition("=")
            if not (name and equals):
                raise UsageError(f"want --gin.NAME=value, got {argument}")
            argument = f"--gin_bindings={name} = {quote_bare(value)}"
        rewritten.append(argument)
    return rewritten


def quote_bare(value: str) -> str:
    """A gin value as a shell lets one write it.

    gin wants quotes around a string, which the shell takes away: a bare word or path
    is a string, and numbers between commas are a tuple.

    Example:
      >>> quote_bare("models/target"), quote_bare("0.0,1.0"), quote_bare("16")
      ("'models/target'", '(0.0,1.0)', '16')
    """
    if not value:  # nothing after the = is empty text
        return repr(value)
    try:
        parsed = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return (
            repr(value)
            if re.fullmatch(r"[\w./~:+-][^'\"()\[\]{}@%#]*", value)
            else value
        )
    return f"({value})" if isinstance(parsed, tuple) and value[0] != "(" else value


def flag_bindings(command: Command, values: flags.FlagValues) -> list[str]:
    """What the flags that are short for macros bind.

    Raises:
      UsageError: for infinity and NaN, which gin cannot write.
    """
    given = [
        (flag, values[flag.name].value)
        for flag in command.flags
        if flag.macro and values[flag.name].value is not None
    ]
    for flag, value in given:
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"want a finite --{flag.name}, got {value}")
    return [f"{flag.macro} = {value!r}" for flag, value in given]
