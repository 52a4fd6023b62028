"""Pairs from the help of LibreOffice: English and German pages with shared ids."""

from pathlib import Path

from spec_jax.data.corpora.alignment import PairCollector, Unit
from spec_jax.data.corpora.cleaning import normalize_space

_BLOCKS = ("p", "h1", "h2", "h3", "h4", "h5", "h6")
# Text for macOS stands beside that for other systems, of which a browser shows one.
_MAC_VARIANT = './/span[starts-with(@id, "MAC") or @class="MAC" or @class="SYSTEM_MAC"]'


def read_help_page(path: Path) -> dict[str, Unit]:
    """Reads the paragraphs and headings of a help page.

    Args:
      path: an HTML page.

    Returns:
      Its units by their id, without program code and empty ones. The kind is the
      element's class, or its tag where it has none.
    """
    import lxml.html

    parser = lxml.html.HTMLParser(encoding="utf-8")
    units: dict[str, Unit] = {}
    for element in lxml.html.parse(path, parser).getroot().iter(*_BLOCKS):
        identity, kind = element.get("id"), element.get("class") or element.tag
        if not identity or "code" in (element.get("class") or ""):
            continue
        for variant in element.xpath(_MAC_VARIANT):
            variant.drop_tree()
        text = normalize_space(element.text_content())
        if text:
            units.setdefault(identity, Unit(kind, text))
    return units


def libreoffice_help_pairs(help_folder: Path) -> PairCollector:
    """Aligns all pages that are there in both languages.

    Args:
      help_folder: the folder with `en-US/text` and `de/text`.

    Returns:
      The pairs, grouped by page.
    """
    collector = PairCollector("lohelp")
    english_folder, german_folder = (help_folder / l / "text" for l in ("en-US", "de"))
    for english_path in sorted(english_folder.glob("**/*.html")):
        page = english_path.relative_to(english_folder)
        if not (german_folder / page).exists():
            collector.dropped["no_german_page"] += 1
            continue
        english = read_help_page(english_path)
        german = read_help_page(german_folder / page)
        for identity, unit in english.items():
            if identity in german:
                text = german[identity].text
                collector.add_text(f"lohelp/{page}", unit.kind, unit.text, text)
            else:
                collector.dropped["no_german_unit"] += 1
    return collector
