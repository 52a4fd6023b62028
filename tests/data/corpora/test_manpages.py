"""Manual pages: roff to text, pages to units, pages to pairs."""

import gzip

import pytest

from spec_jax.data.corpora.alignment import Unit
from spec_jax.data.corpora.manpages import manual_page_pairs, parse_page
from spec_jax.data.corpora.roff import parse_arguments, plain_text

ENGLISH = r"""
.\" a comment
.TH COPYTOOL 1 2024
.SH NAME
copytool \- copy files slowly
.SH SYNOPSIS
.B copytool
[\fIOPTION\fR] FILE
.SH DESCRIPTION
The program copies
.IR files ,
one byte at a time. It never overwrites a file.
.PP
.nf
copytool a b
.fi
Second paragraph about the \fBconfiguration\fP file.
.TP
.BR \-v ", " \-\-verbose
Tell what is being done.
.IP \(bu 2
A list entry with a bullet in front.
.SH AUTHOR
Somebody wrote this little program.
"""

GERMAN = r"""
.TH COPYTOOL 1 2024
.SH BEZEICHNUNG
copytool \- Dateien langsam kopieren
.SH ÜBERSICHT
.B copytool
[\fIOPTION\fR] DATEI
.SH BESCHREIBUNG
Das Programm kopiert
.IR Dateien ,
ein Byte nach dem anderen. Es überschreibt niemals eine Datei.
.PP
.nf
copytool a b
.fi
Zweiter Absatz über die Datei für die \fBKonfiguration\fP.
.TP
.BR \-v ", " \-\-verbose
Mitteilen, was gerade getan wird.
.IP \(bu 2
Ein Listeneintrag mit einem Punkt davor.
.SH AUTOR
Jemand hat dieses kleine Programm geschrieben.
.SH ÜBERSETZUNG
Die deutsche Übersetzung wurde von jemandem erstellt.
"""


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\fB\-\-all\fR", "--all"),
        (r"\f(CWcode\f[R] \s-1SMALL\s0", "code SMALL"),
        (r"it\(aqs \[lq]so\[rq] \(em or \[u00FC]", "it's “so” — or ü"),
        (r"\(FcText\(Fo", "»Text«"),
        (r"a\ b\~c\&d\/e", "a b cde"),
        (r"C:\edir\(rsfile", "C:\\dir\\file"),
        (r"kept \" a comment", "kept "),
        (r"\*(lqquoted\*(rq", '"quoted"'),
        (r"\(zz", r"\(zz"),
    ],
)
def test_escapes_become_text(source, text):
    assert plain_text(source) == text


def test_arguments_may_be_quoted():
    assert parse_arguments(r'one "two  words" a\ b "say ""hi"""') == [
        "one",
        "two  words",
        "a b",
        'say "hi"',
    ]


def test_a_page_is_sections_of_units():
    name, synopsis, description, author = parse_page(ENGLISH)
    assert name == [Unit("SH", "NAME"), Unit("p", "copytool - copy files slowly")]
    assert synopsis[1] == Unit("p", "copytool [OPTION] FILE")
    assert description == [
        Unit("SH", "DESCRIPTION"),
        Unit(
            "p",
            "The program copies files, one byte at a time. It never overwrites a file.",
        ),
        Unit("verbatim", ""),
        Unit("p", "Second paragraph about the configuration file."),
        Unit("tag", "-v, --verbose"),
        Unit("item", "Tell what is being done."),
        Unit("item", "A list entry with a bullet in front."),
    ]
    assert author[0].text == "AUTHOR"


def test_a_macro_definition_is_not_text():
    page = ".SH NAME\n.de XX\nnot text\n..\ntool - text after it\n"
    assert parse_page(page)[0][1:] == [Unit("p", "tool - text after it")]


def test_pages_in_other_macros_are_not_read():
    assert parse_page(".Sh NAME\ntext") is None
    assert parse_page(".so man1/other.1") is None


def write_page(root, name, source, encoding="utf-8"):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(source.encode(encoding)))


def test_pages_become_pairs(tmp_path):
    write_page(tmp_path, "man1/copytool.1.gz", ENGLISH)
    write_page(tmp_path, "de/man1/copytool.1.gz", GERMAN, "latin-1")
    write_page(tmp_path, "de/man1/lonely.1.gz", GERMAN)
    collector, pages = manual_page_pairs(tmp_path)
    assert pages == {"used": 1, "no_english_page": 1}
    assert {pair.group for pair in collector.pairs} == {"man/man1/copytool.1.gz"}
    pairs = [(pair.kind, pair.en, pair.de) for pair in collector.pairs]
    assert pairs == [
        ("SH", "NAME", "BEZEICHNUNG"),
        ("p", "copytool - copy files slowly", "copytool - Dateien langsam kopieren"),
        ("SH", "DESCRIPTION", "BESCHREIBUNG"),
        (
            "sent",
            "The program copies files, one byte at a time.",
            "Das Programm kopiert Dateien, ein Byte nach dem anderen.",
        ),
        (
            "sent",
            "It never overwrites a file.",
            "Es überschreibt niemals eine Datei.",
        ),
        (
            "p",
            "Second paragraph about the configuration file.",
            "Zweiter Absatz über die Datei für die Konfiguration.",
        ),
        ("item", "Tell what is being done.", "Mitteilen, was gerade getan wird."),
        (
            "item",
            "A list entry with a bullet in front.",
            "Ein Listeneintrag mit einem Punkt davor.",
        ),
    ]


def test_a_section_of_another_shape_is_dropped_alone(tmp_path):
    write_page(tmp_path, "man1/copytool.1.gz", ENGLISH)
    changed = GERMAN.replace(".PP\n.nf", "Noch mehr.\n.PP\nMehr Text.\n.PP\n.nf")
    write_page(tmp_path, "de/man1/copytool.1.gz", changed)
    collector, _ = manual_page_pairs(tmp_path)
    assert [pair.kind for pair in collector.pairs] == ["SH", "p"]
    assert collector.dropped["structure_differs"] == 1


def test_a_page_with_another_number_of_sections_is_dropped(tmp_path):
    write_page(tmp_path, "man1/copytool.1.gz", ENGLISH)
    changed = GERMAN.replace(".SH AUTOR", ".SH FEHLER\nKeine.\n.SH AUTOR")
    write_page(tmp_path, "de/man1/copytool.1.gz", changed)
    collector, pages = manual_page_pairs(tmp_path)
    assert pages == {"sections_differ": 1} and not collector.pairs
