"""Plain text of manual page source: escapes replaced, arguments divided."""

import re

_COMMENT = re.compile(r'\\".*')
_FONT = re.compile(r"\\f(\(..|\[[^\]]*\]|.)")
_SIZE_OR_MOTION = re.compile(r"\\s[-+]?\d+|\\[hvwklLoDzZ]'[^']*'|\\m\[[^\]]*\]")
_STRING = re.compile(r"\\\*\((lq|rq|Aq)")
_NAMED = re.compile(r"\\\((..)|\\\[([^\]]+)\]")
_INVISIBLE = re.compile(r"\\[&|^/,:%)c]")
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"|(\S+)')

_BACKSLASH = "\0"  # stands for itself until every escape is read
_CHARACTERS = {
    "em": "—", "en": "–", "aq": "'", "cq": "'", "oq": "'", "dq": '"', "lq": "“",
    "rq": "”", "bu": "•", "co": "©", "ti": "~", "ha": "^", "rs": _BACKSLASH,
    "ga": "`", "mu": "×", ">=": "≥", "<=": "≤", "->": "→", "Fo": "«", "Fc": "»",
    "at": "@", "hy": "-", "de": "°", "+-": "±",
}  # fmt: skip
_SIMPLE = {
    r"\-": "-", r"\ ": " ", r"\~": " ", r"\0": " ", r"\e": _BACKSLASH, r"\.": ".",
    r"\'": "'", r"\`": "`",
}  # fmt: skip


def plain_text(source: str) -> str:
    r"""The text that roff source stands for, without fonts and sizes.

    Args:
      source: a line or an argument, e.g. ``\fB\-\-all\fR``.

    Returns:
      Its text, e.g. ``--all``. Unknown named characters are left as they are.
    """
    text = _COMMENT.sub("", source)
    text = _FONT.sub("", text)
    text = _SIZE_OR_MOTION.sub("", text)
    text = _STRING.sub(lambda m: "'" if m[1] == "Aq" else '"', text)
    text = _NAMED.sub(_named_character, text)
    text = re.sub(r"\\[- ~0e.'`]", lambda m: _SIMPLE[m[0]], text)
    return _INVISIBLE.sub("", text).replace(_BACKSLASH, "\\")


def _named_character(escape: re.Match[str]) -> str:
    name = escape[1] or escape[2]
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if re.fullmatch(r"u[0-9A-Fa-f]{4,5}", name):
        return chr(int(name[1:], 16))
    return escape[0]


def parse_arguments(rest: str) -> list[str]:
    """Divides what follows a macro's name into its arguments.

    Args:
      rest: words; one in double quotes may hold spaces, and two double quotes in it
        are one.

    Returns:
      The arguments, with escaped spaces as plain ones.
    """
    found = _ARGUMENT.findall(rest.replace("\\ ", "\0"))
    return [
        (quoted or bare).replace('""', '"').replace("\0", " ") for quoted, bare in found
    ]
