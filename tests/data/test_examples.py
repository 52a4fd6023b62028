"""From corpus rows to examples: prefixes, cuts, joined neighbours, reading files."""

import gzip
import json

import numpy as np
import pytest

from spec_jax.data.examples import (
    TASKS,
    ExampleMaker,
    TokenRow,
    encode_input,
    get_task,
    read_rows,
    tokenize,
    truncate,
)
from spec_jax.data.vocabulary import EOS_ID, SentencePieceVocabulary
from spec_jax.pairs import resolve


@pytest.fixture(scope="module")
def vocabulary():
    return SentencePieceVocabulary(resolve("spec_jax://pretrained/vocabulary.model"))


@pytest.fixture(scope="module")
def maker(vocabulary):
    return ExampleMaker(vocabulary)


def translation(length, group="page", start=10):
    ids = tuple(range(start, start + length))
    return TokenRow("ende", group, ids, tuple(x + 1000 for x in ids))


@pytest.mark.parametrize("name", TASKS)
def test_training_reads_what_decoding_is_given(vocabulary, maker, name):
    task = get_task(name)
    text = "Move the file to another folder."
    (row,) = tokenize([{task.inputs: text, task.targets: "x"}], task, vocabulary)
    wanted = encode_input(text, task, vocabulary)
    assert maker.example(row).inputs == tuple(wanted)
    assert vocabulary.decode(wanted) == task.prefix + text


def test_every_example_ends_with_end_of_sequence(maker):
    example = maker.example(translation(5))
    assert example.inputs[-1] == example.targets[-1] == EOS_ID
    assert example.targets[:-1] == tuple(range(1010, 1015))


def test_long_documents_are_cut_and_long_translations_left_out(maker):
    document = TokenRow("summarize", "g", tuple(range(3, 600)), (7, 8))
    assert len(maker.example(document).inputs) == 256
    assert maker.example(document).inputs[-1] == EOS_ID
    assert maker.example(translation(200)) is None
    assert maker.example(TokenRow("ende", "g", (5,), ())) is None


def test_an_epoch_has_every_row_once_joined_or_not(maker):
    rows = [translation(9, f"page {i % 7}", 10 + 3 * i) for i in range(100)]
    rows.append(TokenRow("summarize", "g", (5, 6, 7), (8,)))
    for joined in (0.0, 0.5, 1.0):
        examples = maker.epoch(rows, np.random.default_rng(1), joined)
        got = sorted(t for e in examples for t in e.targets[:-1])
        assert got == sorted(t for row in rows for t in row.targets)
        longest = max(len(e.inputs) for e in examples)
        assert longest <= 128 and (longest > 20) == (joined > 0)


def test_only_neighbours_of_one_page_are_joined(maker):
    rows = [translation(9, f"page {i % 5}", 100 * (i % 5) + 10) for i in range(40)]
    for example in maker.epoch(rows, np.random.default_rng(0), 1.0):
        pages = {(token - 1010) // 100 for token in example.targets[:-1]}
        assert len(pages) == 1


def test_epochs_differ_and_are_decided_by_their_seed(maker):
    rows = [translation(9, f"page {i % 7}", 10 + 3 * i) for i in range(60)]
    make = lambda seed: maker.epoch(rows, np.random.default_rng(seed), 0.5)  # noqa: E731
    assert make([0, 1]) == make([0, 1])
    assert make([0, 1]) != make([0, 2])


def test_truncation_keeps_end_of_sequence():
    assert truncate([5, 6, 7, EOS_ID], 4) == [5, 6, 7, EOS_ID]
    assert truncate([5, 6, 7, EOS_ID], 3) == [5, 6, EOS_ID]


def test_an_unknown_task_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"'wmt'.*\['ende', 'summarize'\]"):
        get_task("wmt")


def test_rows_are_read_from_both_kinds_of_file(tmp_path):
    rows = [{"en": "a", "de": "ä"}, {"en": "b", "de": "ß"}]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_text(text + "\n", encoding="utf-8")
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_rows(plain) == read_rows(packed) == rows


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1], r"want a JSON object, got \[1\]"),
        (None, "want a JSON object, got null"),
        ({"en": "a"}, "want text in the field 'de' of the task ende, got null"),
        ({"en": "a", "de": 1}, "'de'.*got 1"),
        ({"en": ["a"], "de": "b"}, "'en'"),
        ({"en": "a", "de": "b", "group": []}, "'group'"),
    ],
    ids=str,
)
def test_a_row_without_the_tasks_texts_is_named(tmp_path, row, message):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"en": "a", "de": "b"}}\n\n{json.dumps(row)}\n')
    with pytest.raises(ValueError, match=rf"rows\.jsonl, line 3: .*{message}"):
        read_rows(path, get_task("ende"))
    assert read_rows(path)[1] == row


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("missing.jsonl", None, "missing.jsonl: No such file"),
        ("bad.jsonl", b'{"en": 1}\n{"en"\n', r"bad\.jsonl, line 2"),
        ("cut.jsonl.gz", gzip.compress(b'{"en": "a"}\n' * 999)[:-20], "cut.jsonl.gz"),
        ("plain.jsonl.gz", b'{"en": "a"}\n', "plain.jsonl.gz"),
    ],
    ids=["missing", "not JSON", "cut", "not packed"],
)
def test_a_bad_file_is_named(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_rows(tmp_path / name)
