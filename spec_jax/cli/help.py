"""Help texts: the overview, and one page a command."""

import importlib.metadata
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spec_jax.cli.commands import COMMANDS, Command
from spec_jax.cli.flags import DRY_RUN, GIN_FLAGS
from spec_jax.cli.terminal import make_console

_NAME = "bold cyan"
_EXAMPLE = "green"


def show_overview(beginning: str = "") -> None:
    """Prints what commands there are, with an example each.

    Args:
      beginning: only commands whose names begin like this.
    """
    console = make_console()
    console.print(
        Text.assemble(("spec-jax", "bold"), "  speculative decoding in JAX"), end="\n\n"
    )
    for command in COMMANDS:
        if command.name.startswith(beginning):
            console.print(
                Text.assemble((f"  {command.name:<18}", _NAME), command.summary)
            )
            console.print(_command_line(command.example, indent=4), soft_wrap=True)
    console.print()
    console.print("  spec-jax COMMAND --help shows a command's flags.")


def show_version() -> None:
    """Prints the versions of the package and of what it computes with."""
    import jax

    print(f"spec-jax {_version()} (jax {jax.__version__})")


def show_command(
    command: Command, gin_files: Sequence[str], search_folders: Sequence[str]
) -> None:
    """Prints a command's flags, and the macros of its gin files."""
    console = make_console()
    usage = f"spec-jax {command.name} [flags] {command.arguments}".rstrip()
    console.print(Text.assemble((usage, "bold"), f"\n  {command.summary}"), end="\n\n")
    console.print(_command_line(command.example, indent=2), soft_wrap=True)
    console.print()
    rows = [(_flag_name(flag), flag.help) for flag in command.flags]
    if command.base:
        rows.append(
            ("--gin.NAME=VALUE", "sets a macro (below) or a binding; repeat it")
        )
        rows += [(f"--{name}", text) for name, text in GIN_FLAGS.items()]
        rows.append(("--dry_run", DRY_RUN))
    rows.append(("--debug", "show the traceback of an error"))
    _print_table(console, "flags", rows)
    if command.base:
        from spec_jax.cli.configuration import REQUIRED, SearchPath

        search = SearchPath(search_folders)
        own = search.macros([command.base]).values()
        own = {macro.name for macro in own if macro.file == command.base}
        # The command's own before those of the files that it includes.
        macros = sorted(
            search.macros(gin_files).values(), key=lambda macro: macro.name not in own
        )
        rows = []
        for macro in macros:
            value = "needed" if macro.value == REQUIRED else macro.value
            rows.append((f"{macro.name}", f"{macro.help} [{value}]".strip()))
        console.print()
        _print_table(console, f"macros of {', '.join(gin_files)}", rows)


def _print_table(console: Console, title: str, rows: Sequence[tuple[str, str]]) -> None:
    console.print(Text(title, "bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style=_NAME, no_wrap=True)
    table.add_column(ratio=1)
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(Padding(table, (0, 0, 0, 2)))


def _flag_name(flag) -> str:
    short = f"-{flag.short}, " if flag.short else ""
    value = "" if flag.kind is bool else f"={flag.kind.__name__.upper()}"
    return f"{short}--{flag.name}{value}"


def _command_line(line: str, indent: int) -> Text:
    return Text(" " * indent + "$ " + line, _EXAMPLE)


def _version() -> str:
    try:
        return importlib.metadata.version("spec_jax")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
