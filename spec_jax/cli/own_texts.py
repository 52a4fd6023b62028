"""What commands share that measure a user's own texts: settings, and the texts."""

import dataclasses
from collections.abc import Callable, Sequence

from spec_jax.cli.decoding import INPUT_LENGTHS, check_lengths, encode_text
from spec_jax.cli.generate import check_some
from spec_jax.cli.runtime import limit_cpu_threads, start_backend
from spec_jax.cli.settings import positive
from spec_jax.cli.texts import check_writable, read_texts
from spec_jax.data.batches import round_up
from spec_jax.data.examples import get_task
from spec_jax.pairs import Drafting


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnTexts:
    """Which models decode the texts, and how long these may be.

    Attributes:
      load_pair: loads the models in a dtype.
      task: gives the prefix and the longest output.
      prefix: goes before every text instead of the task's.
      seed: with a text's number it decides the draws.
      max_input_length: tokens of a text, prefix included.
      max_new_tokens: of an output; None is the task's.
      dtype: of speculative decoding; None is the fastest here.
      plain_dtype: of plain decoding; None is the fastest here.

    Raises:
      ValueError: if a value is out of range.
    """

    load_pair: Callable[..., Drafting]
    task: str = "ende"
    prefix: str | None = None
    seed: int = 0
    max_input_length: int = 256
    max_new_tokens: int | None = None
    dtype: str | None = None
    plain_dtype: str | None = None

    def __post_init__(self):
        get_task(self.task)
        positive(self, "max_new_tokens")
        check_lengths(self.max_input_length, self.max_new_tokens)

    @property
    def rows(self) -> int:
        """Texts decoded together."""
        return 1

    @property
    def output_limit(self) -> int:
        """Most new tokens."""
        return self.max_new_tokens or get_task(self.task).max_target_length

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, input tokens, new tokens) of the largest text."""
        length = round_up(self.max_input_length, INPUT_LENGTHS)
        return ((self.rows, length, self.output_limit),)

    def encode(self, texts: Sequence[str], pair: Drafting) -> list[tuple[int, ...]]:
        """What the models are given for the texts.

        Raises:
          UsageError: if one is too long; it is named by its number.
        """
        prefix = get_task(self.task).prefix if self.prefix is None else self.prefix
        return [
            encode_text(prefix + text, f"text {number}", pair, self.max_input_length)
            for number, text in enumerate(texts, 1)
        ]


def read_own_texts(invocation) -> list[str]:
    """The texts that are no blank ones; what computes is started with them.

    Raises:
      UsageError: if there is none, or the output file cannot be written.
    """
    if invocation.flags.output_file is not None:
        check_writable(invocation.flags.output_file)
    texts = list(read_texts(invocation.arguments, invocation.flags.input_file))
    check_some(texts)
    limit_cpu_threads(invocation.flags.cpu_threads, invocation.settings.rows)
    start_backend()
    return [text for text in texts if text.strip()]
