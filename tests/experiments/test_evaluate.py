"""The evaluation of a tiny random pair: every figure's arithmetic."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.core import theory
from spec_jax.data.datasets import load_task
from spec_jax.data.vocabulary import SentencePieceVocabulary, train_vocabulary
from spec_jax.experiments import bench
from spec_jax.experiments import evaluate as evaluation
from spec_jax.experiments.alpha import Alpha
from spec_jax.experiments.costs import StepCosts
from spec_jax.experiments.evaluate import EvaluateSettings, evaluate
from spec_jax.experiments.inputs import cut_inputs, make_batches
from spec_jax.experiments.outputs import (
    Decoded,
    decode_all,
    decode_in_turns,
    find_differences,
    share_identical,
)
from spec_jax.experiments.record import Record
from spec_jax.models.t5 import T5Config, T5Decoder, Transformer
from spec_jax.pairs import Pair, resolve

NEW_TOKENS = 9
LENGTHS = (64, 128)
CONFIG = T5Config(
    vocab_size=4096,
    emb_dim=32,
    num_heads=2,
    head_dim=16,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=1,
)


@pytest.fixture(scope="module")
def pair():
    """A random target, and a draft that differs from it a little."""
    tokens = jnp.ones((1, 4), jnp.int32)
    network = Transformer(CONFIG)
    target, noise = (
        network.init(jax.random.key(seed), tokens, tokens)["params"] for seed in (0, 1)
    )
    vocabulary = SentencePieceVocabulary(
        resolve("spec_jax://pretrained/vocabulary.model")
    )
    draft = jax.tree.map(lambda x, y: x + 0.3 * (y - y.mean()), target, noise)
    params = {"target": target, "draft": draft}
    return Pair("tiny", T5Decoder(CONFIG), T5Decoder(CONFIG), params, vocabulary)


@pytest.fixture(scope="module")
def data(pair):
    """Four sentences with short outputs, since random weights never end one."""
    (data,) = load_task(
        "ende",
        pair.vocabulary,
        num_examples=4,
        feature_lengths={"inputs": LENGTHS[-1], "targets": NEW_TOKENS},
    )
    return data


def first(data, count):
    """The first examples, scored by how many outputs are not empty."""
    return dataclasses.replace(
        data, examples=data.examples[:count], score=lambda texts: {"given": len(texts)}
    )


def batches_of(data, batch, lengths=LENGTHS):
    examples, _ = cut_inputs(data.examples, lengths[-1])
    return make_batches(
        examples,
        batch=batch,
        input_lengths=lengths,
        max_new_tokens=data.max_target_length,
        seed=1,
    )


def settings(**fields):
    fields = {"gamma": 2, "repeats": 2} | fields
    return EvaluateSettings(input_lengths=LENGTHS, **fields)


@pytest.fixture
def quick(monkeypatch):
    """Costs without the loops that time them."""
    costs = StepCosts(plain=1.0, draft=0.1, verify=1.25)
    monkeypatch.setattr(bench, "measure_costs", lambda *args: costs)
    return costs


def test_figures_at_temperature_zero_follow_from_each_other(pair, data):
    """BEHAVIOURS 37."""
    shown = []
    record, _ = evaluate(pair, None, data, settings(), lambda *step: shown.append(step))
    assert Record.from_json(record.to_json()) == record
    assert (record.task, record.pair, record.draft) == ("ende", "tiny", "model")
    assert (record.rule, record.gamma, record.num_examples) == ("token", 2, 4)
    assert record.dtype == record.plain_dtype == "float32"
    assert record.identical == record.identical_across_dtypes
    assert len(record.differences) == round(4 * (1 - record.identical))
    assert all(difference.gap < 1e-4 for difference in record.differences)
    assert record.tokens_plain == record.alpha_tokens
    assert record.metrics["plain"].keys() == {
        "bleu",
        "bleu_signature",
        "chrf",
        "chrf_signature",
    }
    assert record.metrics.keys() == {"plain", "speculative", "draft"}
    assert 0 < record.alpha <= 1
    assert 1 <= record.tokens_per_run <= 3
    assert record.acceptance_by_position[0] >= record.accepted_per_drafted
    speeds = record.tokens_per_second_speculative, record.tokens_per_second_plain
    assert record.speedup == speeds[0] / speeds[1]
    assert record.speedup_formula == theory.speedup(
        record.alpha, 2, record.c, record.verify_cost
    )
    assert record.speedup_of_formula == record.speedup / record.speedup_formula
    assert min(record.c, record.verify_cost, record.compile_seconds) > 0
    done = [step[0] for step in shown]
    assert done == sorted(done)
    assert shown[-1] == (shown[0][1], shown[0][1], "done")
    assert len(set(done)) == shown[0][1] + 1


def test_figures_at_temperature_one(pair, data, quick):
    perfect = dataclasses.replace(
        pair, params=pair.params | {"draft": pair.params["target"]}
    )
    record, _ = evaluate(perfect, None, data, settings(temperature=1.0))
    assert (record.identical, record.identical_across_dtypes) == (None, None)
    assert record.differences == ()
    assert record.alpha == pytest.approx(1.0, abs=1e-4)
    assert record.speedup_formula == theory.speedup(min(record.alpha, 1), 2, 0.1, 1.25)
    assert not [w for w in record.warnings if "alpha" in w]
    assert json.loads(record.to_json())["identical"] is None


def test_two_dtypes_are_compared_in_the_plain_one(pair, data, quick):
    """Rounding changes words; here another target does, which is sure to."""
    other = dataclasses.replace(
        pair.astype("bfloat16"),
        params={"target": pair.params["draft"], "draft": pair.params["target"]},
    )
    record, _ = evaluate(other, pair, data, settings(score_draft=False))
    assert (record.dtype, record.plain_dtype) == ("bfloat16", "float32")
    assert record.identical == 1.0 or all(d.gap < 1e-4 for d in record.differences)
    assert record.identical_across_dtypes == 0.0
    assert "draft" not in record.metrics


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_outputs_do_not_depend_on_the_batch(pair, data, temperature):
    policy = pair.policy(temperature)
    algorithm = pair.speculative(2, policy)
    one, three = (
        decode_all(algorithm, pair.params, batches_of(data, batch)) for batch in (1, 3)
    )
    assert sorted(one.tokens) == sorted(three.tokens) == [0, 1, 2, 3]
    for index in one.tokens:
        np.testing.assert_array_equal(one.tokens[index], three.tokens[index])
    assert one.total.steps == three.total.steps
    assert one.num_tokens == three.num_tokens == three.total.emitted


def test_keys_by_place_would_be_seen(pair, data):
    """A planted fault: rows keyed by their place in the batch."""
    algorithm = pair.speculative(2, pair.policy(1.0))
    place = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(1), i))
    outputs = [
        decode_all(
            algorithm,
            pair.params,
            [
                dataclasses.replace(batch, keys=place(jnp.arange(size)))
                for batch in batches_of(data, size)
            ],
        )
        for size in (1, 3)
    ]
    assert share_identical(*outputs) < 1


def test_padding_is_in_no_figure(pair, data):
    """Four rows in batches of three, one shape: two rows of padding."""
    batches = batches_of(data, 3, lengths=(128,))
    assert [batch.padding for batch in batches] == [0, 2]
    algorithm = pair.autoregressive(pair.policy(0.0))
    decoded = decode_all(algorithm, pair.params, batches)
    assert decoded.total.emitted == decoded.num_tokens
    assert decoded.total.steps == decoded.num_tokens
    assert len(decoded.stats[-1].emitted_by_row) == 1


def test_ways_are_timed_in_turns_and_compiled_first(pair, data, monkeypatch):
    order = []
    from spec_jax.experiments import outputs

    real = outputs.decode

    def noted(algorithm, params, batch):
        order.append((type(algorithm).__name__[0], batch.inputs.shape[1]))
        return real(algorithm, params, batch)

    monkeypatch.setattr(outputs, "decode", noted)
    policy = pair.policy(0.0)
    ways = {
        "plain": (pair.autoregressive(policy), pair.params),
        "speculative": (pair.speculative(2, policy), pair.params),
    }
    batches = batches_of(first(data, 3), 2, lengths=(128,))
    decoded, compiling = decode_in_turns(ways, batches, 2)
    # Compiled once; then for each of two batches an untimed call and two repeats.
    turns = [("A", 128)] * 3 + [("S", 128)] * 3
    assert order == [("A", 128), ("S", 128), *turns, *turns]
    assert [len(times) for times in decoded["plain"].seconds] == [2, 2]
    assert compiling > 0


def decoded_with(tokens, seconds=()):
    return Decoded(dict(enumerate(map(np.array, tokens))), [], list(seconds))


def test_tokens_per_second_is_tokens_over_summed_medians():
    decoded = decoded_with([[5, 6], [7, 1, 8]], [(1.0, 9.0, 2.0), (3.0, 3.0, 3.0)])
    assert decoded.num_tokens == 5
    assert decoded.tokens_per_second == 5 / (2.0 + 3.0)
    assert decoded.unsteadiness == 12.0 / 4.0


def test_a_difference_shows_its_place_and_gap(pair, data):
    (batch,) = batches_of(data, 4, lengths=(128,))
    policy = pair.policy(0.0)
    algorithm = pair.autoregressive(policy)
    decoded = decode_all(algorithm, pair.params, [batch])
    plain = [decoded.tokens[member.index] for member in batch.members]
    other = [tokens.copy() for tokens in plain]
    same = algorithm, pair.params, batch
    assert find_differences(*same, plain, other) == {}
    other[2][4] += 1
    other[3] = other[3][:2]
    found = find_differences(*same, plain, other)
    assert list(found) == [2, 3]
    changed, cut = found[2], found[3]
    assert (changed.example, changed.position) == (2, 4)
    assert (changed.plain, changed.speculative) == (plain[2][4], other[2][4])
    assert (cut.example, cut.position, cut.speculative) == (3, 2, None)
    both = (decoded_with(tokens) for tokens in (plain, other))
    assert share_identical(*both) == 0.5

    # The gap by a full forward pass on the start token and what follows it.
    before = np.array([[0, *plain[2][:4]]])
    logits = Transformer(CONFIG).apply(
        {"params": pair.params["target"]}, batch.inputs[2:3], before
    )
    allowed = np.sort(np.asarray(logits)[0, -1, : pair.vocabulary.vocab_size])
    assert changed.gap == pytest.approx(allowed[-1] - allowed[-2], abs=1e-5)
    assert changed.gap > 0


def warnings(alpha=0.5, c=0.1, cut=0, seconds=((1.0, 1.05),), load=1.0):
    decoded = decoded_with([[5]], seconds)
    costs = StepCosts(plain=1.0, draft=c, verify=1.0)
    return list(
        evaluation._warnings(
            Alpha(alpha, None, 9), costs, cut, 256, decoded, decoded, load
        )
    )


def test_warnings_say_what_is_wrong():
    """BEHAVIOURS 37."""
    assert warnings() == []
    (slow,) = warnings(alpha=0.05)
    assert "alpha 0.050 < c 0.100" in slow
    assert warnings(cut=2) == ["2 inputs were cut at 256 tokens"]
    plain, speculative = warnings(seconds=((1.0, 1.2),))
    assert "plain decoding differ by a factor of 1.20" in plain
    assert "speculative" in speculative
    (busy,) = warnings(load=2.5)
    assert "2.5 programs ran for each core" in busy


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gamma": 0}, "gamma >= 1"),
        ({"batch": 0}, "batch >= 1"),
        ({"repeats": 0}, "repeats >= 1"),
    ],
)
def test_settings_are_checked(fields, says):
    with pytest.raises(ValueError, match=says):
        settings(**fields)


def test_different_tokenizers_are_both_named(pair, data, tmp_path):
    """BEHAVIOURS 28, second half."""
    path = tmp_path / "other.model"
    texts = [f"the quick brown fox number {i} jumps over it" for i in range(300)]
    other = dataclasses.replace(pair, vocabulary=train_vocabulary(texts, path, 320))
    with pytest.raises(ValueError) as error:
        evaluate(pair, other, data, settings())
    assert str(path) in str(error.value)
    assert pair.vocabulary.path in str(error.value)


def test_an_empty_task_is_an_error(pair, data):
    with pytest.raises(ValueError, match="at least one row"):
        evaluate(pair, None, first(data, 0), settings())
