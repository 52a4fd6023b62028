"""Collecting pairs from corresponding texts."""

from spec_jax.data.corpora.alignment import PairCollector, Unit, matching_sentences

ENGLISH = "The program starts. It reads the file."
GERMAN = "Das Programm startet. Es liest die Datei."


def test_sentences_match_one_by_one():
    assert matching_sentences(ENGLISH, GERMAN) == [
        ("The program starts.", "Das Programm startet."),
        ("It reads the file.", "Es liest die Datei."),
    ]


def test_sentences_do_not_match_by_number_or_length():
    assert matching_sentences(ENGLISH, "Das Programm startet und liest.") == []
    assert matching_sentences("One sentence.", "Ein Satz.") == []
    longer = "Ja. Es liest die Datei, die auf der Befehlszeile angegeben wurde, ganz."
    assert matching_sentences(ENGLISH, longer) == []


def test_a_text_is_kept_as_sentences_or_whole():
    collector = PairCollector("man")
    collector.add_text("page", "p", ENGLISH, GERMAN)
    collector.add_text(
        "page", "p", ENGLISH, "Das Programm startet und liest die Datei."
    )
    assert [pair.kind for pair in collector.pairs] == ["sent", "sent", "p"]
    assert {(pair.src, pair.group) for pair in collector.pairs} == {("man", "page")}


def test_rejected_texts_are_counted():
    collector = PairCollector("man")
    collector.add_text("page", "p", "Same text", "same text")
    assert collector.pairs == [] and collector.dropped == {"identical": 1}


def test_documents_of_another_structure_are_dropped_whole():
    collector = PairCollector("help")
    collector.add_units("page", [Unit("p", ENGLISH)], [Unit("td", GERMAN)])
    assert collector.pairs == [] and collector.dropped == {"structure_differs": 1}
    collector.add_units("page", [Unit("p", ENGLISH)], [Unit("p", GERMAN)])
    assert len(collector.pairs) == 2


def test_copies_keep_the_first():
    collector = PairCollector("man")
    collector.add("a", "p", "Copy the file", "Die Datei kopieren")
    collector.add("b", "p", "copy the file!", "die Datei kopieren.")
    collector.add("b", "p", "Copy the file", "Datei kopieren")
    assert [pair.group for pair in collector.distinct()] == ["a", "b"]
