"""The files of a vocabulary that lie beside a checkpoint."""

import os
import pathlib

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


def vocabulary_files(path: str | os.PathLike) -> tuple[pathlib.Path, ...]:
    """The vocabulary beside a checkpoint: in its folder, else in the one above.

    Args:
      path: of the checkpoint, a file or folder; a URL has none.

    Returns:
      The files of VOCABULARIES and SETTINGS in the first folder that holds one of the
      former, or the settings of a ByT5, whose vocabulary is no file; empty if neither
      does.
    """
    if "://" in os.fspath(path):
        return ()
    place = pathlib.Path(os.path.abspath(os.path.expanduser(path)))
    folders = [place, place.parent] if place.is_dir() else [place.parent]
    for folder in folders:
        if any((folder / n).is_file() for n in VOCABULARIES) or _is_byt5(folder):
            names = (*VOCABULARIES, *SETTINGS)
            return tuple(folder / n for n in names if (folder / n).is_file())
    return ()


def _is_byt5(folder: pathlib.Path) -> bool:
    file = folder / SETTINGS[0]
    return file.is_file() and b"ByT5Tokenizer" in file.read_bytes()
