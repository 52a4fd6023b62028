"""A pair and a task, ready to be measured batch by batch."""

import dataclasses
import functools
from typing import Any

import numpy as np

from spec_jax.core.rules import CoupledRule, is_lossless
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.datasets import check_ids
from spec_jax.data.vocabulary import PAD_ID
from spec_jax.decoding.loop import Generation
from spec_jax.experiments.alpha import acceptances
from spec_jax.experiments.costs import StepCosts
from spec_jax.experiments.example_results import ExampleResult, row_of
from spec_jax.experiments.figures import measure_costs, measured_along
from spec_jax.experiments.inputs import (
    InputBatch,
    padded_to,
    task_batches,
)
from spec_jax.experiments.outputs import Turns, Way, decode, find_differences
from spec_jax.pairs import Pair


class Bench:
    """A pair and a task, ready to be measured batch by batch.

    Args: see `evaluate`.
    """

    def __init__(self, pair, plain_pair, data, settings, baseline=None):
        if pair.vocabulary != plain_pair.vocabulary:
            raise ValueError(
                f"want one pair in two dtypes, got vocabularies {pair.vocabulary} and "
                f"{plain_pair.vocabulary}"
            )
        check_ids(data, pair.target.vocab_size)
        self.data, self.settings = data, settings
        self.pair, self.plain_pair = pair.using(settings.draft), plain_pair
        self.batches, self.cut = task_batches(data, settings)
        self.longest = max(batch.inputs.shape[1] for batch in self.batches)
        self.policy = sampling_policy(pair, settings)
        # What a row's output is, whoever decodes it: then outputs are compared.
        coupled = isinstance(settings.rule, CoupledRule)
        same = (self.policy.is_greedy() or coupled) and is_lossless(settings.rule)
        self.comparable = same
        choices = settings.gamma, self.policy, settings.rule, settings.lengths
        self.speculative = self.pair.speculative(*choices)
        self.plain = plain_pair.autoregressive(self.policy, settings.rule)
        self._exact = None
        if same and pair.dtype != plain_pair.dtype:
            # Two dtypes round differently: the algorithm is compared in one.
            exact = plain_pair.using(settings.draft)
            self._exact = (exact.speculative(*choices), exact.params)
        self._alone = None
        if settings.score_draft and settings.draft == "model":
            alone = pair.autoregressive(self.policy)
            draft = {"target": pair.params["draft"]}
            self._alone = (dataclasses.replace(alone, target=pair.draft), draft)
        ways: dict[str, Way] = {
            "plain": functools.partial(decode, self.plain, plain_pair.params),
            "speculative": functools.partial(
                decode, self.speculative, self.pair.params
            ),
        }
        if baseline is not None:
            ways["baseline"] = baseline
        self._turns = Turns(ways, settings.repeats)

    def doing(self, batch: InputBatch) -> str:
        """What measuring a batch begins with, in words."""
        what = "compiling for" if self._turns.is_new(batch) else "decoding"
        return f"{what} inputs of up to {batch.inputs.shape[1]} tokens"

    def measure(self, number: int, batch: InputBatch) -> list[ExampleResult]:
        """Decodes a batch in every way; gives a result for each example."""
        timings, compiling = self._turns.time(batch)
        outputs = {name: _tokens(timing.result) for name, timing in timings.items()}
        padded = padded_to(batch, self.longest)
        untimed = {"exact": (self._exact, batch), "draft": (self._alone, padded)}
        for name, (way, rows) in untimed.items():
            if way is not None:
                outputs[name] = _tokens(decode(*way, rows))
        differences = {}
        if self.comparable:
            exact = outputs.get("exact", outputs["speculative"])
            differences = find_differences(
                self.plain, self.plain_pair.params, batch, outputs["plain"], exact
            )
        speculative = self.speculative
        models = (speculative.target, speculative.draft, self.policy, self.pair.params)
        betas, counts = measured_along(acceptances, models, padded, outputs["plain"])
        stats = timings["speculative"].result.stats
        results = []
        for row, member in enumerate(batch.members):
            histogram, fallbacks = row_of(stats, row)
            results.append(
                ExampleResult(
                    index=member.index,
                    batch=number,
                    tokens={way: x[row].tolist() for way, x in outputs.items()},
                    betas=np.asarray(betas)[row, : counts[row]].tolist(),
                    histogram=histogram,
                    residual_fallbacks=fallbacks,
                    difference=differences.get(member.index),
                    seconds={way: list(t.seconds) for way, t in timings.items()},
                    compile_seconds=0.0 if row else compiling,
                )
            )
        return results

    def costs(self) -> StepCosts:
        """See `measure_costs`."""
        return measure_costs(
            self.plain,
            self.plain_pair.params,
            self.speculative,
            self.pair.params,
            self.batches,
        )


def _tokens(decoded: Any) -> list[np.ndarray]:
    """The new tokens of each row, from a generation or a baseline's array."""
    if isinstance(decoded, Generation):
        tokens, lengths = np.asarray(decoded.tokens), np.asarray(decoded.lengths)
    else:
        tokens = np.asarray(decoded)
        # One more than the place of the last token that is no padding.
        written = (tokens != PAD_ID) * np.arange(1, tokens.shape[1] + 1)
        lengths = written.max(axis=1, initial=0)
    return [row[:length] for row, length in zip(tokens, lengths)]


def sampling_policy(pair: Pair, settings: Any) -> SamplingPolicy:
    """The policy of target, draft and baseline."""
    return pair.policy(
        settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
    )
