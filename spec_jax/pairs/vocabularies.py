"""Vocabularies as files: of which kind one is, and where one lies beside a model."""

import json
import os
import pathlib
import posixpath
from typing import Any

from spec_jax.checkpoints import CheckpointError
from spec_jax.checkpoints.loading import find_checkpoint
from spec_jax.checkpoints.storage import Folder
from spec_jax.checkpoints.vocabulary_files import VOCABULARIES
from spec_jax.data.tokenizer import CONFIG_FILE
from spec_jax.data.unigram import UnigramTokenizer
from spec_jax.data.vocabulary import (
    BYTES,
    ByteVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
)
from spec_jax.pairs.folders import resolve

_LISTED = ", ".join(VOCABULARIES)


def open_vocabulary(
    path: str | os.PathLike, extra_ids: int | None = None
) -> Vocabulary:
    """A vocabulary of any kind.

    Args:
      path: a SentencePiece model or a tokenizer.json (its content tells which), or a
        folder with one; see `resolve`. It may be a URL that tensorstore reads, as
        `gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model`. 'bytes' is
        ByT5's, which is no file.
      extra_ids: sentinels beyond the file's pieces (T5: 100). None takes the number in
        the tokenizer_config.json beside a SentencePiece model, and none otherwise.

    Raises:
      ValueError: if it is missing or of no such kind, or a tokenizer.json needs a
        package that is not installed.
    """
    text = os.fspath(path)
    if text == BYTES:
        return ByteVocabulary(extra_ids or 0)
    text = resolve(text)
    if os.path.isdir(text):
        found = find_vocabulary(text, extra_ids)
        if found is None:
            raise ValueError(f"{text} has no vocabulary: want one of {_LISTED}")
        return found
    if "://" not in text:
        return _opened(text, None, extra_ids)
    folder, name = posixpath.split(text.rstrip("/"))
    copy = f": gsutil cp {text} ." if text.startswith("gs://") else ""
    try:
        content = Folder.at(folder).read(name)
    except CheckpointError as error:
        raise ValueError(f"no vocabulary at {error}; copy it here{copy}") from None
    if content is None:
        raise ValueError(f"no vocabulary at {text}: no such file")
    return _opened(text, content, extra_ids)


def find_vocabulary(
    path: str | os.PathLike, extra_ids: int | None = None
) -> Vocabulary | None:
    """The vocabulary beside a checkpoint, or None where there is none.

    Args:
      path: of the checkpoint, or of the run that wrote it. Looks in its folder, and
        then in the one above, for the first of VOCABULARIES.
      extra_ids: see `open_vocabulary`.

    Raises:
      ValueError: if what lies there is damaged, or a link that leads out; see
        `open_vocabulary`.
    """
    for place in places(path):
        folder = Folder.at(place)
        for name in VOCABULARIES:
            content = folder.read(name)
            if content is not None:
                return _opened(f"{folder.path}/{name}", content, extra_ids)
        config = _config(folder)
        if str(config.get("tokenizer_class", "")).startswith("ByT5"):
            given = config.get("extra_ids", 0) if extra_ids is None else extra_ids
            return ByteVocabulary(given)
    return None


def pair_vocabulary(
    target: str, draft: str, extra_ids: int | None = None, local: bool = False
) -> Vocabulary | None:
    """The vocabulary beside the target, or else beside the draft.

    Args:
      target: path of the target's checkpoint.
      draft: of the draft's.
      extra_ids: see `open_vocabulary`.
      local: looks at no URL, and returns None where there is no vocabulary.

    Raises:
      ValueError: if there is none, or the two have different ones.
    """
    looked = [
        path for path in (target, draft) if not (local and "://" in resolve(path))
    ]
    found = [find_vocabulary(path, extra_ids) for path in looked]
    there = [one for one in found if one is not None]
    if not there and not local:
        where = dict.fromkeys(places(target) + places(draft))
        raise ValueError(
            f"no vocabulary in {', '.join(where)}: give load_pair.vocabulary, or put "
            f"one of {_LISTED} there"
        )
    if len(there) == 2:
        _check_one(*there)
    return there[0] if there else None


def places(path: str | os.PathLike) -> list[str]:
    """The folders where the vocabulary of a checkpoint can lie, its own first."""
    place = resolve(path).rstrip("/")
    if "://" not in place:
        place = os.path.abspath(place)
        place = os.path.dirname(place) if os.path.isfile(place) else place
        return [*_newest_step(place), place, os.path.dirname(place)]
    above = place.rpartition("/")[0]
    return [place] if above.endswith("/") else [place, above]


def _newest_step(folder: str) -> list[str]:
    """The step that stands for a folder of several, where `convert` puts the files."""
    try:
        found = find_checkpoint(folder).path
    except CheckpointError:
        return []  # what is not there is told by whoever loads it
    return [found] if os.path.dirname(found) == os.path.realpath(folder) else []


def _opened(path: str, content: bytes | None, extra_ids: int | None) -> Vocabulary:
    """The vocabulary in a file, which may have been read already."""
    if content is None:
        try:
            content = pathlib.Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"no vocabulary at {path}: {error.strerror}") from None
    if content.lstrip()[:1] == b"{":
        if extra_ids:
            raise ValueError(
                f"{path} holds its sentinels: want extra_ids None, got {extra_ids}"
            )
        try:
            return UnigramTokenizer(path, content)
        except ImportError as error:
            raise ValueError(f"{path}: {error}") from None
    pieces = SentencePieceVocabulary(path, extra_ids or 0, content)
    if extra_ids is None and not pieces.has_sentinels:
        extra = _config(Folder.at(posixpath.dirname(path) or ".")).get("extra_ids", 0)
        if extra:
            return SentencePieceVocabulary(path, extra, content)
    return pieces


def _config(folder: Folder) -> dict[str, Any]:
    """What tokenizer_config.json says of the kind and of sentinels."""
    content = folder.read(CONFIG_FILE)
    if content is None:
        return {}
    try:
        config = json.loads(content)
        if not isinstance(config, dict):
            raise ValueError("want an object")
        if not isinstance(config.get("extra_ids", 0), int):
            raise ValueError(f"extra_ids {config['extra_ids']!r} is no whole number")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{folder.path}/{CONFIG_FILE}: {error}") from None
    return config


def _check_one(target: Vocabulary, draft: Vocabulary) -> None:
    """Raises ValueError if an id means one thing here and another there.

    Their numbers of sentinels may differ, and a sentinel's spelling.
    """
    if target.fingerprint == draft.fingerprint:
        return
    for number, pieces in enumerate(zip(target.pieces, draft.pieces)):
        ours, theirs = (piece.lstrip("\N{LOWER ONE EIGHTH BLOCK}") for piece in pieces)
        sentinels = ours.startswith("<extra_id_") or theirs.startswith("<extra_id_")
        if pieces[0] != pieces[1] and not (sentinels and ours == theirs):
            raise ValueError(
                f"the target and the draft have different vocabularies: token {number} "
                f"is {pieces[0]!r} in {target.path} and {pieces[1]!r} in {draft.path}"
            )
