"""The whole build, stage by stage: obtain, align, split, write."""

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

from spec_jax.data.corpora import (
    catalogues,
    debian_packages,
    descriptions,
    documents,
    libreoffice,
    manpages,
    splits,
)
from spec_jax.data.corpora.alignment import PairCollector
from spec_jax.data.corpora.debian_packages import LISTS, SOURCES, BuildError, Say
from spec_jax.data.corpora.rows import (
    Pair,
    Row,
    Summary,
    read_rows,
    write_json,
    write_rows,
)

# Raised when a stage comes to give other rows: what older code left in a work folder
# is then made again.
_STAGES_VERSION = 1

# A stage's rows, and what is worth knowing about how it came by them.
Extracted = tuple[list[Row], dict[str, Any]]


def build_debian(
    output_dir: str | PathLike,
    root: str | PathLike | None = None,
    workdir: str | PathLike | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Builds the translation and summarization corpora from Debian packages.

    Writes `ende.{train,validation,test}.jsonl.gz` (fields src, group, kind, en, de),
    `summ.{train,validation,test}.jsonl.gz` (group, document, summary) and
    `report.json`. A stage that is complete in the work folder is not run again, so a
    build that was interrupted goes on; to build from newer packages, delete the work
    folder. Equal packages give equal files, byte by byte.

    Args:
      output_dir: where the files go.
      root: a folder laid out like a system with the packages unpacked in it: package
        indexes, uncompressed, in var/lib/apt/lists, documents in usr/share, source
        packages in usr/src. None obtains them with apt, which needs no root rights.
      workdir: the work folder, about 400 MB; None takes `work` in `output_dir`.
      progress: whether to tell on stderr what is done.

    Returns:
      The content of report.json: `packages` with versions, `notes` on what could not
      be had, `sources` with rows found and dropped, `splits` with row counts,
      `removed` with held-out rows removed as copies.

    Raises:
      BuildError: apt or a library is missing, a download fails, or no text is found.
    """
    _require_libraries()
    say = _tell if progress else _be_silent
    output = Path(output_dir)
    work = Path(workdir) if workdir is not None else output / "work"
    for folder in (output, work / "rows"):
        folder.mkdir(parents=True, exist_ok=True)
    if root is None:
        obtained = _obtained(work, say)
        tree = work / "root"
    else:
        tree = Path(root)
        if not tree.is_dir():
            raise BuildError(f"root must be a folder, got {tree}")
        obtained = {"packages": {}, "notes": [f"documents from {tree}"]}
    pairs, summaries, sources = _extract(tree, work / "rows", obtained, say)
    empty = [f"no rows from {name}" for name, of in sources.items() if not of["rows"]]
    report = {**obtained, "notes": obtained["notes"] + empty, "sources": sources}
    report |= _split_and_write(output, pairs, summaries, say)
    write_json(output / "report.json", report)
    return report


def _extract(
    tree: Path, folder: Path, obtained: dict, say: Say
) -> tuple[list[Pair], list[Summary], dict[str, Any]]:
    """The rows of all sources, and how each came by them."""
    key = {"version": _STAGES_VERSION, **obtained}
    stages: dict[str, tuple[type, Callable[[Path], Extracted]]] = {
        "ddtp": (Pair, _description_pairs),
        "lohelp": (Pair, _help_pairs),
        "man": (Pair, _manual_pairs),
        "doc": (Pair, _document_pairs),
        "help": (Pair, _tree_pairs),
        "loui": (Pair, _interface_pairs),
        "summaries": (Summary, _summaries),
    }
    rows: dict[type, list] = {Pair: [], Summary: []}
    sources = {}
    for name, (row_type, extract) in stages.items():
        found, facts = _stage(folder, name, row_type, key, extract, tree)
        say(f"{name}: {len(found)} rows")
        rows[row_type] += found
        sources[name] = {"rows": len(found), **facts}
    if not rows[Pair] and not rows[Summary]:
        raise BuildError(f"no text found below {tree}")
    return rows[Pair], rows[Summary], sources


def _stage(
    folder: Path,
    name: str,
    row_type: type[Row],
    key: dict,
    extract: Callable[[Path], Extracted],
    tree: Path,
) -> Extracted:
    """What an earlier run left of a stage with the same key, or a new run of it."""
    rows_path, facts_path = folder / f"{name}.jsonl.gz", folder / f"{name}.json"
    if facts_path.exists():
        earlier = json.loads(facts_path.read_text("utf-8"))
        if earlier["key"] == key:
            return read_rows(rows_path, row_type), earlier["facts"]
        facts_path.unlink()
    rows, facts = extract(tree)
    write_rows(rows_path, rows)
    write_json(facts_path, {"key": key, "facts": facts})  # last: it says "complete"
    return rows, facts


def _obtained(work: Path, say: Say) -> dict:
    complete = work / "obtained.json"
    if complete.exists():
        say("packages: already there")
    else:
        write_json(complete, debian_packages.obtain(work, work / "root", say))
    return json.loads(complete.read_text("utf-8"))


def _description_pairs(tree: Path) -> Extracted:
    return _facts(descriptions.description_pairs(descriptions.read_index(tree / LISTS)))


def _summaries(tree: Path) -> Extracted:
    index = descriptions.read_index(tree / LISTS)
    rows, dropped = descriptions.description_summaries(index)
    return rows, {"dropped": dropped}


def _help_pairs(tree: Path) -> Extracted:
    folder = tree / "usr/share/libreoffice/help"
    return _facts(libreoffice.libreoffice_help_pairs(folder))


def _manual_pairs(tree: Path) -> Extracted:
    collector, pages = manpages.manual_page_pairs(tree / "usr/share/man")
    rows, facts = _facts(collector)
    return rows, {**facts, "pages": pages}


def _document_pairs(tree: Path) -> Extracted:
    return _facts(catalogues.document_pairs(tree / SOURCES))


def _tree_pairs(tree: Path) -> Extracted:
    return _facts(documents.document_tree_pairs(tree / "usr/share"))


def _interface_pairs(tree: Path) -> Extracted:
    folder = tree / "usr/lib/libreoffice/program/resource/de/LC_MESSAGES"
    return _facts(catalogues.interface_pairs(folder))


def _facts(collector: PairCollector) -> Extracted:
    return collector.distinct(), {"dropped": dict(sorted(collector.dropped.items()))}


def _split_and_write(
    output: Path, pairs: list[Pair], summaries: list[Summary], say: Say
) -> dict[str, Any]:
    say("splitting, and removing near copies")
    summ, summ_removed = splits.split_summaries(summaries)
    documents = [row.document for row in summ["train"]]
    ende, ende_removed = splits.split_pairs(pairs, documents)
    broken = splits.groups_in_two_splits(ende, summ)
    if broken:
        raise BuildError(f"groups in two splits: {', '.join(sorted(broken)[:5])}")
    counts: dict[str, dict[str, Any]] = {}
    for task, parts in (("ende", ende), ("summ", summ)):
        counts[task] = {}
        for split, rows in parts.items():
            write_rows(output / f"{task}.{split}.jsonl.gz", rows)
            counts[task][split] = _counts(rows)
            say(f"{task}.{split}: {len(rows)} rows")
    return {"splits": counts, "removed": {"ende": ende_removed, "summ": summ_removed}}


def _counts(rows: list[Pair] | list[Summary]) -> dict[str, Any]:
    by_source = Counter(row.src for row in rows if isinstance(row, Pair))
    counts = {"rows": len(rows), "groups": len({row.group for row in rows})}
    return counts | ({"src": dict(sorted(by_source.items()))} if by_source else {})


def _require_libraries() -> None:
    missing = [n for n in ("lxml", "polib") if importlib.util.find_spec(n) is None]
    if missing:
        raise BuildError(
            f"building the corpora needs {' and '.join(missing)}: "
            "pip install 'spec_jax[corpora]'"
        )


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _be_silent(line: str) -> None:
    del line
