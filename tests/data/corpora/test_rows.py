"""Files of rows."""

import gzip
import json

import pytest

from spec_jax.data.corpora.rows import Pair, Summary, read_rows, write_json, write_rows

PAIR = Pair("man", "man/a", "p", "a file", "eine Größe")


def test_rows_come_back(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    write_rows(path, [PAIR, PAIR])
    assert read_rows(path, Pair) == [PAIR, PAIR]
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        assert list(json.loads(next(lines))) == ["src", "group", "kind", "en", "de"]
    summary = Summary("g", "one\ntwo", "s")
    write_rows(path, [summary])
    assert read_rows(path, Summary) == [summary]


def test_equal_rows_are_equal_files(tmp_path):
    for name in ("one.jsonl.gz", "two.jsonl.gz"):
        write_rows(tmp_path / name, [PAIR])
    first, second = (path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert first == second


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    write_rows(path, [PAIR])

    def broken():
        yield PAIR
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        write_rows(path, broken())
    assert read_rows(path, Pair) == [PAIR]


def test_json_is_for_people(tmp_path):
    write_json(tmp_path / "x.json", {"ü": 1})
    assert (tmp_path / "x.json").read_text("utf-8") == '{\n  "ü": 1\n}\n'
