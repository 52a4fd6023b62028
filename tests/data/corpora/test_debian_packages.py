"""Obtaining packages: apt's configuration, unpacking, and what goes wrong."""

import io
import os
import subprocess
import tarfile

import pytest

from spec_jax.data.corpora import debian_packages
from spec_jax.data.corpora.debian_packages import BuildError


def test_source_packages_are_added_to_stanzas():
    text = "# Types: are here\nTypes: deb\nURIs: http://host\nSuites: stable\n"
    changed = debian_packages.with_source_packages(text, ".sources")
    assert changed == text.replace("\nTypes: deb\n", "\nTypes: deb deb-src\n")


def test_source_packages_are_added_to_lines():
    text = "# deb http://old x main\ndeb [arch=amd64] http://host stable main\n"
    assert debian_packages.with_source_packages(text, ".list") == (
        "deb [arch=amd64] http://host stable main\n"
        "deb-src [arch=amd64] http://host stable main\n"
    )


def test_missing_programs_are_named_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"^building .* not found: apt-get, .*") as e:
        debian_packages.obtain(tmp_path, tmp_path / "root", print)
    assert "\n" not in str(e.value)


def program(folder, name, script):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_the_first_error_of_apt_is_the_message(monkeypatch, tmp_path):
    program(tmp_path, "apt-get", "echo W: no >&2; echo E: no network >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    apt = debian_packages.Apt(tmp_path / "apt.conf")
    with pytest.raises(BuildError, match=r"^apt-get failed: E: no network$"):
        apt.run("apt-get", "update")


def test_no_index_is_told_before_anything_is_downloaded(monkeypatch, tmp_path):
    answer = f"LIST={tmp_path}/none PARTS={tmp_path}/none"
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        program(tmp_path, name, f'echo "{name} $@" >> {tmp_path}/calls')
    program(tmp_path, "apt-config", f"echo {answer}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BuildError, match=r"fetched no package index: check the net"):
        debian_packages.obtain(tmp_path, tmp_path / "root", lambda line: None)
    assert "download" not in (tmp_path / "calls").read_text()


def test_a_download_appears_when_it_is_complete(monkeypatch, tmp_path):
    program(tmp_path, "apt-get", 'echo "$@" >> ../calls; touch a.deb; test -e ../net')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    apt = debian_packages.Apt(tmp_path / "apt.conf")
    folder = tmp_path / "packages"
    with pytest.raises(BuildError):
        debian_packages.download(apt, folder, "download", "a")
    assert not folder.exists()
    (tmp_path / "net").touch()
    for _ in range(2):  # the second finds it there
        debian_packages.download(apt, folder, "download", "a")
    assert [path.name for path in folder.iterdir()] == ["a.deb"]
    assert (tmp_path / "calls").read_text().count("download a") == 2


def archive(members):
    """A tar file of (name, content) files and (name, "-> target") links."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as files:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content.startswith("-> "):
                member.type, member.linkname = tarfile.SYMTYPE, content[3:]
                files.addfile(member)
            else:
                member.size, member.mode = len(content), 0o6755
                files.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue()


def written(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_only_documents_are_unpacked(monkeypatch, tmp_path):
    files = archive(
        [
            ("./usr/bin/mount", "a program"),
            ("./usr/share/man/man1/a.1.gz", "a page"),
            ("./usr/share/man/man1/alias.1.gz", "-> a.1.gz"),
            ("./usr/share/man/man1/twice.1.gz", "-> alias.1.gz"),
            ("./usr/share/man/man1/out.1.gz", "-> ../../../../../../etc/passwd"),
            ("./usr/share/man/man1/self.1.gz", "-> self.1.gz"),
            ("./usr/share/man/fr/man1/a.1.gz", "une page"),
            ("./usr/share/help/de/../../../../../escaped", "outside"),
        ]
    )
    (tmp_path / "files.tar").write_bytes(files)
    program(tmp_path, "dpkg-deb", f"cat {tmp_path}/files.tar")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    root = tmp_path / "inside" / "root"
    debian_packages.unpack_package(tmp_path / "a.deb", root)
    pages = {f"usr/share/man/man1/{n}.1.gz" for n in ("a", "alias", "twice")}
    assert written(tmp_path / "inside") == {f"root/{name}": "a page" for name in pages}
    assert not os.access(root / "usr/share/man/man1/a.1.gz", os.X_OK)


def test_a_damaged_package_is_named(monkeypatch, tmp_path):
    program(tmp_path, "dpkg-deb", "exit 2")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(BuildError, match=r"a\.deb is damaged"):
        debian_packages.unpack_package(tmp_path / "a.deb", tmp_path)


def test_catalogues_lose_the_version_of_their_folder(tmp_path):
    tarball = tmp_path / "tool_1.tar"
    tarball.write_bytes(
        archive(
            [
                ("tool-1.0/man/po/de.po", "deutsch"),
                ("tool-1.0/po/de/intro.po", "Einleitung"),
                ("tool-1.0/po/fr.po", "français"),
                ("tool-1.0/src/main.c", "int main;"),
            ]
        )
    )
    debian_packages.unpack_catalogues(tarball, tmp_path / "tool")
    assert written(tmp_path / "tool") == {
        "man/po/de.po": "deutsch",
        "po/de/intro.po": "Einleitung",
    }


def test_apt_is_configured_apart_from_the_system(monkeypatch, tmp_path):
    system = tmp_path / "etc" / "parts"
    system.mkdir(parents=True)
    (system / "debian.sources").write_text("Types: deb\nURIs: http://host\n")
    answer = f"LIST='{tmp_path}/etc/sources.list'\nPARTS='{system}/'"
    program(tmp_path, "apt-config", f"cat <<'E'\n{answer}\nE")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    work = tmp_path / "work"
    apt = debian_packages.configure_apt(work, work / "lists")
    text = apt.configuration.read_text()
    for place in ("lists", "apt/cache", "apt/sources"):
        assert f'"{work / place}"' in text and (work / place).is_dir()
    assert 'Acquire::Languages { "en"; "de"; };' in text
    sources = (work / "apt/sources/debian.sources").read_text()
    assert sources.startswith("Types: deb deb-src\n")
    assert (system / "debian.sources").read_text().startswith("Types: deb\n")


@pytest.mark.skipif(
    subprocess.run("command -v apt-config", shell=True, capture_output=True).returncode,
    reason="apt is not installed",
)
def test_apt_reads_the_configuration(tmp_path):
    apt = debian_packages.configure_apt(tmp_path, tmp_path / "lists")
    dump = apt.run("apt-config", "dump").splitlines()
    settings = {line.split(' "')[0].lower(): line for line in dump}
    assert f'"{tmp_path}/lists"' in settings["dir::state::lists"]
    assert f'"{tmp_path}/apt/sources"' in settings["dir::etc::sourceparts"]
    languages = [line for line in dump if line.startswith("Acquire::Languages::")]
    assert languages[:2] == ['Acquire::Languages:: "en";', 'Acquire::Languages:: "de";']
    assert not any(line.startswith("APT::Update::Post-Invoke") for line in dump)
