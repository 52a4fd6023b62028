"""gin files and bindings, read in t5x's order: bindings win over every file."""

import contextlib
import dataclasses
import io
import pathlib
import re
import tokenize
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import gin

import spec_jax
from spec_jax.cli.commands import find_command
from spec_jax.cli.configurables import (
    readers,
    register,
    registered_names,
    registered_parameters,
)
from spec_jax.cli.errors import UsageError, did_you_mean, one_line

REQUIRED = "%gin.REQUIRED"
PATHS = ("TARGET_CHECKPOINT", "DRAFT_CHECKPOINT", "VOCABULARY", "MODEL_DIR", "DATA_DIR")
"""Macros that a dry run does without, and all that end in _CHECKPOINT."""
NOT_GIVEN = "(not given)"
"""Stands for them there."""
RENAMED = {
    "TASK": "MIXTURE_OR_TASK_NAME",
    "TASKS": "MIXTURE_OR_TASK_NAME",
    "CHECKPOINT_PATH": "TARGET_CHECKPOINT",
    "DRAFT_CHECKPOINT_PATH": "DRAFT_CHECKPOINT",
}
"""Macros of earlier versions, and of t5x, by their names here."""
PAIR_MACROS = ("TARGET_CHECKPOINT", "DRAFT_CHECKPOINT", "VOCABULARY", "TABLES")
"""What pairs/checkpoints.gin makes a pair of."""
_GIN_ERRORS = (ValueError, SyntaxError, TypeError, ImportError, tokenize.TokenError)
_MACRO = re.compile(r"^([A-Za-z_]\w*)\s*=\s*(.*?)(?:\s+#\s*(.*))?$")
_INCLUDE = re.compile(r"""^\s*include\s+['"]([^'"]+)['"]""")
_STATEMENT = re.compile(r"^(?=[\w./]+\s*(?:=|:\s*$))", re.MULTILINE)
_SCOPED_REFERENCE = re.compile(r"@([\w/]+)/[\w.]+")
_REFERENCE = re.compile(r"%([A-Za-z_]\w*)")
_SCOPED_MACRO = re.compile(r"%([\w/]+/\w+)")
_macro_files: dict[str, str] = {}
"""Which file set a macro of the configuration that gin has now."""


@dataclasses.dataclass(frozen=True)
class Macro:
    """A macro as a gin file defines it.

    Attributes:
      name: as in `%NAME`.
      value: its text.
      help: the comment behind it.
      file: where it stands.
    """

    name: str
    value: str
    help: str
    file: str


def shipped_folder() -> pathlib.Path:
    """gin_configs/: inside the package in a wheel, beside it in a checkout."""
    package = pathlib.Path(spec_jax.__file__).parent
    inside = package / "gin_configs"
    return inside if inside.is_dir() else package.parent / "gin_configs"


def shipped_files() -> list[pathlib.Path]:
    """The shipped gin files, those of t5x's own scripts aside."""
    folder = shipped_folder()
    return sorted({*folder.rglob("*.gin")} - {*folder.glob("t5x/**/*.gin")})


class GinText(NamedTuple):
    """Consecutive lines of a gin file.

    Attributes:
      file: its name.
      line: how many lines come before.
      text: the lines.
      shipped: whether it is one of the package's files.
    """

    file: str
    line: int
    text: str
    shipped: bool = False

    def open(self) -> io.StringIO:
        """What gin reads: it knows its name, and its lines keep their numbers."""
        file = io.StringIO("\n" * self.line + self.text)
        file.name = self.file
        return file


