"""Byte-level BPE tokenizers with special tokens, and the chat templates beside them.

The packages `tokenizers` and `jinja2` (an extra) are imported where they are used.
"""

import datetime
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

INSTALL = (
    "want the packages tokenizers and jinja2 for this model's text: pip install "
    "tokenizers jinja2, or spec_jax with its extra tokenizers"
)
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
TEMPLATE_FILE = "chat_template.jinja"
# Kinds of token in GGUF's tokenizer.ggml.token_type.
CONTROL, USER_DEFINED = 3, 4
# GGUF names a text's first division into pieces: GPT-2's, or with every digit apart.
PRE_TOKENIZERS = {
    "gpt-2": False,
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), True
    ),
}
Message = Mapping[str, Any]


class BPETokenizer:
    """A byte-level BPE tokenizer; any text comes back from its tokens.

    Two are equal when they give the same tokens: the same vocabulary, merges and
    rules.

    Args:
      tokenizer: a `tokenizers.Tokenizer`.
      path: the file it is from, for messages.
      eos_ids: the tokens that end a text.
      chat_template: Jinja's source of the chat template, if there is one.
      bos: the token that begins a text, as templates name it.
      adds_bos: whether `encode` puts that token first; None leaves it to the
        tokenizer's own file.
    """

    def __init__(
        self,
        tokenizer: Any,
        path: str,
        eos_ids: Sequence[int] = (),
        chat_template: str | None = None,
        bos: str | None = None,
        adds_bos: bool | None = None,
    ):
        self._tokenizer = tokenizer
        self.path = str(path)
        self.eos_ids = tuple(eos_ids)
        self.chat_template = chat_template
        self._bos = bos
        self._first = [tokenizer.token_to_id(bos)] if adds_bos and bos else []
        self.fingerprint = _fingerprint(json.loads(tokenizer.to_str()))
        known = set(tokenizer.get_vocab(with_added_tokens=True).values())
        lacking = [i for i in self.eos_ids if i not in known]
        if lacking:
            raise ValueError(
                f"{path}: want end-of-text ids that the tokenizer has, got {lacking}"
            )

    @functools.cached_property
    def vocab_size(self) -> int:
        """One more than the largest id; a table may have more rows."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    @property
    def pad_id(self) -> int:
        """Fills rows; it is never read. Most such models have no token for it."""
        return self.eos_ids[0] if self.eos_ids else 0

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids, without an end of text.

        Args:
          text: special tokens that it spells become those tokens.
          add_special_tokens: puts first what the model's texts begin with, if
            anything; a chat template writes that itself.
        """
        encoded = self._tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return (self._first if add_special_tokens else []) + encoded.ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text, on all cores."""
        return [
            self._first + encoded.ids
            for encoded in self._tokenizer.encode_batch(list(texts))
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids up to the first end of text; special tokens have none."""
        kept = []
        for token in ids:
            if int(token) in self.eos_ids:
                break
            kept.append(int(token))
        return self._tokenizer.decode(kept, skip_special_tokens=True)

    @functools.cached_property
    def pieces(self) -> list[str]:
        """The text of each id; a token that is part of a character has U+FFFD."""
        return [
            self._tokenizer.decode([i], skip_special_tokens=False)
            for i in range(self.vocab_size)
        ]

    def apply_chat_template(
        self, messages: Sequence[Message], add_generation_prompt: bool = False
    ) -> str:
        """The text of a conversation, as the model was taught to read it.

        Args:
          messages: dicts with `role` and `content`, the oldest first.
          add_generation_prompt: whether the answer's head follows, so that what
            the model writes is the answer.

        Raises:
          ValueError: if the model has no template, or the template refuses.
        """
        if self.chat_template is None:
            raise ValueError(
                f"{self.path} has no chat template: give the prompt as text"
            )
        eos = self._tokenizer.id_to_token(self.eos_ids[0]) if self.eos_ids else ""
        return render_chat(
            self.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            bos_token=self._bos or "",
            eos_token=eos,
        )

    def __eq__(self, other) -> bool:
        same_type = isinstance(other, BPETokenizer)
        return same_type and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"BPETokenizer({self.path!r}, {self.vocab_size} tokens)"


