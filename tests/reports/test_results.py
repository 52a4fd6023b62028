"""Every form of line is read back; what is passed over is said."""

import dataclasses

import pytest

from spec_jax.reports.results import read_results, rows
from tests.reports import lines

SWEEPS = "docs/results/sweep.jsonl"


def test_forms_are_told_apart(tmp_path):
    given = [lines.record(), lines.alpha(), lines.choice(), lines.trace()]
    found = read_results([lines.write(tmp_path / "mixed.jsonl", given)])
    read = [*found.records, *found.alphas, *found.choices, *found.traces]
    assert read == given
    assert not found.notes and found.files == (str(tmp_path / "mixed.jsonl"),)


def test_a_folder_is_read_once_and_foreign_files_are_named(tmp_path):
    path = lines.write(tmp_path / "a.jsonl", [lines.record()])
    (tmp_path / "b.jsonl").write_text('{"index": 0, "tokens": [1]}\n')
    (tmp_path / "c.jsonl").write_text("")
    found = read_results([tmp_path, path])
    assert len(found.records) == 1
    assert [note.split(" ")[0] for note in found.notes] == [
        str(tmp_path / "b.jsonl"),
        str(tmp_path / "c.jsonl"),
    ]


def test_a_file_by_two_names_is_read_once(tmp_path, monkeypatch):
    """The fault: each line counted as measured twice."""
    path = lines.write(tmp_path / "a.jsonl", [lines.record()])
    (tmp_path / "link.jsonl").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for given in ([path, "a.jsonl"], [tmp_path], ["link.jsonl", tmp_path]):
        assert len(read_results(given).records) == 1


@pytest.mark.parametrize("number", [1, 2, 3])
def test_half_a_line_is_passed_over_and_said(tmp_path, number):
    """A killed run leaves one, and the next run's lines follow it."""
    path = lines.write(tmp_path / "a.jsonl", [lines.record()] * 3)
    texts = path.read_text().splitlines()
    texts[number - 1] = texts[number - 1][:-40]
    path.write_text("\n".join(texts))
    found = read_results([path])
    assert len(found.records) == 2
    assert f"line {number} is cut off" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "got none"),
        ("not JSON\n", "line 1: want a line of spec_jax's results"),
        ('{"kind": "dream"}\n', "line 1: want a line of spec_jax's results"),
        ('{"kind": []}\n', "line 1: want a line of spec_jax's results"),
        ("[1, 2]\n", "line 1: want a line"),
        ('{"kind": "alpha"}\n', "line 1: a record lacks the fields"),
        ('{"kind": "trace", "steps": 3}\n', "line 1: "),
        ('{"speedup_formula": 1}\n', "line 1: a record lacks the fields"),
        ("\xff", "it is not UTF-8"),
    ],
)
def test_a_named_file_has_to_be_known(tmp_path, text, said):
    path = tmp_path / "a.jsonl"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=said) as error:
        read_results([path])
    assert "\n" not in str(error.value) and str(path) in str(error.value)


def test_nothing_to_read(tmp_path):
    with pytest.raises(ValueError, match=r"want \*\.jsonl files"):
        read_results([tmp_path])
    with pytest.raises(ValueError, match="No such file"):
        read_results([tmp_path / "absent.jsonl"])


def test_repeated_runs_are_one_row_with_the_median_and_the_spread():
    speeds = [1.9, 1.5, 1.6]
    repeated = [dataclasses.replace(lines.record(), speedup=s) for s in speeds]
    other = lines.record(gamma=3)
    first, second = rows([*repeated, other])
    assert (first.record.speedup, first.times) == (1.6, 3)
    assert (first.least, first.most) == (1.5, 1.9)
    assert second.record is other and second.times == 1
    # Another machine's measurement is no repetition.
    moved = dataclasses.replace(repeated[0], device="gpu: Example")
    assert len(rows([repeated[0], moved])) == 2
