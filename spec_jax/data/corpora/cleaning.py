"""Normalising text, splitting it into sentences, and checking a pair of texts."""

import re
import unicodedata

_SPACE = re.compile(r"\s+")
_LETTER = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+")
_LONG_NUMBER = re.compile(r"\d{3,}")
_URL = re.compile(r"(https?|ftp)://\S+|www\.\S+")
_UMLAUT = re.compile(r"[äöüÄÖÜß]")

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”“»)\]]*\s+(?=[\"'„“«(\[]?[A-ZÄÖÜ0-9])")
_ABBREVIATIONS = frozenset(
    "z.b. d.h. u.a. usw. bzw. evtl. ggf. inkl. etc. e.g. i.e. vs. ca. nr. u.ä. o.ä. "
    "s.a. st. mr. dr. prof. al. cf. vgl. bspw. engl. max. min. sog. approx. incl. "
    "fig. no. resp. dt. lat. zb. d.h z.b u.a".split()
)
# One letter, an ordinal number, or letters with a stop after each.
_SHORT_FORM = re.compile(r"\w\.|\d+\.|(\w\.){2,}")

_GERMAN_WORDS = frozenset(
    "der die das und ist ein eine einen einem einer eines für mit von auf den dem des "
    "im in zu zum zur nicht werden wird oder sind als auch bei aus an dieses diese "
    "dieser sie es kann durch über nach wie wenn nur keine kein alle ihre sich vom "
    "unter ohne".split()
)
_ENGLISH_WORDS = frozenset(
    "the of and is a an for to with from this that are or by as on in it be you can "
    "which not if all has have your".split()
)
_ONLY_GERMAN = _GERMAN_WORDS - _ENGLISH_WORDS
_ONLY_ENGLISH = _ENGLISH_WORDS - _GERMAN_WORDS

# Characters of German a character of English, and characters added to both sides so
# that short texts may differ more.
SHORTEST, LONGEST, _SLACK = 0.45, 2.6, 8


def normalize_space(text: str) -> str:
    """Every run of white space as one space, none at the ends."""
    return _SPACE.sub(" ", text.replace("\u00a0", " ")).strip()


def comparison_key(text: str) -> str:
    """The words of a text without case, punctuation and the values of numbers.

    Two texts with equal keys count as copies of each other.
    """
    folded = re.sub(r"\d+", "0", unicodedata.normalize("NFKC", text).lower())
    return " ".join(re.findall(r"\w+", folded))


def split_sentences(text: str) -> list[str]:
    """Cuts a paragraph after its sentences, not after abbreviations or ordinals."""
    sentences, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        sentence = text[start : end.end()].rstrip()
        last_word = sentence.split(" ")[-1].lower().strip("()[]\"'„“”»«")
        if last_word in _ABBREVIATIONS or _SHORT_FORM.fullmatch(last_word):
            continue
        sentences.append(sentence)
        start = end.end()
    rest = text[start:].strip()
    return [*sentences, rest] if rest else sentences


def lengths_agree(english: str, german: str) -> bool:
    """Whether one may be the translation of the other, by their lengths."""
    ratio = (len(german) + _SLACK) / (len(english) + _SLACK)
    return SHORTEST <= ratio <= LONGEST


def why_rejected(english: str, german: str) -> str | None:
    """Says what makes a pair useless for training.

    Args:
      english: the source text.
      german: what is said to be its translation.

    Returns:
      The reason in a word, for counting; None where the pair is good.
    """
    if not english or not german:
        return "empty"
    # "<trans>" marks the untranslated part of a package description.
    if "<trans>" in german or "\ufffd" in english + german:
        return "untranslated"
    if comparison_key(english) == comparison_key(german):
        return "identical"
    letters = [len(_LETTER.findall(text)) for text in (english, german)]
    if min(letters) < 3:
        return "no_letters"
    if any(
        2 * count < len(text.replace(" ", ""))
        for count, text in zip(letters, (english, german))
    ):
        return "mostly_symbols"
    if not lengths_agree(english, german):
        return "length_ratio"
    if _looks_english(german):
        return "target_english"
    if _looks_german(english):
        return "source_german"
    numbers = [set(_LONG_NUMBER.findall(text)) for text in (english, german)]
    if all(numbers) and numbers[0].isdisjoint(numbers[1]):
        return "numbers_differ"
    if len(english) > 20 and bool(_URL.search(english)) != bool(_URL.search(german)):
        return "url_differs"
    return None


def _looks_english(text: str) -> bool:
    words, german, english = _language_evidence(text)
    return words >= 5 and english >= 2 and english > german


def _looks_german(text: str) -> bool:
    words, german, english = _language_evidence(text)
    return words >= 5 and german >= 2 and german > english + 1


def _language_evidence(text: str) -> tuple[int, int, int]:
    """Words, signs of German (function words, umlauts), and signs of English."""
    words = _WORD.findall(text.lower())
    german = sum(word in _ONLY_GERMAN for word in words) + len(_UMLAUT.findall(text))
    return len(words), german, sum(word in _ONLY_ENGLISH for word in words)