def _fingerprint(content: dict[str, Any]) -> str:
    """sha256 of what decides the ids, however a version of the library writes it."""
    model = content["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    added = sorted((x["id"], x["content"]) for x in content.get("added_tokens") or ())
    pieces = sorted(model["vocab"].items())
    said = json.dumps([pieces, merges, added, content.get("pre_tokenizer")])
    return hashlib.sha256(said.encode()).hexdigest()


def read_tokenizer(
    file: str | pathlib.Path,
    eos_ids: Sequence[int] = (),
    config: Mapping[str, Any] | None = None,
    chat_template: str | None = None,
) -> BPETokenizer:
    """The tokenizer of a tokenizer.json, as Hugging Face writes it.

    Args:
      file: the JSON file.
      eos_ids: the tokens that end a text; by default the config's eos_token.
      config: what tokenizer_config.json holds.
      chat_template: Jinja's source; by default the config's.

    Raises:
      ValueError: if the file is missing or holds something else.
      ImportError: if the package tokenizers is not installed.
    """
    library = optional_package("tokenizers")
    config = config or {}
    try:
        content = pathlib.Path(file).read_text(encoding="utf-8")
        tokenizer = library.Tokenizer.from_str(content)
        kind = json.loads(content)["model"].get("type", "BPE")
    except OSError as error:
        raise ValueError(f"no tokenizer at {file}: {error.strerror}") from None
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{file} is no tokenizer: {error}") from None
    if kind != "BPE":
        raise ValueError(f"{file}: a tokenizer of kind {kind!r}; want 'BPE'")
    # A file may ask for rows of one length, which is the caller's affair.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    eos, bos = (_spelled(config.get(f"{name}_token")) for name in ("eos", "bos"))
    if not eos_ids and eos is not None:
        eos_ids = [tokenizer.token_to_id(eos)]
    return BPETokenizer(
        tokenizer,
        str(file),
        [one for one in eos_ids if one is not None],
        chat_template or _template(config.get("chat_template")),
        bos,
    )


def tokenizer_from_gguf(metadata: Mapping[str, Any], path: str) -> BPETokenizer:
    """The tokenizer that a GGUF file's metadata describe.

    Args:
      metadata: the file's keys; those of `tokenizer.` are read.
      path: the file, for messages.

    Raises:
      ValueError: if it is of another kind, or something is missing.
      ImportError: if the package tokenizers is not installed.
    """
    library = optional_package("tokenizers")
    read = {key: metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre")}
    if read["model"] != "gpt2" or read["pre"] not in PRE_TOKENIZERS:
        raise ValueError(
            f"{path}: tokenizer {read['model']!r} with pre-tokenizer {read['pre']!r}; "
            f"want 'gpt2' with one of {list(PRE_TOKENIZERS)}, or give a tokenizer"
        )
    tokens, merges, kinds = (
        metadata.get(f"tokenizer.ggml.{key}")
        for key in ("tokens", "merges", "token_type")
    )
    if not tokens or merges is None or len(set(tokens)) != len(tokens):
        raise ValueError(f"{path}: want tokens, each once, and merges")
    try:
        model = library.models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(str(merge).split(" ", 1)) for merge in merges],
        )
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path}: merges that make no tokenizer: {error}") from None
    tokenizer = library.Tokenizer(model)
    parts = [library.pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if PRE_TOKENIZERS[read["pre"]]:
        parts.insert(0, library.pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = library.pre_tokenizers.Sequence(parts)
    tokenizer.decoder = library.decoders.ByteLevel()
    tokenizer.add_special_tokens(_added(library, tokens, kinds, CONTROL))
    tokenizer.add_tokens(_added(library, tokens, kinds, USER_DEFINED))
    ids = {
        name: metadata.get(f"tokenizer.ggml.{name}_token_id")
        for name in ("bos", "eos", "eot", "eom")
    }
    bos = None if ids["bos"] is None else tokenizer.id_to_token(ids["bos"])
    ends = dict.fromkeys(ids[name] for name in ("eos", "eot", "eom"))
    return BPETokenizer(
        tokenizer,
        path,
        [one for one in ends if one is not None],
        metadata.get("tokenizer.chat_template"),
        bos,
        bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
    )


def render_chat(
    template: str,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
    bos_token: str = "",
    eos_token: str = "",
) -> str:
    """Renders a chat template in Jinja's sandbox: it is a stranger's program.

    Args:
      template: its source.
      messages: dicts with `role` and `content`.
      add_generation_prompt: as Hugging Face names it.
      bos_token: what the template knows under this name.
      eos_token: the same.

    Raises:
      ValueError: if the template is broken, reaches for what a sandbox forbids, or
        refuses the messages.
      ImportError: if the package jinja2 is not installed.
    """
    optional_package("jinja2")
    import jinja2.sandbox

    def refuse(message):
        raise jinja2.TemplateError(message)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(
        form
    )
    try:
        return environment.from_string(template).render(
            messages=list(messages),
            add_generation_prompt=add_generation_prompt,
            bos_token=bos_token,
            eos_token=eos_token,
        )
    except (
        jinja2.TemplateError,
        TypeError,
        ValueError,
        LookupError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise ValueError(f"the chat template refuses: {error}") from error


def optional_package(name: str) -> Any:
    """A package of the extra `tokenizers`.

    Raises:
      ImportError: if it is not installed; says how to.
    """
    try:
        return __import__(name)
    except ImportError as error:
        raise ImportError(INSTALL) from error


def _added(
    library: Any, tokens: Sequence[str], kinds: Sequence[int] | None, wanted: int
) -> list[Any]:
    """Tokens of one kind, which are found in a text before it is divided."""
    of_kind = (token for token, kind in zip(tokens, kinds or ()) if kind == wanted)
    return [library.AddedToken(token, normalized=False) for token in of_kind]


def _spelled(token: Any) -> str | None:
    """A special token, which a config gives as a string or as a dict with it."""
    spelled = token.get("content") if isinstance(token, Mapping) else token
    return spelled if isinstance(spelled, str) else None


def _template(given: Any) -> str | None:
    """A config may name several templates."""
    if isinstance(given, list):
        given = {one.get("name"): one.get("template") for one in given}.get("default")
    return given if isinstance(given, str) else None
