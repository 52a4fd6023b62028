"""The files of a vocabulary that lie beside a checkpoint."""

import json
import os
import pathlib
from collections.abc import Sequence

from spec_jax.checkpoints.storage import inside

VOCABULARIES = (
    "spiece.model",
    "sentencepiece.model",
    "vocabulary.model",
    "tokenizer.json",
)
"""Each is a whole vocabulary: SentencePiece models, and Hugging Face's."""
SETTINGS = (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""What Hugging Face's tokenizers have beside them."""
SENTENCEPIECE = VOCABULARIES[0]
"""What transformers calls a SentencePiece model of T5."""
T5_SETTINGS = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}


def vocabulary_files(path: str | os.PathLike) -> tuple[pathlib.Path, ...]:
    """The vocabulary beside a checkpoint: in its folder, else in the one above.

    Args:
      path: of the checkpoint, a file or folder; a URL has none.

    Returns:
      The files of VOCABULARIES and SETTINGS in the first folder that holds one of the
      former, or the settings of a ByT5, whose vocabulary is no file; empty if neither
      does.

    Raises:
      CheckpointError: if one of them is a link that leads out of the folder.
    """
    if "://" in os.fspath(path):
        return ()
    place = pathlib.Path(os.path.abspath(os.path.expanduser(path)))
    folders = [place, place.parent] if place.is_dir() else [place.parent]
    for folder in folders:
        if _present(folder, VOCABULARIES) or _is_byt5(folder):
            return _present(folder, (*VOCABULARIES, *SETTINGS))
    return ()


def for_transformers(
    files: Sequence[pathlib.Path],
) -> dict[str, pathlib.Path | bytes]:
    """The files of a vocabulary under the names that transformers looks for.

    Args:
      files: what `vocabulary_files` found.

    Returns:
      The file, or a file's content, by the name to write. A SentencePiece model is
      `spiece.model`, whatever it was called, and settings beside it say that it is
      T5's: it holds all of its sentinels, or their number was given beside it.
    """
    named: dict[str, pathlib.Path | bytes] = {file.name: file for file in files}
    models = [file for file in files if file.suffix == ".model" and not _is_json(file)]
    if not models:
        return named
    # The first is the one that readers of ours take.
    named = {SENTENCEPIECE: named.pop(models[0].name)} | named
    named.setdefault(SETTINGS[0], json.dumps(T5_SETTINGS, indent=2).encode() + b"\n")
    return named


def _present(folder: pathlib.Path, names: Sequence[str]) -> tuple[pathlib.Path, ...]:
    # Whose links lead out would have files of the machine copied along.
    return tuple(folder / n for n in names if inside(folder, n).is_file())


def _is_json(file: pathlib.Path) -> bool:
    with open(file, "rb") as stream:
        return stream.read(64).lstrip()[:1] == b"{"


def _is_byt5(folder: pathlib.Path) -> bool:
    file = inside(folder, SETTINGS[0])
    return file.is_file() and b"ByT5Tokenizer" in file.read_bytes()
