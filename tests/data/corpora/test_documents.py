"""HTML and XML documents, and gettext catalogues."""

from spec_jax.data.corpora.alignment import Unit
from spec_jax.data.corpora.documents import document_tree_pairs
from spec_jax.data.corpora.libreoffice import libreoffice_help_pairs, read_help_page

ENGLISH_HELP = """<html><body>
<h1 id="h">Copying Cells</h1>
<p id="a" class="paragraph">Choose <b>Edit</b>
 first. The cells are copied <span class="MAC">with Command</span>now.</p>
<p id="c" class="code">print 1</p>
<p>without an id</p>
<p id="only" class="paragraph">Only in the English page.</p>
</body></html>"""
GERMAN_HELP = """<html><body>
<h1 id="h">Zellen kopieren</h1>
<p id="a" class="paragraph">Wählen Sie zuerst <b>Bearbeiten</b>.
 Die Zellen werden <span class="MAC">mit Befehl</span>nun kopiert.</p>
<p id="c" class="code">print 1</p>
</body></html>"""

ENGLISH_MALLARD = """<page xmlns="http://projectmallard.org/1.0/">
<title>Take a picture</title><!-- a comment -->
<list><item><p>Press the <key>Print</key> key on the keyboard.</p></item></list>
<p>Some &lt;text&gt; of the page.</p>
</page>"""
GERMAN_MALLARD = """<page xmlns="http://projectmallard.org/1.0/">
<title>Ein Bild aufnehmen</title>
<list><item><p>Drücken Sie die Taste <key>Druck</key> der Tastatur.</p></item></list>
<p>Etwas &lt;Text&gt; der Seite.</p>
</page>"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_help_page_is_units_by_id(tmp_path):
    write(tmp_path / "page.html", ENGLISH_HELP)
    assert read_help_page(tmp_path / "page.html") == {
        "h": Unit("h1", "Copying Cells"),
        "a": Unit("paragraph", "Choose Edit first. The cells are copied now."),
        "only": Unit("paragraph", "Only in the English page."),
    }


def test_help_pages_become_pairs(tmp_path):
    write(tmp_path / "en-US/text/scalc/copy.html", ENGLISH_HELP)
    write(tmp_path / "de/text/scalc/copy.html", GERMAN_HELP)
    write(tmp_path / "en-US/text/scalc/alone.html", ENGLISH_HELP)
    collector = libreoffice_help_pairs(tmp_path)
    assert [(p.group, p.kind, p.en, p.de) for p in collector.pairs] == [
        ("lohelp/scalc/copy.html", "h1", "Copying Cells", "Zellen kopieren"),
        (
            "lohelp/scalc/copy.html",
            "sent",
            "Choose Edit first.",
            "Wählen Sie zuerst Bearbeiten.",
        ),
        (
            "lohelp/scalc/copy.html",
            "sent",
            "The cells are copied now.",
            "Die Zellen werden nun kopiert.",
        ),
    ]
    assert collector.dropped == {"no_german_page": 1, "no_german_unit": 1}


def test_element_trees_become_pairs(tmp_path):
    write(tmp_path / "help/C/guide/picture.page", ENGLISH_MALLARD)
    write(tmp_path / "help/de/guide/picture.page", GERMAN_MALLARD)
    write(
        tmp_path / "debian-reference/ch01.en.html",
        "<h1>Basics</h1><p>The first chapter.</p><pre>ls</pre>",
    )
    write(
        tmp_path / "debian-reference/ch01.de.html",
        "<h1>Grundlagen</h1><p>Das erste Kapitel.</p><pre>ls</pre>",
    )
    write(tmp_path / "debian-reference/ch02.en.html", "<p>No translation.</p>")
    collector = document_tree_pairs(tmp_path)
    assert [(p.group, p.kind, p.en, p.de) for p in collector.pairs] == [
        ("gnome/picture.page", "title", "Take a picture", "Ein Bild aufnehmen"),
        (
            "gnome/picture.page",
            "p",
            "Press the Print key on the keyboard.",
            "Drücken Sie die Taste Druck der Tastatur.",
        ),
        (
            "gnome/picture.page",
            "p",
            "Some <text> of the page.",
            "Etwas <Text> der Seite.",
        ),
        ("debref/ch01.en.html", "h1", "Basics", "Grundlagen"),
        ("debref/ch01.en.html", "p", "The first chapter.", "Das erste Kapitel."),
    ]
    assert collector.dropped == {"no_german_page": 1}


def test_another_element_tree_is_dropped_whole(tmp_path):
    write(tmp_path / "help/C/guide/picture.page", ENGLISH_MALLARD)
    changed = GERMAN_MALLARD.replace("</list>", "<item><p>Mehr.</p></item></list>")
    write(tmp_path / "help/de/guide/picture.page", changed)
    collector = document_tree_pairs(tmp_path)
    assert not collector.pairs and collector.dropped == {"structure_differs": 1}


def test_xml_entities_fetch_nothing(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret that is not part of the page")
    page = f"""<!DOCTYPE page [<!ENTITY leak SYSTEM "file://{secret}">]>
    <page><p>The page says &leak; and more.</p></page>"""
    write(tmp_path / "help/C/g/x.page", page)
    write(tmp_path / "help/de/g/x.page", page.replace("The page", "Die Seite"))
    collector = document_tree_pairs(tmp_path)
    assert not any("secret" in pair.en for pair in collector.pairs)