class SearchPath:
    """Where gin files are looked for: here, the given folders, then the shipped ones.

    Args:
      folders: of `--gin_search_paths`.
    """

    def __init__(self, folders: Sequence[str] = ()):
        given = (pathlib.Path(folder).expanduser() for folder in folders)
        self.folders = [pathlib.Path(), *given, shipped_folder()]

    def find(self, name: str, origin: str = "") -> pathlib.Path:
        """The first file of that name.

        Raises:
          UsageError: if there is none; the nearest shipped one is named.
        """
        for folder in self.folders:
            path = folder / pathlib.Path(name).expanduser()
            if path.is_file():
                return path
        known = [str(p.relative_to(shipped_folder())) for p in shipped_files()]
        looked = ", ".join(str(folder) for folder in self.folders[:-1])
        raise UsageError(
            f"no gin file {name}{origin}, looked in {looked} and the shipped "
            f"gin_configs{did_you_mean(name, known)}"
        )

    def texts(self, names: Sequence[str]) -> Iterator["GinText"]:
        """The files' texts in reading order, cut where another file is included."""
        yield from self._texts(names, ())

    def _texts(self, names: Sequence[str], including: tuple[str, ...]):
        for name in names:
            if name in including:
                raise UsageError(f"{name} includes itself: {' > '.join(including)}")
            origin = f" (included by {including[-1]})" if including else ""
            path = self.find(name, origin)
            try:
                lines = path.read_text("utf-8").splitlines(keepends=True)
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"cannot read {path}: {error}") from None
            shipped = path.resolve().is_relative_to(shipped_folder().resolve())
            begin = 0
            for number, line in enumerate(lines):
                if match := _INCLUDE.match(line):
                    yield GinText(name, begin, "".join(lines[begin:number]), shipped)
                    yield from self._texts([match[1]], (*including, name))
                    begin = number + 1
            yield GinText(name, begin, "".join(lines[begin:]), shipped)

    def macros(self, names: Sequence[str]) -> dict[str, Macro]:
        """Every macro that the files define, the last definition of each."""
        found: dict[str, Macro] = {}
        for part in self.texts(names):
            lines = _unindented(part.text).splitlines()
            for match in filter(None, map(_MACRO.match, lines)):
                earlier = found.get(match[1])
                comment = match[3] or (earlier.help if earlier else "")
                found[match[1]] = Macro(match[1], match[2], comment, part.file)
        return found


def configure(
    command: str,
    files: Sequence[str],
    bindings: Sequence[str],
    search_folders: Sequence[str] = (),
    optional: Sequence[str] = (),
) -> None:
    """Reads files, then bindings, into gin; what another run left is forgotten.

    Args:
      command: for messages.
      files: gin files; a later one wins.
      bindings: single bindings; they win over every file.
      search_folders: where files are looked for before the shipped ones.
      optional: macros that need no value; without one they are NOT_GIVEN.

    Raises:
      UsageError: a file is missing or wrong, a name is unknown, or a macro that is
        needed has no value.
    """
    search = SearchPath(search_folders)
    parts = list(search.texts(files))
    macros = search.macros(files)
    text = "\n".join([*(part.text for part in parts), *bindings])
    users_text = "\n".join(part.text for part in parts if not part.shipped)
    read = set(_REFERENCE.findall(text))
    _check_files(command, macros, read)
    bound = _check_bindings(command, bindings, macros, read)
    _check_scopes(text)
    used = {*_scopes_used(_effective(text, read)), *_scopes_used(users_text)}
    for one in (users_text, *bindings):
        _check_bound_scopes(one, used)
    # Not gin's own search for files: it logs an error for each place it tries.
    gin.clear_config(clear_constants=True)
    register(command)
    place = ""
    try:
        for part in parts:
            place = part.file
            gin.parse_config(part.open())
        place = ""
        for binding in bindings:
            gin.parse_config(binding)
        missing = []
        for macro in macros.values():
            if macro.value != REQUIRED or macro.name in bound:
                continue
            weights = bool(optional) and macro.name.endswith("_CHECKPOINT")
            if macro.name in read.difference(optional) and not weights:
                missing.append(macro)
            else:
                gin.parse_config(f"{macro.name} = {NOT_GIVEN!r}")
        if missing:
            raise UsageError(_missing_message(command, missing))
        gin.finalize()
        _macro_files.clear()
        _macro_files.update((m.name, m.file) for m in macros.values())
        _macro_files.update(dict.fromkeys(bound, ""))
    except UsageError:
        raise
    except _GIN_ERRORS as error:
        raise UsageError(explain(error, command, place)) from error


