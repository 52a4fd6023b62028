"""Scores of small texts that can be worked out by hand."""

import sys

import pytest
import sacrebleu

from spec_jax.data import metrics


def test_bleu_of_one_sentence_is_the_geometric_mean_of_its_precisions():
    score = metrics.bleu(["the cat sat on the mat"], ["the cat sat on a mat"])
    # n-gram precisions 5/6, 3/5, 2/4, 1/3; the lengths are equal.
    assert score["bleu"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 / 3) ** 0.25)


def test_bleu_pays_for_brevity():
    score = metrics.bleu(["a b c d"], ["a b c d e f g h"])
    assert score["bleu"] == pytest.approx(100 * 2.718281828459045 ** (1 - 8 / 4))


def test_bleu_is_of_the_corpus_and_not_a_mean_of_sentences():
    both = metrics.bleu(["a b c d e", "x"], ["a b c d e", "y z"])["bleu"]
    first = metrics.bleu(["a b c d e"], ["a b c d e"])["bleu"]
    assert first == pytest.approx(100)
    # precisions 5/6, 4/4, 3/3, 2/2 and a brevity penalty exp(1 - 7/6)
    assert both == pytest.approx(100 * 2.718281828459045 ** (-1 / 6) * (5 / 6) ** 0.25)


def test_bleu_tokenizer_is_in_the_signature():
    default = metrics.bleu(["a"], ["a"])["signature"]
    intl = metrics.bleu(["a"], ["a"], tokenize="intl")["signature"]
    assert "tok:13a" in default and "version:" in default
    assert "tok:intl" in intl


def test_rouge_counts_words_pairs_and_common_subsequences():
    score = metrics.rouge(["the cat sat"], ["the cat lay down"])
    assert score["rouge1"] == pytest.approx(100 * 2 * 2 / 7)
    assert score["rouge2"] == pytest.approx(100 * 2 * 1 / 5)
    assert score["rougeLsum"] == pytest.approx(100 * 2 * 2 / 7)


@pytest.mark.parametrize("stop", [" . ", "\n"])
def test_rouge_l_is_split_into_sentences(stop):
    """BEHAVIOURS 34."""
    swapped = metrics.rouge([f"d e f{stop}a b c"], [f"a b c{stop}d e f"])
    # One sequence would share only three of its six words.
    assert swapped["rougeLsum"] == pytest.approx(100)


def test_rouge_is_the_mean_over_examples():
    score = metrics.rouge(["one two", "three"], ["one two", "four"])
    assert score["rouge1"] == pytest.approx(50)


def test_an_empty_prediction_scores_zero():
    """BEHAVIOURS 34."""
    score = metrics.rouge([""], ["a summary of text"])
    assert [score[kind] for kind in metrics.ROUGE_KINDS] == [0, 0, 0]
    assert metrics.bleu([""], ["a summary of text"])["bleu"] == 0


def test_chrf_of_one_word_is_the_f2_of_its_character_grams():
    score = metrics.chrf(["abcd"], ["abxd"])
    # Precision and recall are equal: 3/4, 1/3, 0/2, 0/1, and there is no longer gram.
    assert score["chrf"] == pytest.approx(100 * (3 / 4 + 1 / 3) / 4)
    assert "nc:6" in score["signature"] and "version:" in score["signature"]


def test_bleu_as_t5_takes_it_is_sacrebleus_own_with_t5s_settings():
    predictions = ["Der Wert beträgt 3.5€, oder?", "Ein Satz mit «Zeichen»."]
    references = ["Der Wert ist 3.5€, oder?", "Ein Satz mit «anderen» Zeichen."]
    wanted = sacrebleu.corpus_bleu(
        predictions,
        [references],
        smooth_method="exp",
        smooth_value=0.0,
        lowercase=False,
        tokenize="intl",
        use_effective_order=False,
    )
    score = metrics.METRICS["bleu_intl"](predictions, references)
    assert score["bleu"] == wanted.score
    assert score["bleu"] != metrics.bleu(predictions, references)["bleu"]


def test_metrics_taken_together_are_the_same_figures_with_a_signature_each():
    texts = (["the cat sat on a mat", "a b c"], ["the cat sat on the mat", "a b d"])
    single = {name: metrics.METRICS[name](*texts) for name in ("bleu", "chrf", "rouge")}
    merged = metrics.score(("bleu", "chrf", "rouge"), *texts)
    for name, figures in single.items():
        assert merged.pop(f"{name}_signature") == figures.pop("signature")
        assert {key: merged.pop(key) for key in figures} == figures
    assert not merged
    assert metrics.score(("chrf",), *texts) == metrics.chrf(*texts)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("bleu", r"want names of metrics as \('bleu',\), got 'bleu'"),
        ((), "one or more"),
        (("bleu", "bleu"), "different"),
        (("bleu", "bleu_intl"), "bleu or bleu_intl, not both"),
        (("ter",), r"no metric 'ter'; the metrics are \['bleu', 'bleu_intl', 'chrf'"),
    ],
    ids=str,
)
def test_metrics_that_cannot_be_taken_raise(names, message):
    with pytest.raises(ValueError, match=message):
        metrics.score(names, ["a"], ["a"])


@pytest.mark.parametrize("metric", metrics.METRICS.values(), ids=metrics.METRICS)
def test_scores_are_plain_floats(metric):
    score = metric(["a b"], ["a b"])
    assert isinstance(score.pop("signature"), str)
    assert score and all(type(value) is float for value in score.values())


@pytest.mark.parametrize("metric", metrics.METRICS.values(), ids=metrics.METRICS)
def test_wrong_sizes_raise(metric):
    with pytest.raises(ValueError, match="at least one prediction, got none"):
        metric([], [])
    with pytest.raises(ValueError, match="2 predictions and 1 references"):
        metric(["a", "b"], ["a"])
    with pytest.raises(ValueError, match="must be a list of texts"):
        metric("a", "b")


def test_metrics_import_their_libraries_only_when_asked(monkeypatch):
    for name in list(sys.modules):
        if name.split(".")[0] in {"sacrebleu", "rouge_score"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "spec_jax.data.metrics")
    __import__("spec_jax.data.metrics")
    assert not {"sacrebleu", "rouge_score"} & set(sys.modules)
