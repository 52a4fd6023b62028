"""The whole build on a small tree of synthetic documents."""

import gzip
import importlib.util
import json
import os
import random
import subprocess
import sys

import pytest

from spec_jax.data.corpora import BuildError, build, build_debian
from spec_jax.data.corpora.splits import SPLITS, split_of


def invented(seed, count):
    """Words that no other seed shares."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("aeiounrstl", k=9)) for _ in range(count))


def stanza(name, md5, language, text):
    return f"Package: {name}\nDescription-md5: {md5}\nDescription-{language}: {text}\n"


def description(i, language):
    subject, ending = {
        "en": ("The program", "when it is started"),
        "de": ("Das Programm", "wenn es gestartet wird"),
    }[language]
    synopsis = f"{subject} {invented(f'{language}{i}', 3)}"
    sentences = (
        f" {subject} {invented(f'{language}{i}.{k}', 5)} {ending}." for k in range(6)
    )
    return "\n".join([synopsis, *sentences])


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "root"
    lists = root / "var/lib/apt/lists"
    names = [f"package{i}" for i in range(150)]
    assert {split_of(name) for name in names} == set(SPLITS)
    write(lists / "h_Packages", "\n".join(f"Package: {name}\n" for name in names))
    for language in ("en", "de"):
        stanzas = (
            stanza(name, f"m{i}", language, description(i, language))
            for i, name in enumerate(names)
        )
        write(lists / f"h_Translation-{language}", "\n".join(stanzas))
    for language, folder in (("en", "en-US"), ("de", "de")):
        text = "Choose the cells" if language == "en" else "Wählen Sie die Zellen"
        help_page = root / f"usr/share/libreoffice/help/{folder}/text/a.html"
        write(help_page, f"<p id='x'>{text} 2.</p>")
        page = root / f"usr/share/man/{'' if language == 'en' else 'de/'}man1/a.1.gz"
        page.parent.mkdir(parents=True)
        text = "copy a file" if language == "en" else "Datei kopieren"
        page.write_bytes(gzip.compress(f".SH NAME\na \\- {text}\n".encode()))
        text = "Take a picture" if language == "en" else "Ein Bild aufnehmen"
        write(
            root / f"usr/share/help/{'C' if language == 'en' else 'de'}/g/a.page",
            f"<page><title>{text}</title></page>",
        )
    write(
        root / "usr/src/dpkg/po/de.po",
        'msgid "install the package"\nmsgstr "das Paket installieren"\n',
    )
    return root


def rows_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_the_build_writes_both_corpora(tree, tmp_path):
    report = build_debian(tmp_path / "out", root=tree, progress=False)
    assert json.loads((tmp_path / "out/report.json").read_text()) == report
    groups = {}
    for task, fields in (
        ("ende", ["src", "group", "kind", "en", "de"]),
        ("summ", ["group", "document", "summary"]),
    ):
        for split in SPLITS:
            rows = rows_of(tmp_path / f"out/{task}.{split}.jsonl.gz")
            assert rows and all(list(row) == fields for row in rows)
            assert report["splits"][task][split]["rows"] == len(rows)
            for row in rows:
                assert groups.setdefault(row["group"], split) == split
    sources = report["splits"]["ende"]["train"]["src"]
    assert set(sources) == {"ddtp", "lohelp", "man", "doc", "help"}
    assert report["sources"]["loui"]["rows"] == 0


def test_equal_documents_give_equal_files_in_another_process(tree, tmp_path):
    build_debian(tmp_path / "one", root=tree, progress=False)
    code = "import sys; from spec_jax.data.corpora import build_debian as b; "
    code += "b(sys.argv[1], root=sys.argv[2], progress=False)"
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "two", tree],
        check=True,
        env={
            **os.environ,
            "PYTHONHASHSEED": "7",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    names = {path.name for path in (tmp_path / "one").glob("*.*")}
    assert len(names) == 7
    for name in names:
        first, second = (tmp_path / out / name for out in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()


def test_a_build_goes_on_where_it_was_interrupted(tree, tmp_path, monkeypatch):
    def interrupted(tree):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build, "_manual_pairs", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build_debian(tmp_path / "out", root=tree, progress=False)
    monkeypatch.setattr(build, "_description_pairs", interrupted)  # complete already
    report = build_debian(tmp_path / "out", root=tree, progress=False)
    assert report["sources"]["ddtp"]["rows"] > 0
    assert report["sources"]["man"]["rows"] > 0


def test_a_stage_of_other_packages_is_made_again(tree, tmp_path, monkeypatch):
    build_debian(tmp_path / "out", root=tree, progress=False)
    monkeypatch.setattr(build, "_help_pairs", lambda tree: ([], {"dropped": {}}))
    again = build_debian(tmp_path / "out", root=tree, progress=False)
    assert again["sources"]["lohelp"]["rows"] == 1
    monkeypatch.setattr(build, "_STAGES_VERSION", build._STAGES_VERSION + 1)
    anew = build_debian(tmp_path / "out", root=tree, progress=False)
    assert anew["sources"]["lohelp"]["rows"] == 0


def test_packages_are_obtained_once(tree, tmp_path, monkeypatch):
    calls = []

    def obtain(workdir, root, say):
        calls.append(root)
        os.rename(tree, root)
        return {"packages": {"manpages": "6.03-2"}, "notes": ["no package x"]}

    monkeypatch.setattr(build.debian_packages, "obtain", obtain)
    for _ in range(2):
        report = build_debian(tmp_path / "out", progress=False)
        assert report["packages"] == {"manpages": "6.03-2"}
        assert report["notes"] == ["no package x", "no rows from loui"]
    assert calls == [tmp_path / "out/work/root"]


def test_what_cannot_be_built_is_said_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(BuildError, match=r"root must be a folder, got .*nowhere"):
        build_debian(tmp_path / "out", root=tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BuildError, match=r"no text found below .*empty"):
        build_debian(tmp_path / "out", root=tmp_path / "empty", progress=False)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "polib" else find(name),
    )
    with pytest.raises(BuildError, match=r"needs polib: pip install 'spec_jax\[corp"):
        build_debian(tmp_path / "out", root=tmp_path)


def test_progress_is_told_on_stderr(tree, tmp_path, capsys):
    build_debian(tmp_path / "out", root=tree)
    printed = capsys.readouterr()
    assert (
        printed.out == "" and "ddtp: " in printed.err and "ende.test: " in printed.err
    )
    build_debian(tmp_path / "out", root=tree, progress=False)
    assert capsys.readouterr().err == ""
