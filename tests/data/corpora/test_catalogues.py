"""Gettext catalogues."""

import polib
import pytest

from spec_jax.data.corpora.catalogues import (
    document_pairs,
    interface_pairs,
    plain_document_message,
    plain_interface_message,
)

PO = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

msgid "The B<dpkg> program installs a package. It asks I<no> questions."
msgstr "Das Programm B<dpkg> installiert ein Paket. Es stellt I<keine> Fragen."

#, fuzzy
msgid "A fuzzy message of the manual"
msgstr "Eine ungenaue Nachricht des Handbuchs"

msgid "Not translated so far"
msgstr ""

msgid "The &arch-title; architecture is supported"
msgstr "Die Architektur &arch-title; wird unterstützt"

#~ msgid "An obsolete message of it"
#~ msgstr "Eine veraltete Nachricht davon"
"""


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("use B<I<name>> here", "use name here"),
        ("run C<< a > b >> now", "run a > b now"),
        ("an E<lt>angleE<gt>", "an <angle>"),
        ("a <emphasis>big</emphasis> one", "a big one"),
        ("see <xref linkend='x'/>", ""),
        ("A &amp; B\\n  C", "A & B C"),
    ],
)
def test_markup_of_manuals_is_removed(message, text):
    assert plain_document_message(message) == text


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("_Save ~As", "Save As"),
        ("&Open", "Open"),
        ("<b>Bold</b> label", "Bold label"),
        ("a &lt; b", "a < b"),
        ("left & right", "left & right"),
    ],
)
def test_markup_of_labels_is_removed(message, text):
    assert plain_interface_message(message) == text


def test_manuals_become_pairs(tmp_path):
    for name in ("dpkg/po/de.po", "dpkg/po/fr.po", "guide/po/de/intro.po"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PO if "de" in name else PO.replace("Paket", "paquet"))
    collector = document_pairs(tmp_path)
    assert [(p.kind, p.en, p.de) for p in collector.pairs[:2]] == [
        (
            "sent",
            "The dpkg program installs a package.",
            "Das Programm dpkg installiert ein Paket.",
        ),
        ("sent", "It asks no questions.", "Es stellt keine Fragen."),
    ]
    groups = {pair.group for pair in collector.pairs}
    assert groups == {"doc/dpkg/po/de.po", "doc/guide/po/de/intro.po"}
    assert collector.dropped == {"entity": 2} and len(collector.pairs) == 4


def test_interfaces_become_pairs(tmp_path):
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.append(
        polib.POEntry(msgctxt="menu", msgid="_Print File", msgstr="Datei _drucken")
    )
    catalogue.save_as_mofile(str(tmp_path / "sw.mo"))
    collector = interface_pairs(tmp_path)
    (pair,) = collector.pairs
    assert (pair.src, pair.group, pair.kind) == ("loui", "loui/sw.mo", "msg")
    assert (pair.en, pair.de) == ("Print File", "Datei drucken")
