"""Speculative against plain decoding on a task: the figures of Table 2."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from spec_jax.core import theory
from spec_jax.core.rules import AnyRule, CoupledRule, is_lossless
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data import metrics
from spec_jax.data.batches import pad
from spec_jax.data.examples import TextTask
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import FixedLength, LengthPolicy
from spec_jax.experiments.alpha import (
    Alpha,
    acceptances,
    distributions,
    mean_acceptance,
)
from spec_jax.experiments.costs import StepCosts, step_costs
from spec_jax.experiments.inputs import (
    InputBatch,
    encode_examples,
    in_one_shape,
    make_batches,
)
from spec_jax.experiments.outputs import (
    Decoded,
    decode_all,
    decode_alternately,
    find_differences,
    share_identical,
)
from spec_jax.experiments.record import (
    Record,
    cpu_threads,
    describe_device,
    finite_or_none,
    today,
    versions,
)
from spec_jax.pairs import DRAFTS, Pair

METRICS = {"bleu": metrics.bleu, "rouge": metrics.rouge}
UNSTEADY = 1.1
"""Repeats that differ by more than this factor are warned about."""
BUSY = 1.25
"""More programs for each core than this are warned about."""

Progress = Callable[[int, int, str], None]
"""Called with the units done, the units in all, and what comes next."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateSettings:
    """What to measure, and how.

    Attributes:
      temperature: of target and draft; 0 is argmax.
      gamma: drafted tokens a step.
      batch: rows of a call.
      repeats: timed calls of each batch.
      seed: with an example's index it decides a row's draws.
      num_examples: the first rows of the task; None takes all.
      input_lengths: encoder tokens a compiled shape holds; longer inputs are cut
        to the longest.
      top_k: see `SamplingPolicy`, for target and draft.
      top_p: see `SamplingPolicy`.
      min_p: see `SamplingPolicy`.
      draft: where proposals come from, one of `pairs.choices.DRAFTS`.
      rule: how proposals are judged; None: the token rule.
      lengths: how many tokens a step drafts; None: gamma.
      score_draft: also decode with the small model alone, untimed, for its BLEU or
        ROUGE, where it is the draft.

    Raises:
      ValueError: if a number is not positive.
    """

    temperature: float = 0.0
    gamma: int = 4
    batch: int = 1
    repeats: int = 3
    seed: int = 0
    num_examples: int | None = 64
    input_lengths: tuple[int, ...] = (16, 32, 48, 64, 96, 128, 192, 256)
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    draft: str = "model"
    rule: AnyRule | None = None
    lengths: LengthPolicy | None = None
    score_draft: bool = True

    def __post_init__(self):
        object.__setattr__(self, "input_lengths", tuple(sorted(self.input_lengths)))
        for name in ("gamma", "batch", "repeats", "num_examples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"want {name} >= 1, got {value}")
        if self.draft not in DRAFTS:
            raise ValueError(f"want a draft of {', '.join(DRAFTS)}, got {self.draft!r}")
        if not self.input_lengths or self.input_lengths[0] < 2:
            raise ValueError(
                f"want input_lengths of at least 2 tokens, got {self.input_lengths}"
            )


def evaluate(
    pair: Pair,
    plain_pair: Pair | None,
    task: TextTask,
    rows: Sequence[dict],
    settings: EvaluateSettings,
    progress: Progress | None = None,
) -> Record:
    """Decodes a task both ways, alternately, and takes the figures of Table 2.

    docs/measurements.md defines every figure.

    Args:
      pair: in the dtype in which speculative decoding is fastest.
      plain_pair: the same pair in the dtype in which plain decoding is fastest;
        None: `pair`.
      task: says where texts stand in a row and how outputs are scored.
      rows: of the task; the first `settings.num_examples` are decoded.
      settings: what to measure.
      progress: told how far it is.

    Returns:
      The record of one run.

    Raises:
      ValueError: if there is no row, or the pairs have different vocabularies.
    """
    plain_pair = plain_pair or pair
    small = pair
    pair = pair.using(settings.draft)
    if pair.vocabulary != plain_pair.vocabulary:
        raise ValueError(
            f"want one pair in two dtypes, got vocabularies {pair.vocabulary} and "
            f"{plain_pair.vocabulary}"
        )
    rows = rows[: settings.num_examples]
    longest = settings.input_lengths[-1]
    examples, cut = encode_examples(rows, task, pair.vocabulary, longest)
    batches = make_batches(
        examples,
        batch=settings.batch,
        input_lengths=settings.input_lengths,
        max_new_tokens=task.max_target_length,
        seed=settings.seed,
    )
    policy = sampling_policy(pair, settings)
    coupled = isinstance(settings.rule, CoupledRule)
    # What a row's output is, whoever decodes it: then outputs are compared.
    comparable = (policy.is_greedy() or coupled) and is_lossless(settings.rule)
    plain = plain_pair.autoregressive(policy, settings.rule)
    choices = settings.gamma, policy, settings.rule, settings.lengths
    speculative = pair.speculative(*choices)
    steps = _Steps(progress, 2 * len(batches) + 2)

    decoded, compile_seconds = decode_alternately(
        {
            "plain": (plain, plain_pair.params),
            "speculative": (speculative, pair.params),
        },
        batches,
        settings.repeats,
        steps.begin,
    )
    alpha = measure_alpha(
        speculative, pair.params, batches, decoded["plain"], steps.begin
    )
    steps.begin("costs of a step")
    costs = measure_costs(plain, plain_pair.params, speculative, pair.params, batches)
    steps.begin("comparing outputs")
    identical, differences = None, ()
    if comparable:
        # Two dtypes round differently: the algorithm is compared in one.
        same_dtype = decoded["speculative"]
        if pair.dtype != plain_pair.dtype:
            exact = plain_pair.using(settings.draft)
            same_dtype = decode_all(exact.speculative(*choices), exact.params, batches)
        identical = share_identical(decoded["plain"], same_dtype)
        differences = find_differences(
            plain, plain_pair.params, batches, decoded["plain"], same_dtype
        )
    if settings.score_draft and settings.draft == "model":
        alone = dataclasses.replace(small.autoregressive(policy), target=small.draft)
        params = {"target": small.params["draft"]}
        decoded["draft"] = decode_all(alone, params, in_one_shape(batches))
    steps.end()

    fast, slow = decoded["speculative"], decoded["plain"]
    stats = fast.total
    speedup = fast.tokens_per_second / slow.tokens_per_second
    # Sums of probabilities may round to more than 1.
    formula = theory.speedup(
        min(alpha.mean, 1.0), settings.gamma, costs.c, costs.verify_cost
    )
    return Record(
        task=task.name,
        pair=pair.name,
        draft=settings.draft,
        rule=_kind(speculative.rule, "Rule"),
        lossless=speculative.rule.lossless,
        lenience=getattr(speculative.rule, "lenience", None),
        lengths="fixed" if settings.lengths is None else _lengths(settings.lengths),
        temperature=settings.temperature,
        gamma=settings.gamma,
        batch=settings.batch,
        policy={name: getattr(policy, name) for name in ("top_k", "top_p", "min_p")},
        dtype=pair.dtype.name,
        plain_dtype=plain_pair.dtype.name,
        device=describe_device(),
        cpu_threads=cpu_threads(),
        versions=versions(),
        seed=settings.seed,
        num_examples=len(examples),
        inputs_cut=cut,
        alpha=alpha.mean,
        alpha_stderr=alpha.stderr,
        alpha_tokens=alpha.num_tokens,
        c=costs.c,
        verify_cost=costs.verify_cost,
        tokens_per_run=stats.tokens_per_target_run,
        accepted_per_drafted=finite_or_none(stats.accepted_per_drafted),
        acceptance_by_position=tuple(map(finite_or_none, stats.acceptance_by_position)),
        tokens_plain=slow.num_tokens,
        tokens_speculative=fast.num_tokens,
        tokens_per_second_plain=slow.tokens_per_second,
        tokens_per_second_speculative=fast.tokens_per_second,
        speedup=speedup,
        speedup_formula=formula,
        speedup_of_formula=speedup / formula,
        identical=identical,
        identical_across_dtypes=share_identical(slow, fast) if comparable else None,
        differences=differences,
        metrics=_score(task, pair, examples, decoded),
        compile_seconds=compile_seconds,
        repeats=settings.repeats,
        date=today(),
        warnings=tuple(_warnings(alpha, costs, cut, longest, slow, fast, _load())),
    )


def sampling_policy(pair: Pair, settings: EvaluateSettings) -> SamplingPolicy:
    """The policy of target, draft and baseline."""
    return pair.policy(
        settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
    )


def measure_alpha(
    speculative: Speculative,
    params: Any,
    batches: Sequence[InputBatch],
    plain: Decoded,
    begin: Callable[[str], None] = lambda text: None,
) -> Alpha:
    """alpha on the outputs of plain decoding, by the speculative pair's models."""
    models = (speculative.target, speculative.draft, speculative.policy, params)
    betas, lengths = [], []
    for rows, counts in _along(acceptances, models, batches, plain, begin):
        betas += list(np.asarray(rows))
        lengths += counts
    return mean_acceptance(betas, lengths)


def laws_along(
    pair: Pair,
    policy: SamplingPolicy,
    draft_policy: SamplingPolicy,
    batches: Sequence[InputBatch],
    plain: Decoded,
) -> tuple[Float[np.ndarray, "m v"], Float[np.ndarray, "m v"]]:
    """p and q at every token of the outputs of plain decoding.

    Args:
      pair: of the models.
      policy: from the target's logits to p.
      draft_policy: from the draft's to q.
      batches: all batches.
      plain: the outputs.
    """
    models = (pair.target, pair.draft_source(1, draft_policy), policy, pair.params)
    laws: list[list[np.ndarray]] = [[], []]
    for (p, q), counts in _along(distributions, models, batches, plain):
        for kept, rows in zip(laws, (p, q)):
            kept += [np.asarray(x[:count]) for x, count in zip(rows, counts)]
    p, q = (np.concatenate(kept) for kept in laws)
    return p, q


def _along(measure, models, batches, plain: Decoded, begin=lambda text: None):
    """What `measure` gives along the outputs of each batch, and their lengths."""
    for batch in in_one_shape(batches):
        begin("alpha")
        outputs = [plain.tokens[member.index] for member in batch.members]
        counts = [len(tokens) for tokens in outputs]
        found = measure(
            *models,
            batch.inputs,
            batch.prompt,
            pad(outputs, batch.max_new_tokens, len(batch.limits)),
            np.array(counts + [0] * batch.padding),
            batch.keys,
        )
        members = len(outputs)
        yield jax.tree.map(lambda rows, n=members: rows[:n], found), counts


def measure_costs(
    plain: Autoregressive,
    plain_params: Any,
    speculative: Speculative,
    params: Any,
    batches: Sequence[InputBatch],
) -> StepCosts:
    """The costs of a step at the input length that most examples have."""
    examples: dict[int, int] = {}
    for batch in batches:
        length = batch.inputs.shape[1]
        examples[length] = examples.get(length, 0) + len(batch.members)
    commonest = max(examples, key=lambda length: examples[length])
    batch = next(b for b in batches if b.inputs.shape[1] == commonest)
    return step_costs(
        plain,
        plain_params,
        speculative,
        params,
        batch.inputs,
        batch.prompt,
        batch.keys,
        max_new_tokens=batch.max_new_tokens,
    )


def _score(task, pair, examples, decodings: dict[str, Decoded]) -> dict[str, dict]:
    references = [example.reference for example in examples]
    scores = {}
    for name, decoded in decodings.items():
        texts = [
            pair.vocabulary.decode(decoded.tokens[example.index].tolist())
            for example in examples
        ]
        scores[name] = METRICS[task.metric](texts, references)
    return scores


def _warnings(alpha, costs, cut, longest, plain, fast, load) -> Iterator[str]:
    if alpha.mean < costs.c:
        yield (
            f"alpha {alpha.mean:.3f} < c {costs.c:.3f}: the draft costs more than it "
            "saves at any gamma"
        )
    if cut:
        yield f"{cut} inputs were cut at {longest} tokens"
    for name, decoded in (("plain", plain), ("speculative", fast)):
        if decoded.unsteadiness > UNSTEADY:
            yield (
                f"repeats of {name} decoding differ by a factor of "
                f"{decoded.unsteadiness:.2f}: was the machine idle?"
            )
    if load > BUSY:
        yield (
            f"{load:.1f} programs ran for each core of the machine: times are too "
            "long, and unequally so"
        )


def _load() -> float:
    """Programs that wanted to run over the last minute, for each core."""
    if not hasattr(os, "getloadavg"):
        return 0.0
    return os.getloadavg()[0] / (os.cpu_count() or 1)


class _Steps:
    """Counts units of work for a progress callback."""

    def __init__(self, progress: Progress | None, total: int):
        self._progress, self._total, self._begun = progress, total, 0

    def begin(self, text: str) -> None:
        """The unit before is done, and another begins."""
        self._show(self._begun, text)
        self._begun += 1

    def end(self) -> None:
        """All is done."""
        self._show(self._total, "done")

    def _show(self, done: int, text: str) -> None:
        if self._progress is not None:
            self._progress(done, self._total, text)


def _kind(thing, suffix: str) -> str:
    """'model' for a ModelDraft, 'token' for a TokenRule."""
    return type(thing).__name__.removesuffix(suffix).lower()


def _lengths(lengths: LengthPolicy) -> str:
    """'fixed' for FixedLength(), and the others as they are written."""
    return "fixed" if lengths == FixedLength() else repr(lengths)
