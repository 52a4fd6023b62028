"""Pairs from gettext catalogues: translated manuals (PO) and interfaces (MO)."""

import re
from collections.abc import Iterator
from pathlib import Path

from spec_jax.data.corpora.alignment import PairCollector
from spec_jax.data.corpora.cleaning import normalize_space

_ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&nbsp;": " "}
_OTHER_ENTITY = re.compile(r"&[a-z-]+;")
# Perl's documentation format: C<code>, B<bold>, L<link>; C<< a > b >>.
_POD = re.compile(r"\b[BIFCSXL]<([^<>]*)>")
_POD_DOUBLE = re.compile(r"\b[BIFCSXL]<<+ (.*?) >>+")
_DOCBOOK = re.compile(r"</?[a-z][A-Za-z]*( [^<>]*)?/?>")
_TAG = re.compile(r"<[^<>]{1,60}>")
_ACCELERATOR = re.compile(r"[_~&](?=\w)")


def plain_document_message(message: str) -> str:
    """The text of a manual's message, without Perl's or DocBook's markup.

    Args:
      message: a message of a translated manual.

    Returns:
      Its text; empty for one that refers to another part by a link without text.
    """
    if "<xref" in message or "&ge;" in message:
        return ""
    for _ in range(3):  # the innermost first
        message = _POD.sub(r"\1", message)
    message = _POD_DOUBLE.sub(r"\1", message)
    message = message.replace("E<lt>", "<").replace("E<gt>", ">")
    if "</" in message or "/>" in message:
        message = _DOCBOOK.sub("", message)
    return _plain(message)


def plain_interface_message(message: str) -> str:
    """The text of a label, without tags and the marks of its accelerator key."""
    if "&lt" not in message:
        message = _ACCELERATOR.sub("", message)
    return _plain(_TAG.sub("", message))


def _plain(message: str) -> str:
    for entity, character in _ENTITIES.items():
        message = message.replace(entity, character)
    return normalize_space(message.replace("\\n", " "))


def document_pairs(sources: Path) -> PairCollector:
    """Pairs from the German PO files of translated manuals.

    Args:
      sources: a folder of source packages, each in a folder of its name.

    Returns:
      The pairs, grouped by file.
    """
    collector = PairCollector("doc")
    paths = {*sources.glob("**/po/de.po"), *sources.glob("**/po/de/*.po")}
    for path in sorted(paths):
        group = f"doc/{path.relative_to(sources)}"
        for message, translation in _messages(path):
            english = plain_document_message(message)
            german = plain_document_message(translation)
            _add(collector, group, english, german)
    return collector


def interface_pairs(catalogues: Path) -> PairCollector:
    """Pairs from the German MO files of LibreOffice's user interface.

    Args:
      catalogues: the folder of the MO files.

    Returns:
      The pairs, grouped by file.
    """
    collector = PairCollector("loui")
    for path in sorted(catalogues.glob("*.mo")):
        for message, translation in _messages(path):
            english = plain_interface_message(message)
            german = plain_interface_message(translation)
            _add(collector, f"loui/{path.name}", english, german)
    return collector


def _messages(path: Path) -> Iterator[tuple[str, str]]:
    import polib

    read = polib.mofile if path.suffix == ".mo" else polib.pofile
    for entry in read(str(path)):
        if entry.msgstr and not entry.obsolete and "fuzzy" not in entry.flags:
            yield entry.msgid, entry.msgstr


def _add(collector: PairCollector, group: str, english: str, german: str) -> None:
    if _OTHER_ENTITY.search(english):
        collector.dropped["entity"] += 1
    else:
        collector.add_text(group, "msg", english, german)
