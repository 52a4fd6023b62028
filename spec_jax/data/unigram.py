"""Hugging Face's form of T5's vocabularies: a tokenizer.json of the kind Unigram.

The package `tokenizers` (an extra) is imported where it is used.
"""

import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence

from spec_jax.data.tokenizer import optional_package
from spec_jax.data.vocabulary import EOS_ID, PAD_ID, UNK_ID, until_end


class UnigramTokenizer:
    """The tokenizer.json beside a T5, mT5 or Flan-T5 of Hugging Face.

    Its ids are those of the SentencePiece model it was made from, with two exceptions:
    of equally likely divisions of a word (`0000` as `0` `000` or `000` `0`) it may take
    the other one, and special tokens spelled in a text, `</s>` and `<extra_id_0>`,
    become those tokens. An unknown token decodes to `<unk>`.

    Args:
      path: the JSON file.
      content: what it holds, where it has been read already.

    Raises:
      ValueError: if the file is missing, is no such tokenizer, or has other special
        ids than T5's.
      ImportError: if the package tokenizers is not installed.
    """

    def __init__(self, path: str | pathlib.Path, content: bytes | None = None):
        library = optional_package("tokenizers")
        self.path = str(path)
        try:
            text = pathlib.Path(path).read_bytes() if content is None else content
            self._tokenizer = library.Tokenizer.from_str(text.decode())
            said = json.loads(text)
            kind = said["model"]["type"]
        except OSError as error:
            raise ValueError(f"no tokenizer at {path}: {error.strerror}") from None
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{path} is no tokenizer: {error}") from None
        if kind != "Unigram":
            raise ValueError(f"{path}: a T5 has a tokenizer 'Unigram', got {kind!r}")
        ids = [self._tokenizer.token_to_id(token) for token in ("<pad>", "</s>")]
        if ids != [PAD_ID, EOS_ID]:
            raise ValueError(
                f"{path}: a T5 vocabulary has <pad> as id {PAD_ID} and </s> as id "
                f"{EOS_ID}, this one has {ids[0]} and {ids[1]}"
            )
        # A file may ask for rows of one length, which is the caller's affair.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self.fingerprint = _fingerprint(said)

    @functools.cached_property
    def vocab_size(self) -> int:
        """One more than the largest id, sentinels included."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def encode(self, text: str) -> list[int]:
        """Token ids, without the end of sequence that the file would append."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        rows = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [row.ids for row in rows]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end of sequence; padding is dropped."""
        size = self.vocab_size
        kept = [i if 0 <= i < size else UNK_ID for i in until_end(ids)]
        return self._tokenizer.decode(kept, skip_special_tokens=False)

    @functools.cached_property
    def pieces(self) -> list[str]:
        """The text of each id, with U+2581 for a space."""
        tokens = map(self._tokenizer.id_to_token, range(self.vocab_size))
        return [token or "" for token in tokens]

    def __eq__(self, other) -> bool:
        same_type = isinstance(other, UnigramTokenizer)
        return same_type and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"UnigramTokenizer({self.path!r}, {self.vocab_size} pieces)"


def _fingerprint(content: dict) -> str:
    """sha256 of what decides the ids, however a version of the library writes it."""
    model = content["model"]
    added = sorted((x["id"], x["content"]) for x in content.get("added_tokens") or ())
    rules = [content.get(part) for part in ("normalizer", "pre_tokenizer")]
    said = json.dumps([model["vocab"], model.get("byte_fallback"), added, rules])
    return hashlib.sha256(said.encode()).hexdigest()
