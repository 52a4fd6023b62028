"""Obtaining Debian packages and their indexes with apt, without being root.

apt works on private indexes in the work folder, which hold the descriptions in both
languages and the source packages; the system's own indexes are left alone. Packages
are unpacked, never installed: only their documentation is written, without owners,
permissions or scripts.
"""

import dataclasses
import io
import os
import posixpath
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

DOCUMENT_PACKAGES = (
    "libreoffice-help-en-us",
    "libreoffice-help-de",
    "libreoffice-l10n-de",
    "gnome-user-docs",
    "debian-reference-en",
    "debian-reference-de",
    "manpages",
    "manpages-dev",
    "manpages-de",
)
# Programs whose English pages manpages-de translates. They are taken from the
# packages, because many systems leave manual pages out when they install one.
MANUAL_PACKAGES = (
    "bash",
    "bsdextrautils",
    "bsdutils",
    "bzip2",
    "coreutils",
    "diffutils",
    "e2fsprogs",
    "ed",
    "findutils",
    "gettext",
    "gettext-base",
    "grep",
    "groff-base",
    "gzip",
    "hostname",
    "init-system-helpers",
    "less",
    "libc-bin",
    "libnss-systemd",
    "libpam-systemd",
    "make",
    "mount",
    "ncurses-bin",
    "procps",
    "psmisc",
    "sed",
    "systemd",
    "systemd-sysv",
    "systemd-timesyncd",
    "tar",
    "udev",
    "util-linux",
    "util-linux-extra",
    "zstd",
)
SOURCE_PACKAGES = ("dpkg", "installation-guide")

LISTS = "var/lib/apt/lists"
SOURCES = "usr/src"
_UNPACKED = (
    "usr/share/man/man",
    "usr/share/man/de/",
    "usr/share/help/C/",
    "usr/share/help/de/",
    "usr/share/debian-reference/",
    "usr/share/libreoffice/help/en-US/text/",
    "usr/share/libreoffice/help/de/text/",
    "usr/lib/libreoffice/program/resource/de/",
)
_GERMAN_CATALOGUE = re.compile(r"(^|/)po/(de\.po|de/[^/]+\.po)$")

# "#clear" undoes what the system's configuration says: images without languages, and
# hooks after an update, which are not ours to run.
_APT_CONFIGURATION = """\
#clear APT::Update;
#clear Acquire::Languages;
Acquire::Languages {{ "en"; "de"; }};
Acquire::GzipIndexes "false";
APT::Sandbox::User "";
Dir::State::Lists "{lists}";
Dir::Cache "{cache}";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{sources}";
"""

Say = Callable[[str], None]


class BuildError(Exception):
    """The corpora cannot be built; the message says why, and what to do."""


@dataclasses.dataclass(frozen=True)
class Apt:
    """apt with a private configuration.

    Attributes:
      configuration: its file.
    """

    configuration: Path

    def run(self, *command: str, folder: Path | None = None) -> str:
        """Runs a program of apt.

        Args:
          command: the program and its arguments.
          folder: where it runs, and where it leaves what it downloads.

        Returns:
          What it printed.

        Raises:
          BuildError: it failed; the message has its first error.
        """
        program, *arguments = command
        return _run(program, "-c", str(self.configuration), *arguments, folder=folder)


def obtain(workdir: Path, root: Path, say: Say) -> dict:
    """Downloads and unpacks everything the corpora are made of.

    Args:
      workdir: where apt keeps its state and the packages.
      root: where the indexes and documents are laid, at the places that they have in
        a system; source packages' catalogues below usr/src.
      say: told about each step.

    Returns:
      `packages`, the version of each package, and `notes`, a line for each thing that
      could not be had.

    Raises:
      BuildError: apt is missing or cannot download.
    """
    require_programs(("apt-get", "apt-cache", "apt-config", "dpkg-deb"))
    apt = configure_apt(workdir, root / LISTS)
    say("package indexes: apt-get update")
    apt.run("apt-get", "update")
    if not any((root / LISTS).glob("*_Packages")):
        raise BuildError(
            "apt-get update fetched no package index: "
            "check the network and the package sources in /etc/apt"
        )
    known = set(apt.run("apt-cache", "pkgnames").split())
    wanted = (*DOCUMENT_PACKAGES, *MANUAL_PACKAGES)
    notes = [f"no package {name}" for name in wanted if name not in known]
    names = [name for name in wanted if name in known]
    if not names:
        raise BuildError("apt knows none of the packages: is this a Debian system?")
    say(f"{len(names)} packages: apt-get download")
    folder = workdir / "packages"
    download(apt, folder, "download", *names)
    packages = {}
    for path in sorted(folder.glob("*.deb")):
        name, version, _ = unquote(path.name).split("_")
        packages[name] = version
        unpack_package(path, root)
    for name in SOURCE_PACKAGES:
        say(f"source package {name}: apt-get source")
        try:
            packages[f"{name} (source)"] = _obtain_source(apt, workdir, root, name)
        except BuildError as error:
            notes.append(f"no source package {name}, its manuals are left out: {error}")
    return {"packages": packages, "notes": notes}