def build(name: str):
    """The object that the configuration gives to a registered name.

    Raises:
      UsageError: if a value is of the wrong type or out of range.
    """
    try:  # gin's names have no hyphen
        return gin.get_configurable(name.replace("-", "_"))()
    except (ValueError, TypeError) as error:
        raise UsageError(explain(error, name) + _origin(error)) from error


def _origin(error: BaseException) -> str:
    """' (GAMMA in my.gin)': the macro that gave a value of the wrong type, or ''."""
    wrong = re.match(r"([\w]+\.\w+) wants ", one_line(error))
    try:
        value = repr(gin.query_parameter(wrong[1])) if wrong else ""
    except ValueError:  # bound in a scope, or not at all
        return ""
    if not value.startswith("%"):
        return ""
    file = _macro_files.get(value[1:], "")
    return f" ({value[1:]} in {file})" if file else f" ({value[1:]})"


def unlocked() -> contextlib.AbstractContextManager[None]:
    """Lets modules that are imported in it register with gin, as t5x's do."""
    return gin.unlock_config()


def operative_config() -> str:
    """What the run used, as a gin file."""
    return gin.operative_config_str()


def _check_files(command: str, macros: dict[str, Macro], read: set[str]) -> None:
    """Sees to it that a user's files set no macro that no command knows.

    One that another command reads is passed over, as a file may serve several; but
    where a pair is loaded, models that it is not made of would be a mistake.
    """
    unread = [macro for macro in macros.values() if macro.name not in read]
    known = _shipped_macros() if unread else {}
    for macro in unread:
        of_pair = macro.name in PAIR_MACROS and "PAIR" in read
        if macro.name not in known or of_pair:
            said = _unread(command, macro.name, read & {*macros})
            raise UsageError(f"{macro.file}: {said}")


def _check_bindings(
    command: str, bindings: Sequence[str], macros: dict[str, Macro], read: set[str]
) -> set[str]:
    """The macros that bindings set; each must mean something."""
    bound = {match[1] for b in bindings if (match := _MACRO.match(b.strip()))}
    for name in sorted(bound - read):
        raise UsageError(_unread(command, name, read & {*macros}))
    return bound


def _check_scopes(text: str) -> None:
    """Sees to it that a scope that is referred to is one that something is bound in."""
    bound = {key.rpartition("/")[0] for key, _ in _statements(text) if "." in key}
    for scope in _SCOPED_REFERENCE.findall(_without_comments(text)):
        if scope not in bound:
            near = did_you_mean(scope, bound - {""})
            raise UsageError(f"nothing is bound in the scope {scope}{near}")


def _check_bound_scopes(text: str, used: set[str]) -> None:
    """Sees to it that a scope that is bound in is referred to: gin passes it over.

    What is bound in a scope holds in those below it too.
    """
    for key, _ in _statements(text):
        scope = key.rpartition("/")[0]
        is_macro = "." not in key
        within = (
            {key} if is_macro else {s for s in used if f"{s}/".startswith(f"{scope}/")}
        )
        if not scope or within & used:
            continue
        near = did_you_mean(key if is_macro else scope, used)
        there = ", ".join(sorted(used)) or "no scope"
        raise UsageError(
            f"nothing refers to the scope of {key}{near}; referred to: {there}"
        )


def _scopes_used(text: str) -> set[str]:
    """The scopes, and the macros with one, that a text refers to."""
    text = _without_comments(text)
    return {*_SCOPED_REFERENCE.findall(text), *_SCOPED_MACRO.findall(text)}


def _effective(text: str, read: set[str]) -> str:
    """The statements that nothing later replaces, but for macros that are not read."""
    last = {
        # A block binds several parameters, so that another of its name adds to it.
        (key, number if key.endswith("*") else 0): statement
        for number, (key, statement) in enumerate(_statements(text))
        if "." in key or "/" in key or key in read
    }
    return "\n".join(last.values())


