"""The committed sample texts and their licence."""

import importlib.resources

import pytest

from spec_jax.data.samples import load_samples


def test_translation_samples_are_whole_pairs():
    rows = load_samples("translation")
    assert len(rows) == 319
    assert all(set(row) == {"group", "en", "de"} for row in rows)
    assert all(all(row.values()) and row["en"] != row["de"] for row in rows)
    assert all(row["group"].startswith("lohelp/") for row in rows)


def test_summarization_samples_are_short_descriptions():
    rows = load_samples("summarization")
    assert len(rows) == 12
    for row in rows:
        assert set(row) == {"document", "summary"}
        assert 40 <= len(row["document"].split()) <= 80
        assert len(row["summary"].split()) <= 10


def test_loading_twice_gives_separate_rows():
    load_samples("translation")[0]["en"] = "changed"
    assert load_samples("translation")[0]["en"] != "changed"


def test_unknown_task_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'translation' and 'summarization'.*'poem'"):
        load_samples("poem")


def test_notice_and_licence_lie_beside_the_samples():
    folder = importlib.resources.files("spec_jax.data.samples")
    notice = folder.joinpath("NOTICE").read_text("utf-8")
    licence = folder.joinpath("LICENSE.MPL-2.0").read_text("utf-8")
    assert "lohelp.jsonl" in notice and "Mozilla Public License" in notice
    assert "summaries.jsonl" in notice and "LibreOffice contributors" in notice
    assert "Mozilla Public License Version 2.0" in licence