def _obtain_source(apt: Apt, workdir: Path, root: Path, name: str) -> str:
    """Downloads a source package and unpacks its catalogues; returns its version."""
    folder = workdir / f"source-{name}"
    download(apt, folder, "source", "--download-only", name)
    for path in sorted(folder.glob("*.tar.*")):
        if path.suffix not in (".asc", ".sig"):
            unpack_catalogues(path, root / SOURCES / name)
    return unquote(next(folder.glob("*.dsc")).stem).split("_")[1]


def require_programs(names: Sequence[str]) -> None:
    """Raises BuildError unless all these programs are there."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise BuildError(
            "building the corpora needs apt, so a machine with Debian; "
            f"not found: {', '.join(missing)}"
        )


def configure_apt(workdir: Path, lists: Path) -> Apt:
    """Makes a private configuration of apt with the system's package sources.

    Args:
      workdir: where the configuration is written.
      lists: where apt shall keep its indexes.

    Returns:
      apt so configured.
    """
    cache, sources = workdir / "apt" / "cache", workdir / "apt" / "sources"
    for folder in (lists / "partial", cache / "archives" / "partial", sources):
        folder.mkdir(parents=True, exist_ok=True)
    for path in _system_sources():
        text = with_source_packages(path.read_text("utf-8"), path.suffix)
        (sources / path.name).write_text(text, "utf-8")
    configuration = workdir / "apt" / "apt.conf"
    configuration.write_text(
        _APT_CONFIGURATION.format(
            lists=lists.absolute(), cache=cache.absolute(), sources=sources.absolute()
        ),
        "utf-8",
    )
    return Apt(configuration)


def _system_sources() -> Iterator[Path]:
    answer = _run(
        "apt-config",
        "shell",
        *("LIST", "Dir::Etc::sourcelist/f", "PARTS", "Dir::Etc::sourceparts/d"),
    )
    places = dict(word.split("=", 1) for word in shlex.split(answer))
    if (path := Path(places["LIST"])).is_file():
        yield path
    for suffix in ("*.list", "*.sources"):
        yield from sorted(Path(places["PARTS"]).glob(suffix))


def with_source_packages(text: str, suffix: str) -> str:
    """Adds source packages to a list of package sources.

    Args:
      text: the list.
      suffix: ".sources" for one of stanzas, ".list" for one of lines.

    Returns:
      The list, in the same form.
    """
    if suffix == ".sources":
        return re.sub(r"(?im)^Types:.*$", "Types: deb deb-src", text)
    lines = [line for line in text.splitlines() if line.startswith("deb ")]
    return "".join(f"{line}\ndeb-src {line[4:]}\n" for line in lines)


def download(apt: Apt, folder: Path, *command: str) -> None:
    """Runs a downloading command of apt-get unless its folder is already complete.

    Args:
      apt: the configured apt.
      folder: where the files go; it appears when all of them are there.
      command: apt-get's command and its arguments.
    """
    if folder.exists():
        return
    partial = folder.with_name(folder.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    apt.run("apt-get", *command, folder=partial)
    os.replace(partial, folder)


def unpack_package(package: Path, root: Path) -> None:
    """Writes the documentation in a binary package below a folder.

    Args:
      package: a .deb file.
      root: the folder.
    """
    archive = subprocess.run(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
    )
    if archive.returncode:
        raise BuildError(f"{package} is damaged: delete it and start again")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        _write_members(files, root, lambda name: name.startswith(_UNPACKED))


def unpack_catalogues(tarball: Path, root: Path) -> None:
    """Writes the German catalogues of a source package below a folder.

    Args:
      tarball: the package's files, in one folder named after its version.
      root: the folder, which stands for that folder.
    """
    with tarfile.open(tarball) as files:
        _write_members(
            files,
            root,
            lambda name: _GERMAN_CATALOGUE.search(name) is not None,
            rename=lambda name: name.partition("/")[2],
        )


def _write_members(
    files: tarfile.TarFile,
    root: Path,
    wanted: Callable[[str], bool],
    rename: Callable[[str], str] = lambda name: name,
) -> None:
    """Writes plain files, and links to others as copies: nothing leaves the root."""
    contents: dict[str, bytes] = {}
    links: dict[str, str] = {}
    for member in files:
        name = posixpath.normpath(member.name)
        if name.startswith(("/", "..")) or not wanted(name):
            continue
        if member.isfile():
            contents[name] = files.extractfile(member).read()
        elif member.islnk():
            links[name] = posixpath.normpath(member.linkname)
        elif member.issym():
            folder = posixpath.dirname("/" + name)
            target = posixpath.normpath(posixpath.join(folder, member.linkname))
            links[name] = target.lstrip("/")
    for name, content in _with_links(contents, links):
        path = root / rename(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _with_links(
    contents: dict[str, bytes], links: dict[str, str]
) -> Iterable[tuple[str, bytes]]:
    yield from contents.items()
    for name, target in links.items():
        for _ in range(8):  # links to links; more of them are a circle
            target = links.get(target, target)
        if target in contents:
            yield name, contents[target]


def _run(*command: str, folder: Path | None = None) -> str:
    """Runs a program with messages in English; its output, or BuildError."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        errors = [l for l in done.stderr.splitlines() if l.startswith("E:")]
        reason = (errors or done.stderr.splitlines() or ["no message"])[0]
        raise BuildError(f"{' '.join(command[:1])} failed: {reason.strip()}")
    return done.stdout
