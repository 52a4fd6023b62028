"""Pairs from documents whose two languages have the same element tree.

These are the help of GNOME (Mallard pages) and the Debian reference (HTML made from
DocBook). A document is used where the blocks of text are of the same kinds in order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec_jax.data.corpora.alignment import PairCollector, Unit
from spec_jax.data.corpora.cleaning import normalize_space

_BLOCKS = frozenset("p title desc h1 h2 h3 h4 h5 h6 td th dt li cite".split())
# A block that holds one of these is divided; its parts are the units.
_STRUCTURE = _BLOCKS | frozenset("pre screen ul ol dl table list item steps".split())


def tree_units(root: Any) -> list[Unit]:
    """The innermost blocks of text of an element tree.

    Args:
      root: an lxml element.

    Returns:
      The units in reading order; the kind is the element's name, and one without
      text is kept, so that two trees can be compared.
    """
    return [
        Unit(_name(element), normalize_space("".join(element.itertext())))
        for element in root.iter()
        if _name(element) in _BLOCKS
        and not any(_name(part) in _STRUCTURE for part in element.iterdescendants())
    ]


def _name(element: Any) -> str:
    # Comments and processing instructions have a function for a tag.
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""


def document_tree_pairs(share: Path) -> PairCollector:
    """Pairs from the GNOME help and the Debian reference.

    Args:
      share: the folder with `help/C`, `help/de` and `debian-reference`.

    Returns:
      The pairs, grouped by page or chapter.
    """
    collector = PairCollector("help")
    for group, english, german in [*_mallard_pages(share), *_reference_chapters(share)]:
        if german.exists():
            collector.add_units(group, _read(english), _read(german))
        else:
            collector.dropped["no_german_page"] += 1
    return collector


def _mallard_pages(share: Path) -> Iterator[tuple[str, Path, Path]]:
    folder = share / "help" / "C"
    for english in sorted(folder.glob("**/*.page")):
        page = english.relative_to(folder)
        yield f"gnome/{page.name}", english, share / "help" / "de" / page


def _reference_chapters(share: Path) -> Iterator[tuple[str, Path, Path]]:
    for english in sorted((share / "debian-reference").glob("*.en.html")):
        german = english.with_name(english.name.replace(".en.", ".de."))
        yield f"debref/{english.name}", english, german


def _read(path: Path) -> list[Unit]:
    import lxml.etree
    import lxml.html

    if path.suffix == ".html":
        html = lxml.html.HTMLParser(encoding="utf-8")
        return tree_units(lxml.html.parse(path, html).getroot())
    # Pages are data: no entity is expanded, nothing is fetched.
    xml = lxml.etree.XMLParser(recover=True, resolve_entities=False, no_network=True)
    return tree_units(lxml.etree.parse(path, xml).getroot())
