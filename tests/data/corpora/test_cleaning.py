"""Sentence splitting, keys and the checks of a pair."""

import pytest

from spec_jax.data.corpora.cleaning import (
    comparison_key,
    normalize_space,
    split_sentences,
    why_rejected,
)


def test_white_space_is_normalised():
    assert normalize_space(" a\u00a0 b\n\tc ") == "a b c"


def test_key_ignores_case_punctuation_and_numbers():
    assert comparison_key("Version 1.25, (New)!") == comparison_key("version 3 7 new")
    assert comparison_key("a b") != comparison_key("a c")


def test_sentences_end_before_a_capital():
    text = 'It runs. "Quickly!" Then it stops? Yes.'
    assert split_sentences(text) == [
        "It runs.",
        '"Quickly!"',
        "Then it stops?",
        "Yes.",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Programme, z.B. Editoren, und andere.",
        "Dateien bzw. Ordner werden kopiert.",
        "Siehe Abschnitt 3. Dort steht mehr.",
        "Written by J. Random Hacker.",
        "Version 1.2 is out.",
        "no capital. after the stop",
    ],
)
def test_abbreviations_and_ordinals_end_no_sentence(text):
    assert split_sentences(text) == [text]


GOOD = ("The file is copied to the folder.", "Die Datei wird in den Ordner kopiert.")


def test_a_good_pair_is_kept():
    assert why_rejected(*GOOD) is None


@pytest.mark.parametrize(
    ("english", "german", "reason"),
    [
        ("", GOOD[1], "empty"),
        (GOOD[0], "Die Datei wird <trans>", "untranslated"),
        ("GNU Emacs 29", "gnu emacs 28", "identical"),
        ("a1", "b2", "no_letters"),
        ("-rw-r--r-- 1 abc", "---- 2 ---- xyz", "mostly_symbols"),
        (GOOD[0], "Datei", "length_ratio"),
        (GOOD[0], "This is the file which you can copy.", "target_english"),
        ("Die Datei ist nicht in dem Ordner.", GOOD[1], "source_german"),
        ("It was first made in 1991.", "Es wurde im Jahr 2001 erstellt.", "numbers"),
        (
            "See https://example.org for more.",
            "Mehr dazu steht auf der Seite.",
            "url_differs",
        ),
    ],
)
def test_each_fault_of_a_pair_has_its_reason(english, german, reason):
    assert why_rejected(english, german).startswith(reason)
