import os
import threading

import pytest

from spec_jax.cli.errors import UsageError
from spec_jax.cli.texts import check_writable, read_texts, write_whole


def test_lines_keep_their_order_and_blank_ones(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes("\ufeffone\r\n\nzwölf\nlast".encode())
    assert list(read_texts([], str(path))) == ["one", "", "zwölf", "last"]


def test_arguments_come_as_they_are():
    assert list(read_texts(["a\nb", "c"], None)) == ["a\nb", "c"]


def test_wrong_bytes_are_named(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"fine\nnot \xff fine\n")
    with pytest.raises(UsageError, match="line 2 is not UTF-8: byte 0xff at column 5"):
        list(read_texts([], str(path)))
    with pytest.raises(UsageError, match="text 2 is not UTF-8"):
        list(read_texts(["fine", os.fsdecode(b"\xff")], None))


def test_two_sources_or_a_missing_file_are_an_error(tmp_path):
    with pytest.raises(UsageError, match="not both"):
        list(read_texts(["x"], "file"))
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        list(read_texts([], str(tmp_path / "missing")))


def test_a_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "new" / "out.txt"

    def fails_halfway():
        yield "first\n"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_whole(path, fails_halfway())
    assert not list(path.parent.iterdir())
    write_whole(path, ["first\n", "second\n"])
    assert path.read_text() == "first\nsecond\n"
    with pytest.raises(RuntimeError):
        write_whole(path, fails_halfway())
    assert path.read_text() == "first\nsecond\n"
    assert [p.name for p in path.parent.iterdir()] == ["out.txt"]


def test_where_nothing_can_be_written_is_known_early(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        check_writable(tmp_path / "file" / "out.txt")
    with pytest.raises(UsageError, match="it is a folder"):
        check_writable(tmp_path)


def test_nothing_is_made_to_find_that_out(tmp_path):
    check_writable(tmp_path / "new" / "deep" / "out.txt")
    assert not list(tmp_path.iterdir())


def test_a_url_is_not_written_to():
    for path in ("gs://bucket/x", os.path.join("gs://bucket", "x")):
        with pytest.raises(UsageError, match="want a local path, got a URL"):
            check_writable(path)
    check_writable("a:b")


def test_what_is_appended_to_must_be_writable_itself(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    path.write_text("")
    # root may write everywhere, so the file's mode would show nothing.
    monkeypatch.setattr(os, "access", lambda name, mode: str(name) != str(path))
    check_writable(path)
    with pytest.raises(UsageError, match="no permission"):
        check_writable(path, appended=True)


def test_a_pipe_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_text()))
    reader.start()
    write_whole(path, ["first\n", "second\n"])
    reader.join()
    assert read == ["first\nsecond\n"] and path.is_fifo()
    assert [p.name for p in tmp_path.iterdir()] == ["pipe"]


def test_a_link_stays_a_link(tmp_path):
    folder = tmp_path / "real"
    folder.mkdir()
    link = tmp_path / "link.txt"
    link.symlink_to(folder / "out.txt")
    for text in ("first", "second"):  # where the link leads to nothing, and after
        write_whole(link, text)
        assert link.is_symlink() and (folder / "out.txt").read_text() == text
    assert [p.name for p in folder.iterdir()] == ["out.txt"]
