"""`spec-jax report` through the command line."""

import pytest

from tests.reports import lines


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "results.jsonl"
    lines.write(path, [lines.record(gamma=3), lines.record("bigram", gamma=2)])
    return path.parent


def test_a_page_and_its_pictures(run, results, tmp_path):
    out = tmp_path / "out"
    done = run("report", str(results), f"--output_dir={out}")
    assert done.status == 0
    assert done.out.startswith(f"{out / 'report.html'}, with ")
    assert "left out, Table 3: `spec-jax alpha` measures it." in done.err
    page = (out / "report.html").read_text("utf-8")
    assert "bigram" in page and str(results / "results.jsonl") in page
    pictures = {path.name for path in (out / "pictures").iterdir()}
    assert {"speed-ende.svg", "figure2-ende.svg"} <= pictures
    with_png = any(name.endswith(".png") for name in pictures)
    assert with_png == ("pictures are SVG alone" not in done.err)

    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert run("report", str(results), "-o", str(out)).status == 0
    assert before == {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "want files or folders of results"),
        (["{folder}/absent.jsonl"], "cannot read"),
        (["{folder}/empty"], "want *.jsonl files in"),
        (["{folder}/foreign.jsonl"], "line 1: want a line of spec_jax's results"),
        (["{folder}/good.jsonl", "{folder}/broken.jsonl"], "lacks the fields"),
    ],
)
def test_one_line_says_what_is_wrong_and_nothing_is_written(
    run, tmp_path, arguments, said
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "broken.jsonl").write_text('{"kind": "choice"}\n')
    lines.write(tmp_path / "good.jsonl", [lines.record()])
    given = [argument.format(folder=tmp_path) for argument in arguments]
    done = run("report", *given, f"--output_dir={tmp_path / 'out'}")
    assert done.status == 2 and not done.out
    assert done.err.startswith("error: ") and done.err.count("\n") == 1
    assert said in done.err
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_found_first(run, results, tmp_path):
    (tmp_path / "file").write_text("")
    done = run("report", str(results), f"--output_dir={tmp_path / 'file'}")
    assert done.status == 2 and "is not a folder" in done.err
