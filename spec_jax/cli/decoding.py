"""Texts to rows of static shapes, decoded in batches; what demo and generate share."""

import dataclasses
import inspect
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from spec_jax.base import Algorithm
from spec_jax.cli.errors import UsageError, did_you_mean
from spec_jax.cli.settings import require
from spec_jax.core.rules import AnyRule, is_lossless
from spec_jax.data.batches import round_up
from spec_jax.decoding.loop import Generation, generate, stream
from spec_jax.pairs import DRAFTS, Drafting

INPUT_LENGTHS = (32, 64, 128, 256, 512, 1024)
"""Padded lengths of an encoder's input: one compiled program for each."""
MOST_NEW_TOKENS = 2**16
"""The cache of more would fill the memory of the machine."""
DTYPES = ("bfloat16", "float32", "float16")


@dataclasses.dataclass(frozen=True)
class Row:
    """One output to decode.

    Attributes:
      example: index of its text.
      output: index among the text's outputs.
      tokens: what the model is given.
    """

    example: int
    output: int
    tokens: tuple[int, ...]


def encode_text(
    text: str, name: str, pair: Drafting, limit: int, truncate: bool | None = None
) -> tuple[int, ...]:
    """What a pair's model is given for a text, prefix included.

    Args:
      text: with its prefix.
      name: how an error calls it.
      pair: has the vocabulary.
      limit: most tokens.
      truncate: whether a longer one is cut; None: the command cannot.

    Raises:
      UsageError: if it is too long.
    """
    tokens = pair.encode(text)
    if len(tokens) > limit and not truncate:
        cut = "" if truncate is None else "--truncate cuts it, "
        raise UsageError(
            f"{name} has {len(tokens)} tokens with its prefix, the limit is {limit}; "
            f"{cut}--gin.MAX_INPUT_LENGTH raises the limit, to {INPUT_LENGTHS[-1]} at "
            "most"
        )
    return pair.cut(tokens, limit)


def check_lengths(max_input_length: int, max_new_tokens: int | None) -> None:
    """Raises ValueError where no program has such an input, or no memory the output."""
    for name, value, least, most in (
        ("max_input_length", max_input_length, 2, INPUT_LENGTHS[-1]),
        ("max_new_tokens", max_new_tokens or MOST_NEW_TOKENS, 1, MOST_NEW_TOKENS),
    ):
        require(
            least <= value <= most, f"want {least} <= {name} <= {most}, got {value}"
        )


def padded_length(pair: Drafting, lengths: Iterable[int], limit: int) -> int:
    """The length to which texts are padded; padding never crowds out the output.

    Args:
      pair: whose model may have a limit of its own.
      lengths: of the texts.
      limit: most new tokens.
    """
    longest = max(lengths)
    length = round_up(longest, INPUT_LENGTHS)
    if pair.target.max_length is None:
        return length
    return max(longest, min(length, pair.target.max_length - limit))


def row_key(seed: int, example: int, output: int) -> jax.Array:
    """The key of a row: by what it is, never by its place in a batch."""
    key = jax.random.fold_in(jax.random.key(seed), example)
    return jax.random.fold_in(key, output)


def arguments(
    pair: Drafting, rows: Sequence[Row], seed: int, size: int, limit: int
) -> dict[str, Any]:
    """What `generate`, `stream` and `trace` want beside algorithm and parameters.

    Args:
      pair: knows where a text belongs, encoder or prompt.
      rows: at most `size`; the batch is filled up with rows that end at once.
      seed: of the run.
      size: rows of the batch.
      limit: most new tokens.
    """
    length = padded_length(pair, (len(row.tokens) for row in rows), limit)
    filled = [*rows, *[Row(0, 0, rows[0].tokens)] * (size - len(rows))]
    keys = jax.numpy.stack([row_key(seed, row.example, row.output) for row in filled])
    limits = np.where(np.arange(size) < len(rows), limit, 0).astype(np.int32)
    given = pair.arguments([row.tokens for row in filled], length)
    return {
        **given,
        "key": keys,
        "max_new_tokens": limits,
        "max_length": given["prompt"].shape[1] + limit,
    }


