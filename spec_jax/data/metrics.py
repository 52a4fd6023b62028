"""BLEU, chrF and ROUGE of decoded text, with a signature that says how it was taken.

sacrebleu and rouge_score are imported when a score is asked for, so that a
program that only decodes needs neither.
"""

import functools
from collections.abc import Callable, Iterable, Sequence

ROUGE_KINDS = ("rouge1", "rouge2", "rougeLsum")
SIGNATURE = "signature"

Scores = dict[str, float | str]


def bleu(
    predictions: Sequence[str], references: Sequence[str], *, tokenize: str = "13a"
) -> Scores:
    """Corpus BLEU by sacrebleu.

    Args:
      predictions: decoded texts, detokenized.
      references: the reference of each prediction, in the same order.
      tokenize: sacrebleu's tokenizer: "13a" is that of the WMT scores; t5's own
        evaluation takes "intl" (`METRICS["bleu_intl"]`).

    Returns:
      `bleu` (0 to 100) and sacrebleu's `signature`.

    Raises:
      ValueError: no predictions, or not as many references.

    Reference: Post 2018, https://arxiv.org/abs/1804.08771.
    """
    _check_sizes("bleu", predictions, references)
    from sacrebleu.metrics import BLEU

    # force: text that looks tokenized is scored as it is, without a warning.
    metric = BLEU(tokenize=tokenize, force=True)
    score = metric.corpus_score(list(predictions), [list(references)])
    return {"bleu": float(score.score), SIGNATURE: metric.get_signature().format()}


def chrf(predictions: Sequence[str], references: Sequence[str]) -> Scores:
    """Corpus chrF by sacrebleu: F2 of character 1- to 6-grams, spaces left out.

    Args:
      predictions: decoded texts, detokenized.
      references: the reference of each prediction, in the same order.

    Returns:
      `chrf` (0 to 100) and sacrebleu's `signature`.

    Raises:
      ValueError: no predictions, or not as many references.

    Reference: Popovic 2015, https://aclanthology.org/W15-3049.
    """
    _check_sizes("chrf", predictions, references)
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    score = metric.corpus_score(list(predictions), [list(references)])
    return {"chrf": float(score.score), SIGNATURE: metric.get_signature().format()}


def rouge(predictions: Sequence[str], references: Sequence[str]) -> Scores:
    """Mean F-measures of ROUGE-1, ROUGE-2 and the sentence-split ROUGE-L, as T5's.

    rougeLsum compares sentence by sentence. As in T5's evaluation a sentence ends at
    a line break or at a full stop between spaces, which becomes one; there is no
    stemming. T5 reports the middle of a bootstrap of the mean, here it is the mean
    itself, so that equal outputs have equal scores.

    Args:
      predictions: decoded summaries; an empty one scores 0.
      references: the reference of each prediction, in the same order.

    Returns:
      `rouge1`, `rouge2`, `rougeLsum` (0 to 100) and a `signature`.

    Raises:
      ValueError: no predictions, or not as many references.

    Reference: Lin 2004, https://aclanthology.org/W04-1013; Raffel et al. 2020,
    https://arxiv.org/abs/1910.10683, section 2.3.
    """
    _check_sizes("rouge", predictions, references)
    from rouge_score import rouge_scorer

    scorer = rouge_scorer.RougeScorer(list(ROUGE_KINDS), use_stemmer=False)
    scores = [
        scorer.score(target=_split_sentences(target), prediction=_split_sentences(text))
        for text, target in zip(predictions, references, strict=True)
    ]
    means: Scores = {
        kind: 100.0 * sum(float(score[kind].fmeasure) for score in scores) / len(scores)
        for kind in ROUGE_KINDS
    }
    return means | {SIGNATURE: _rouge_signature()}


METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], Scores]] = {
    "bleu": bleu,
    # As T5 scores translations; sacrebleu's other defaults are T5's too.
    "bleu_intl": functools.partial(bleu, tokenize="intl"),
    "chrf": chrf,
    "rouge": rouge,
}
"""What a task's metrics are called: functions of predictions and references."""
# T5 calls its BLEU by the same name, so a task has one or the other.
_SAME_FIGURE = ("bleu", "bleu_intl")


def check_names(names: Iterable[str]) -> None:
    """Raises ValueError unless `names` are metrics that can be taken together."""
    if isinstance(names, str):
        raise ValueError(f"want names of metrics as ({names!r},), got {names!r}")
    names = tuple(names)
    unknown = [name for name in names if name not in METRICS]
    if unknown:
        raise ValueError(f"no metric {unknown[0]!r}; the metrics are {sorted(METRICS)}")
    if not names or len(set(names)) < len(names) or set(names) >= set(_SAME_FIGURE):
        raise ValueError(
            f"want one or more different metrics, and {' or '.join(_SAME_FIGURE)}, "
            f"not both; got {names}"
        )


def score(
    names: Sequence[str], predictions: Sequence[str], references: Sequence[str]
) -> Scores:
    """Figures of several metrics in one.

    Args:
      names: of `METRICS`.
      predictions: decoded texts, detokenized.
      references: the reference of each prediction, in the same order.

    Returns:
      Each metric's figures, and what it was: `signature` where there is one metric,
      `<name>_signature` where there are several.

    Raises:
      ValueError: as `check_names` and the metrics do.
    """
    check_names(names)
    scores: Scores = {}
    for name in names:
        figures = METRICS[name](predictions, references)
        signature = figures.pop(SIGNATURE)
        key = SIGNATURE if len(names) == 1 else f"{name}_{SIGNATURE}"
        scores |= figures | {key: signature}
    return scores


def _split_sentences(summary: str) -> str:
    return summary.replace(" . ", " .\n")


def _rouge_signature() -> str:
    from importlib.metadata import version

    return (
        f"fmeasure:mean|stem:no|sentences:newline|rouge_score:{version('rouge_score')}"
    )


def _check_sizes(
    name: str, predictions: Sequence[str], references: Sequence[str]
) -> None:
    if not predictions:
        raise ValueError(f"{name} needs at least one prediction, got none")
    if len(predictions) != len(references):
        raise ValueError(
            f"{name} needs one reference a prediction, got {len(predictions)} "
            f"predictions and {len(references)} references"
        )
    for argument, texts in (("predictions", predictions), ("references", references)):
        if isinstance(texts, str):
            raise ValueError(f"{name}: {argument} must be a list of texts, got a text")
