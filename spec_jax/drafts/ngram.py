"""Proposals from tables: how often a token occurs, and what follows it."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from spec_jax.base import Decoder, Noise
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.drafts.lengths import FixedLength, LengthPolicy
from spec_jax.drafts.model import ModelDraft

Tables = dict[str, Array]
"""unigram [v]: probabilities, all positive. successors [v, k]: different tokens that
follow each token, and shares [v, k]: their probabilities, 0 for one that only fills the
row. rest [v]: every other token has its unigram probability times this."""


def bigram_logits(tables: Tables, tokens: Int[Array, "b t"]) -> Float[Array, "b t v"]:
    """log q(x | token): of a successor its share, of any other rest unigram(x).

    A row is written where it is needed: at v = 32,000 and k = 16 the tables take 2 MB,
    all rows would take 4 GB.

    Args:
      tables: see `Tables`.
      tokens: those before.

    Returns:
      float32 log-probabilities of the next token.
    """
    successors = tables["successors"][tokens].astype(jnp.int32)
    shares = tables["shares"][tokens].astype(jnp.float32)
    rest = jnp.log(tables["rest"][tokens].astype(jnp.float32))[..., None]
    unigram = jnp.log(tables["unigram"].astype(jnp.float32))
    of_successors = jnp.where(shares > 0, jnp.log(shares), rest + unigram[successors])

    def place(row, successors, logits):
        # They differ and lie in range. On CPU this takes 9 microseconds at v = 4096,
        # to compare all of v with k = 16 successors takes 300.
        return row.at[successors].set(
            logits, unique_indices=True, mode="promise_in_bounds"
        )

    return jax.vmap(jax.vmap(place))(rest + unigram, successors, of_successors)


@dataclasses.dataclass(frozen=True)
class UnigramDecoder:
    """The same distribution everywhere; a Decoder without a cache.

    Its parameters are `Tables`, of which it reads unigram alone.

    Attributes:
      vocab_size: v.
    """

    vocab_size: int
    max_length: ClassVar[None] = None

    def init_cache(self, params, inputs, batch, max_length):
        """There is none. See `Decoder.init_cache`."""
        del params, inputs, batch, max_length
        return ()

    def extend(self, params, cache, tokens, start):
        """See `Decoder.extend`."""
        del start
        _check_size(params, self.vocab_size)
        logits = jnp.log(params["unigram"].astype(jnp.float32))
        return jnp.broadcast_to(logits, (*tokens.shape, self.vocab_size)), cache


@dataclasses.dataclass(frozen=True)
class BigramDecoder(UnigramDecoder):
    """What follows the newest token; a Decoder without a cache.

    Its parameters are `Tables`. See `bigram_logits`.
    """

    def extend(self, params, cache, tokens, start):
        """See `Decoder.extend`."""
        del start
        _check_size(params, self.vocab_size)
        return bigram_logits(params, tokens), cache


@dataclasses.dataclass(frozen=True)
class UnigramDraft:
    """Draws every token from one distribution.

    Attributes:
      vocab_size: v, the width of the tables.
      policy: from log-probabilities to what is drawn from.
      gamma: the most tokens proposed in a step.
      lengths: how many of them a step proposes.
      noise: "uniform", or "gumbel" for `CoupledRule`.
    """

    vocab_size: int
    policy: SamplingPolicy
    gamma: int
    lengths: LengthPolicy = dataclasses.field(default_factory=FixedLength)
    noise: Noise = "uniform"
    has_cache: ClassVar[bool] = False

    def __post_init__(self):
        if self.vocab_size < 1:
            raise ValueError(f"want vocab_size >= 1, got {self.vocab_size}")
        self._model()  # raises for what it does not take

    @property
    def decoder(self) -> Decoder:
        """The tables as a model."""
        return UnigramDecoder(self.vocab_size)

    def _model(self) -> ModelDraft:
        """Does the drawing."""
        return ModelDraft(
            self.decoder, self.policy, self.gamma, self.lengths, self.noise
        )

    def init(self, params, inputs, prompt, prompt_length, max_length):
        """See `DraftSource.init`."""
        return self._model().init(params, inputs, prompt, prompt_length, max_length)

    def propose(self, params, draft_state, keys, tokens, length, sampling=None):
        """See `DraftSource.propose`."""
        return self._model().propose(
            params, draft_state, keys, tokens, length, sampling
        )


@dataclasses.dataclass(frozen=True)
class BigramDraft(UnigramDraft):
    """Draws each token from what follows the one before it.

    Its parameters are tables that `spec_jax.training.tables` counts; see
    `UnigramDraft` for the attributes.
    """

    @property
    def decoder(self) -> Decoder:
        """The tables as a model."""
        return BigramDecoder(self.vocab_size)


def of_others(tables: dict[str, np.ndarray]) -> Float[np.ndarray, "v"]:
    """What the unigram law gives to all that are no successors of a token.

    Args:
      tables: `Tables` as NumPy arrays, without rest.
    """
    unigram = tables["unigram"].astype(np.float64)
    of_successors = np.where(tables["shares"] > 0, unigram[tables["successors"]], 0.0)
    return unigram.sum() - of_successors.sum(1)


def _check_size(tables: Tables, vocab_size: int) -> None:
    """Raises ValueError where the tables are of another vocabulary."""
    size = tables["unigram"].shape[0]
    if size != vocab_size:
        raise ValueError(f"want tables of vocab_size = {vocab_size} tokens, got {size}")