def _statements(text: str) -> list[tuple[str, str]]:
    """Each statement after what it binds; of `NAME:`, what stands below it is part."""
    found = []
    for statement in _STATEMENT.split(_without_comments(_unindented(text))):
        if match := re.match(r"([\w./]+)\s*(=|:)", statement):
            key = match[1] if match[2] == "=" else f"{match[1]}.*"
            found.append((key, statement))
    return found


def _without_comments(text: str) -> str:
    return "\n".join(line.partition("#")[0] for line in text.splitlines())


def _unindented(text: str) -> str:
    """gin takes a statement that is indented; below `NAME:` they stay so."""
    lines, in_block = [], False
    for line in text.splitlines():
        bare = line.strip()
        if bare and line[0] not in " \t":
            in_block = bool(re.match(r"[\w./]+\s*:\s*(#.*)?$", line))
        lines.append(line if in_block else bare)
    return "\n".join(lines)


def _unread(command: str, name: str, known: set[str]) -> str:
    """What is said of a macro that nothing reads."""
    if name in RENAMED:
        return f"no macro {name}; did you mean {RENAMED[name]}?"
    if name in PAIR_MACROS and "PAIR" in known:
        return (
            f"{command} reads no macro {name} here: include 'pairs/checkpoints.gin', "
            "which makes a pair of it"
        )
    if file := _shipped_macros().get(name):
        return f"{command} reads no macro {name} here; {file} is a file that has it"
    listed = f"; there are {', '.join(sorted(known))}"
    return f"no macro {name}{did_you_mean(name, known) or listed}"


def _shipped_macros() -> dict[str, str]:
    """Every macro of the shipped files, and the first file that has it."""
    found: dict[str, str] = {}
    for path in shipped_files():
        for match in filter(None, map(_MACRO.match, path.read_text().splitlines())):
            found.setdefault(match[1], str(path.relative_to(shipped_folder())))
    return found


def _missing_message(command: str, missing: Sequence[Macro]) -> str:
    if len(missing) == 1:
        macro = missing[0]
        about = f" ({macro.help})" if macro.help else ""
        return f"{command} needs {macro.name}{about}: give --gin.{macro.name}=..."
    names = ", ".join(macro.name for macro in missing)
    example = find_command([command])[0].example
    return f"{command} needs {names}, for example: {example}"


def explain(error: BaseException, command: str = "", file: str = "") -> str:
    """gin's message in one line, with the place, and the nearest right name.

    Args:
      error: of gin.
      command: whose files they are.
      file: in which it was found, where the error does not say it.
    """
    if isinstance(error, tokenize.TokenError):
        where = f"{file}, line {error.args[1][0]}: " if file else ""
        return f"{where}no gin syntax: {error.args[0]}"
    if isinstance(error, SyntaxError):
        place = f"{(error.text or '').strip()!r}: "
        if error.filename:
            place = f"{error.filename}, line {error.lineno}: "
        bare = re.search(r"Failed to parse token '(.+)'", error.msg)
        said = f"{bare[1]} is no value; text wants quotes" if bare else error.msg
        return f"{place}no gin syntax: {said}"
    message = one_line(error).removesuffix(" ^")
    message = re.sub(r"\.? In bindings string line 1 ", ": ", message)
    if unbound := re.search(r"No bindings specified for '(\w+)/gin\.macro'", message):
        bound = re.findall(r"^(\w+) = ", gin.config_str(), re.MULTILINE)
        return f"no macro {unbound[1]} is bound{did_you_mean(unbound[1], bound)}"
    unknown = re.search(
        r"No configurable matching (?:reference )?'@?([^']+?)(?:\(\))?'", message
    )
    if unknown:
        name = unknown[1].rpartition("/")[2]
        if others := readers(name):
            message += f"; {', '.join(others)} can read it, {command} does not"
        else:
            message += did_you_mean(name, registered_names())
    wrong = re.search(
        r"Configurable '([^']+)' doesn't have a parameter named '(.+?)'", message
    )
    if wrong:
        message += did_you_mean(wrong[2], registered_parameters(wrong[1]))
    return message
