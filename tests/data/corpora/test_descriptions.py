"""Package descriptions: stanzas, units, pairs and summaries."""

from spec_jax.data.corpora.alignment import Unit
from spec_jax.data.corpora.descriptions import (
    DescriptionIndex,
    description_pairs,
    description_summaries,
    parse_description,
    read_index,
    read_stanzas,
)

ENGLISH = """tool for copying files
 This program copies files from one place to
 another. It never loses one.
 .
 Features:
  * keeps the dates of
    every file
  * is easy to use
 .
   verbatim --example"""

GERMAN = """Werkzeug zum Kopieren von Dateien
 Dieses Programm kopiert Dateien von einem Ort zu
 einem anderen. Es verliert niemals eine.
 .
 Funktionen:
  * bewahrt das Datum von
    jeder Datei
  * ist einfach zu verwenden
 .
   verbatim --example"""


def test_stanzas_continue_over_lines():
    text = "Package: a\nDescription-en: short\n long\n .\n more\n\n\nPackage: b\n"
    assert list(read_stanzas(text.splitlines(keepends=True))) == [
        {"Package": "a", "Description-en": "short\n long\n .\n more"},
        {"Package": "b"},
    ]


def test_a_description_is_paragraphs_of_units():
    description = parse_description(ENGLISH)
    assert description.synopsis == "tool for copying files"
    assert description.paragraphs == (
        (
            Unit(
                "text",
                "This program copies files from one place to another. "
                "It never loses one.",
            ),
        ),
        (
            Unit("text", "Features:"),
            Unit("bullet", "keeps the dates of every file"),
            Unit("bullet", "is easy to use"),
        ),
        (Unit("verbatim", "verbatim --example"),),
    )


def pairs_of(german):
    index = DescriptionIndex({"m": ENGLISH}, {"m": german}, {"m": "copytool"})
    return description_pairs(index)


def test_descriptions_become_pairs():
    pairs = pairs_of(GERMAN).pairs
    assert [(pair.kind, pair.en, pair.de) for pair in pairs] == [
        ("short", "tool for copying files", "Werkzeug zum Kopieren von Dateien"),
        (
            "sent",
            "This program copies files from one place to another.",
            "Dieses Programm kopiert Dateien von einem Ort zu einem anderen.",
        ),
        ("sent", "It never loses one.", "Es verliert niemals eine."),
        ("para1", "Features:", "Funktionen:"),
        (
            "bullet",
            "keeps the dates of every file",
            "bewahrt das Datum von jeder Datei",
        ),
        ("bullet", "is easy to use", "ist einfach zu verwenden"),
    ]
    assert {(pair.src, pair.group) for pair in pairs} == {("ddtp", "copytool")}


def test_another_number_of_paragraphs_leaves_the_synopsis():
    collector = pairs_of("\n".join(GERMAN.split("\n")[:3]))
    assert [pair.kind for pair in collector.pairs] == ["short"]
    assert collector.dropped["paragraphs_differ"] == 1


def test_untranslated_parts_are_dropped():
    collector = pairs_of(GERMAN.replace("ist einfach zu verwenden", "<trans>"))
    assert collector.dropped["untranslated"] == 1
    assert "is easy to use" not in {pair.en for pair in collector.pairs}


def write_lists(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "host_Packages").write_text(
        "Package: copytool-data\nSource: copytool (1.0)\n\nPackage: other\n"
    )
    (folder / "host_Translation-en").write_text(
        f"Package: copytool-data\nDescription-md5: m1\nDescription-en: {ENGLISH}\n\n"
        "Package: zother\nDescription-md5: m1\nDescription-en: same text\n\n"
        "Package: other\nDescription-md5: m2\nDescription-en: something else\n"
    )
    (folder / "host_Translation-de").write_text(
        f"Package: copytool-data\nDescription-md5: m1\nDescription-de: {GERMAN}\n\n"
        "Package: gone\nDescription-md5: m9\nDescription-de: fehlt\n"
    )


def test_the_index_groups_by_source_package(tmp_path):
    write_lists(tmp_path)
    index = read_index(tmp_path)
    assert index.group == {"m1": "copytool", "m2": "other"}
    assert index.german["m1"] == GERMAN
    collector = description_pairs(index)
    assert collector.dropped["no_english"] == 1


def summaries_of(**texts):
    return description_summaries(DescriptionIndex(texts, {}, {m: m for m in texts}))


LONG = (
    " It watches a folder and copies every new file to another machine,\n"
    " where the copies are kept for as many days as the user has chosen."
)


def test_the_synopsis_is_the_summary():
    rows, _ = summaries_of(a=f"backup tool for folders\n{LONG}\n .\n  * is small")
    assert [row.summary for row in rows] == ["backup tool for folders"]
    assert rows[0].group == "a"
    assert rows[0].document.split("\n")[1] == "- is small"
    assert "machine, where" in rows[0].document


def test_unfit_descriptions_are_dropped_with_a_reason():
    rows, dropped = summaries_of(
        short="a tool for copying\n Small.",
        dummy=f"transitional package\n{LONG}",
        copied=f"copies every new file\n{LONG}",
        wordy=f"{'very ' * 12}long synopsis\n{LONG}",
    )
    assert rows == []
    assert {reason: n for reason, n in dropped.items() if n} == {
        "too_short": 1,
        "transitional": 1,
        "copy": 1,
        "summary_copied": 1,
    }


def test_near_copies_keep_the_first():
    rows, dropped = summaries_of(
        a=f"backup tool for folders\n{LONG} It has many options to choose from too.",
        b=f"another backup tool\n{LONG} It has many options to choose from as well.",
    )
    assert [row.group for row in rows] == ["a"] and dropped["near_copy"] == 1


def test_paragraphs_of_many_packages_are_removed():
    common = " .\n This text is found in each of the many packages of one family.\n"
    texts = {
        f"p{i}": f"tool number {'x' * i}a\n{common} .\n"
        + "".join(
            f" word{'abcdefghijklmnopqrstuvwxyz'[i]}{j}z{'y' * j}" for j in range(30)
        )
        for i in range(20)
    }
    rows, _ = summaries_of(**texts)
    assert len(rows) == 20
    assert not any("found in each" in row.document for row in rows)
    fewer, _ = summaries_of(**dict(list(texts.items())[:19]))
    assert all("found in each" in row.document for row in fewer)