def decode_batch(
    algorithm: Algorithm,
    pair: Drafting,
    rows: Sequence[Row],
    seed: int,
    size: int,
    limit: int,
) -> Generation:
    """Decodes rows together. See `arguments`."""
    given = arguments(pair, rows, seed, size, limit)
    return generate(algorithm, pair.params, **given)


def stream_text(
    algorithm: Algorithm, pair: Drafting, row: Row, seed: int, limit: int
) -> Iterator[str]:
    """The text of one row, piece by piece as the target's runs bring it."""
    tokens: list[int] = []
    sent = ""
    given = arguments(pair, [row], seed, 1, limit)
    for pieces in stream(algorithm, pair.params, **given):
        tokens += pieces[0].tolist()
        text = shown(pair, tokens)
        # The bytes of a character may be spread over two runs.
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
        if whole.startswith(sent) and len(whole) > len(sent):
            yield whole[len(sent) :]
            sent = whole
    if text != sent:
        yield text[len(sent) :]


def shown(pair: Drafting, tokens: Sequence[int]) -> str:
    """The text of new tokens, in one line where a pair's texts have no more."""
    text = pair.text(tokens)
    return one_line(text) if pair.one_line else text


def one_line(text: str) -> str:
    """Text for a line of output: line breaks and control characters are spaces."""
    return "".join(" " if _breaks(character) else character for character in text)


def _breaks(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


def check_draft(name: str) -> None:
    """Raises UsageError for a draft that there is not."""
    if name not in DRAFTS:
        near = did_you_mean(name, DRAFTS)
        raise UsageError(f"no draft {name!r}, there are {', '.join(DRAFTS)}{near}")


def lossy(rule: AnyRule | None) -> str:
    """What must be said of outputs that do not follow the target; '' for others."""
    if is_lossless(rule):
        return ""
    return (
        "The output does not follow the target: above T = 0 no token is more probable "
        f"than p / {rule.lenience:g}, at T = 0 drafted tokens of at least "
        f"{rule.lenience:g} max p stand, p being the target's."
    )


def fastest_dtypes(
    dtype: str | None, plain_dtype: str | None, batch: int = 1
) -> tuple[str, str]:
    """The dtypes of speculative and of plain decoding, where they are not given.

    On CPU a product of one row is fastest in float32, of several rows in bfloat16.
    Before jax 0.12 that is not so inside a loop: all weights are turned into float32
    before it begins, which takes as long as ten steps.

    Args:
      dtype: of speculative decoding, where it is given.
      plain_dtype: of plain decoding, where it is given.
      batch: rows of a call.

    Raises:
      UsageError: for a dtype that networks do not compute in.
    """
    for name in (dtype, plain_dtype):
        if name not in (None, *DTYPES):
            near = did_you_mean(name, DTYPES)
            raise UsageError(f"no dtype {name}, there are {', '.join(DTYPES)}{near}")
    on_cpu = jax.default_backend() == "cpu"
    for_one = "float32" if on_cpu else "bfloat16"
    for_several = for_one if jax.__version_info__ < (0, 12) else "bfloat16"
    return dtype or for_several, plain_dtype or (for_one if batch == 1 else for_several)


def load_both(
    load_pair: Callable[..., Any],
    dtype: str | None,
    plain_dtype: str | None,
    batch: int = 1,
) -> tuple[Any, Any]:
    """The pair for speculative and for plain decoding, which may be the same.

    Args:
      load_pair: loads it in a dtype.
      dtype: see `fastest_dtypes`, also for the rest.
      plain_dtype: of plain decoding.
      batch: rows of a call.
    """
    first, plain_first = fastest_dtypes(dtype, plain_dtype, batch)
    pair = load_speculative(load_pair, dtype, batch)
    if first == plain_first:
        return pair, pair
    return pair, load_pair(dtype=plain_first)


def load_speculative(
    load_pair: Callable[..., Any], dtype: str | None, batch: int = 1
) -> Any:
    """The pair for speculative decoding.

    A draft's call on one row is faster in the dtype that is fastest for one; XLA would
    turn its weights into that before the loop, in every call again.
    """
    several, one = fastest_dtypes(dtype, None)
    mixed = dtype is None and batch == 1 and one != several
    if mixed and "draft_dtype" in inspect.signature(load_pair).parameters:
        return load_pair(dtype=several, draft_dtype=one)
    return load_pair(dtype=several)
