"""seqio's tasks: their tokens and references, and scores equal to seqio's Evaluator."""

import ast
import gzip
import importlib.util
import json
import math
import pathlib
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import sacrebleu

from spec_jax.cli.configuration import SearchPath
from spec_jax.data import datasets, metrics, tasks
from spec_jax.data.examples import TASKS, encode_input
from spec_jax.data.tasks.libraries import seqio, tf, tfds
from spec_jax.data.vocabulary import (
    EOS_ID,
    UNK_ID,
    ByteVocabulary,
    SentencePieceVocabulary,
    train_vocabulary,
)
from spec_jax.pairs import resolve

MODEL = resolve("spec_jax://pretrained/vocabulary.model")
TFDS_NAMES = {
    "wmt14_ende": ("wmt14_translate/de-en:1.0.0", ("train", "validation", "test")),
    "cnn_dailymail": ("cnn_dailymail:3.4.0", ("train", "validation", "test")),
    "xsum": ("xsum:1.1.0", ("train", "validation", "test")),
    "lm1b": ("lm1b:1.1.0", ("train", "test")),
}
MODULE = """
import seqio
import tensorflow as tf

FEATURES = {{
    name: seqio.Feature(seqio.SentencePieceVocabulary({model!r}), add_eos=True)
    for name in ("inputs", "targets")
}}
ROWS = {{
    "inputs": ["one plus one", "two plus two", "three plus one"],
    "targets": ["Two", "Four", "Four"],
    "weight": [1, 2, 4],
}}


def lower(text, example=None, is_target=False):
    weight = int(example["weight"])
    return (text.lower(), weight) if is_target else text.lower()


def weighted(targets, predictions):
    hits = [w * (t == p) for (t, w), p in zip(targets, predictions)]
    kind = seqio.metrics.Text("w")
    return {{"weighted": seqio.metrics.Scalar(sum(hits)), "kind": kind}}


def picture(targets, predictions):
    import numpy as np
    return {{"map": seqio.metrics.Image(np.zeros((1, 2, 2, 3)))}}


def likelihood(targets, scores):
    return {{"likelihood": sum(scores)}}


def length(targets, predictions):
    return {{"length": float(sum(map(len, predictions)))}}


def longer(targets, predictions):
    return {{"longer": float(max(map(len, predictions)))}}


def rows(split, shuffle_files):
    return tf.data.Dataset.from_tensor_slices(ROWS)


seqio.TaskRegistry.add(
    "sums",
    source=seqio.FunctionDataSource(rows, splits=["test", "tiny"]),
    preprocessors=[seqio.preprocessors.tokenize, seqio.preprocessors.append_eos],
    output_features=FEATURES,
    postprocess_fn=lower,
    metric_fns=[weighted, picture, likelihood],
    metric_objs=[
        seqio.metrics.PassthroughLegacyMetric.from_metric_fn(length, lower),
        seqio.metrics.LegacyMetric.empty(longer, lower),
    ],
)


def cut(dataset, sequence_length):
    return seqio.preprocessors.append_eos_after_trim(
        dataset, output_features=FEATURES, sequence_length=sequence_length
    )


seqio.TaskRegistry.add(
    "cut_sums",
    source=seqio.FunctionDataSource(rows, splits=["test"]),
    preprocessors=[seqio.preprocessors.tokenize, cut],
    output_features=FEATURES,
    metric_fns=[],
)
import spec_jax.data.tasks
seqio.MixtureRegistry.add("mixed", ["sums", "ende"], default_rate=1.0)
"""


@pytest.fixture(scope="module")
def vocabulary():
    return SentencePieceVocabulary(MODEL)


@pytest.fixture(autouse=True)
def registry():
    """Names that a test registers are gone after it."""
    before = {*seqio.TaskRegistry.names()}, {*seqio.MixtureRegistry.names()}
    yield
    for kind, names in zip(
        (seqio.TaskRegistry, seqio.MixtureRegistry), before, strict=True
    ):
        for name in {*kind.names()} - names:
            kind.remove(name)
    tasks.register_tasks()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A user's module in the current folder."""
    (tmp_path / "my_sums.py").write_text(MODULE.format(model=MODEL))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", ".")])
    yield "my_sums"
    sys.modules.pop("my_sums", None)


@pytest.fixture(scope="module")
def tfds_folder(tmp_path_factory):
    """What TFDS knows of its datasets without their data."""
    folder = str(tmp_path_factory.mktemp("tfds"))
    for name, splits in TFDS_NAMES.values():
        builder = tfds.builder(name, data_dir=folder)
        info = [
            tfds.core.SplitInfo(name=split, shard_lengths=[9], num_bytes=9)
            for split in splits
        ]
        builder.info.set_splits(tfds.core.SplitDict(info))
        pathlib.Path(builder.data_dir).mkdir(parents=True)
        builder.info.write_to_directory(builder.data_dir)
    return folder


@pytest.fixture
def mocked(tfds_folder):
    """TFDS makes up the texts of its datasets."""
    with tfds.testing.mock_data(num_examples=3, data_dir=tfds_folder):
        yield tfds_folder


def evaluator_scores(name, predictions, num_examples=None):
    """What seqio's Evaluator makes of predicted tokens."""
    evaluator = seqio.Evaluator(
        name,
        seqio.EncDecFeatureConverter(pack=False),
        eval_split="test",
        num_examples=num_examples,
        seed=None,
        async_compute_metrics=False,
    )
    tokens = np.zeros((len(predictions), max(map(len, predictions))), np.int32)
    for at, ids in enumerate(predictions):
        tokens[at, : len(ids)] = ids
    scored, _ = evaluator.evaluate(
        compute_metrics=True,
        # In any order: seqio sorts by index.
        predict_fn=lambda dataset: list(enumerate(tokens))[::-1],
        score_fn=lambda dataset: [(i, 0.0) for i in range(len(tokens))],
    )
    return scored.result()[name]


def plain(figures):
    return {
        key: getattr(value, "textdata", getattr(value, "value", value))
        for key, value in figures.items()
    }


def half_right(vocabulary, data):
    """Predicted tokens: every other reference, the rest without its second half."""
    rows = [vocabulary.encode(example.target) for example in data.examples]
    return [
        [*(row if at % 2 else row[: len(row) // 2]), EOS_ID]
        for at, row in enumerate(rows)
    ]


@pytest.mark.parametrize("name", TFDS_NAMES)
def test_a_tfds_task_has_its_prefix_tokens_and_metrics(name, vocabulary, mocked):
    (data,) = tasks.load_seqio_task(
        name, vocabulary, split="test", num_examples=2, data_dir=mocked
    )
    builder = tfds.builder(TFDS_NAMES[name][0], data_dir=mocked)
    rows = list(tfds.as_numpy(builder.as_dataset(split="test")))[:2]
    rows = [
        {
            key: value.decode()
            for key, value in row.items()
            if key != "id" and isinstance(value, bytes)
        }
        for row in rows
    ]
    for example, row in zip(data.examples, rows, strict=True):
        if name == "wmt14_ende":
            inputs, target = f"translate English to German: {row['en']}", row["de"]
        elif name == "cnn_dailymail":
            inputs, target = f"summarize: {row['article']}", row["highlights"]
        elif name == "xsum":
            inputs, target = f"summarize: {row['document']}", row["summary"]
        else:
            words = row["text"].split()
            half = -(-len(words) // 2)
            inputs, target = " ".join(words[:half]), " ".join(words[half:])
        assert example.fields == {
            "inputs_pretokenized": inputs,
            "targets_pretokenized": target,
        }
        assert example.inputs == (*vocabulary.encode(inputs), EOS_ID)
        assert example.target == target
    assert [example.index for example in data.examples] == [0, 1]
    figures = data.score([example.target for example in data.examples])
    assert ("bleu" in figures) == (name == "wmt14_ende")
    if name == "wmt14_ende":
        assert "tok:intl" in figures["bleu_intl_signature"]
        assert figures["chrf"] == pytest.approx(100)
    else:
        assert "rouge_score:" in figures["signature"]
        assert figures["rougeLsum"] == pytest.approx(100)


def test_lm1b_is_continued_from_its_larger_half():
    texts = ["a b c d e", "Alone", "two  words", ""]
    dataset = tf.data.Dataset.from_tensor_slices({"text": texts})
    split = seqio.TaskRegistry.get("lm1b").preprocessors[0](dataset)
    assert list(tfds.as_numpy(split)) == [
        {"inputs": b"a b c", "targets": b"d e"},
        {"inputs": b"two", "targets": b"words"},
    ]


@pytest.mark.parametrize("name", TASKS)
def test_a_shipped_corpus_is_the_same_through_seqio(name, vocabulary):
    (ours,) = tasks.load_seqio_task(name, vocabulary, split="test")
    (builtin,) = datasets.load_task(name, vocabulary)
    assert ours.examples == builtin.examples
    task = TASKS[name]
    prompt = ours.examples[1].fields["inputs_pretokenized"].removeprefix(task.prefix)
    assert ours.examples[1].inputs == tuple(encode_input(prompt, task, vocabulary))
    longest = max(len(example.inputs) for example in ours.examples)
    assert 0 <= ours.max_input_length - longest < 16
    assert ours.max_input_length % 16 == 0
    targets = [len(vocabulary.encode(e.target)) + 1 for e in ours.examples]
    assert ours.max_target_length == max(targets)
    (short,) = tasks.load_seqio_task(
        name, vocabulary, split="test", feature_lengths={"inputs": 5, "targets": 4}
    )
    assert short.examples == ours.examples  # uncut
    assert (short.max_input_length, short.max_target_length) == (5, 4)
    texts = [example.target.upper() for example in ours.examples]
    assert ours.score(texts) == builtin.score(texts)
    perfect = ours.score([example.target for example in ours.examples])
    assert perfect[task.metric if name == "ende" else "rouge2"] == pytest.approx(100)


@pytest.mark.parametrize("name", TASKS)
def test_scores_are_those_of_seqios_evaluator(name, vocabulary):
    tasks.register_tasks(vocabulary)
    (data,) = tasks.load_seqio_task(name, vocabulary, split="test", num_examples=12)
    predictions = half_right(vocabulary, data)
    wanted = plain(evaluator_scores(name, predictions, 12))
    figures = data.score([vocabulary.decode(ids) for ids in predictions])
    assert figures == wanted
    assert 0 < min(value for value in figures.values() if isinstance(value, float)) < 99


def test_wmt_is_scored_as_t5_does(vocabulary, mocked):
    (data,) = tasks.load_seqio_task(
        "wmt14_ende", vocabulary, split="test", data_dir=mocked
    )
    references = [example.target for example in data.examples]
    texts = [f"{text} a«b" for text in references]
    wanted = sacrebleu.corpus_bleu(texts, [references], tokenize="intl")
    assert data.score(texts)["bleu"] == wanted.score


def test_corpora_in_a_folder_are_read_instead_of_the_samples(
    vocabulary, tmp_path, monkeypatch
):
    for split in ("validation", "train"):
        rows = [{"en": f"In {split}.", "de": f"Im {split}."}] * 2
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"ende.{split}.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    load = lambda **more: tasks.load_seqio_task("ende", vocabulary, **more)  # noqa: E731
    (data,) = load(split="validation", data_dir=str(tmp_path))
    assert [example.target for example in data.examples] == ["Im validation."] * 2
    monkeypatch.setenv("SPEC_JAX_DATA_DIR", str(tmp_path))
    (data,) = load(split="train", num_examples=1)
    assert [example.target for example in data.examples] == ["Im train."]
    with pytest.raises(ValueError, match="ende has no split 'test', it has train, val"):
        load(split="test")
    with pytest.raises(ValueError, match=r"no .*summ\.\*\.jsonl\.gz.*spec-jax data"):
        tasks.load_seqio_task("summarize", vocabulary, split="test")


@pytest.mark.parametrize("ending", [".tsv", ".jsonl"])
def test_a_users_file_is_a_task_as_it_is_without_seqio(vocabulary, tmp_path, ending):
    rows = [("Copy the file.", 'Die "Datei" kopieren.'), ("Save.", "Speichern.")]
    path = tmp_path / f"mine{ending}"
    if ending == ".tsv":
        path.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    else:
        text = (json.dumps({"inputs": a, "targets": b}) + "\n" for a, b in rows)
        path.write_text("".join(text))
    chosen = {"prefix": "say: ", "metrics": ("bleu", "chrf")}
    for _ in range(2):  # once more replaces it
        tasks.register_file("mine", path, vocabulary=MODEL, **chosen)
    (data,) = tasks.load_seqio_task("mine", vocabulary, split="test")
    file = datasets.TaskFile(path=str(path), **chosen)
    (builtin,) = datasets.load_task("mine", vocabulary, file=file)
    assert data.examples == builtin.examples
    predictions = half_right(vocabulary, data)
    figures = data.score([vocabulary.decode(ids) for ids in predictions])
    assert {*figures} == {"bleu", "chrf", "bleu_signature", "chrf_signature"}
    assert figures == plain(evaluator_scores("mine", predictions))


def test_a_users_mixture_gives_its_tasks_as_seqios_evaluator_takes_them(
    vocabulary, module
):
    load = lambda split, **more: tasks.load_seqio_task(  # noqa: E731
        "mixed", vocabulary, split=split, module=module, **more
    )
    ende, sums = load("test", num_examples=3)
    assert (ende.name, sums.name) == ("ende", "sums")
    # One shape for all, as in seqio's Evaluator.
    assert sums.max_target_length == ende.max_target_length > 10
    assert sums.examples[2].target == ("four", 4)
    assert sums.examples[0].fields["targets_pretokenized"] == "Two"
    assert sums.examples[0].inputs == (*vocabulary.encode("one plus one"), EOS_ID)
    texts = ["TWO", "two", "four"]
    figures = sums.score(texts)
    assert figures == {
        "weighted": 5.0,
        "kind": "w",
        "length": 10.0,
        "longer": 4.0,
        "left_out": "likelihood, map",
    }
    assert type(figures["weighted"]) is float
    tokens = [[*vocabulary.encode(text), EOS_ID] for text in texts]
    wanted = evaluator_scores("sums", tokens)
    del wanted["map"], wanted["likelihood"]
    assert figures == plain(wanted) | {"left_out": "likelihood, map"}
    # ende has no such split, and is passed over.
    assert [data.name for data in load("tiny")] == ["sums"]
    (cut,) = load("tiny", feature_lengths={"inputs": 3, "targets": 5})
    assert (cut.max_input_length, cut.max_target_length) == (3, 5)
    assert cut.examples == sums.examples  # uncut


def test_a_task_that_cuts_its_examples_is_told_the_lengths(vocabulary, module):
    load = lambda lengths: tasks.load_seqio_task(  # noqa: E731
        "cut_sums", vocabulary, split="test", module=module, feature_lengths=lengths
    )
    with pytest.raises(ValueError, match="give TASK_FEATURE_LENGTHS"):
        load(None)
    (data,) = load({"inputs": 3, "targets": 9})
    assert {len(example.inputs) for example in data.examples} == {3}


def test_another_vocabulary_is_refused(tmp_path, vocabulary, module):
    train_vocabulary(["one two three four plus minus"] * 9, tmp_path / "v.model", 275)
    other = SentencePieceVocabulary(tmp_path / "v.model")
    load = lambda models: tasks.load_seqio_task(  # noqa: E731
        "sums", models, split="test", module=module
    )
    size = vocabulary.vocab_size
    with pytest.raises(
        ValueError, match=rf"sums .* its inputs have {size} ids, theirs"
    ):
        load(other)
    with pytest.raises(ValueError, match=r"its inputs make \[.* of 'translate Engl"):
        load(OtherIds())
    # Sentinels are in no text.
    assert load(SentencePieceVocabulary(MODEL, extra_ids=7))
    # Our own tasks take the models'.
    (data,) = tasks.load_seqio_task("ende", other, split="test", num_examples=1)
    text = data.examples[0].fields["inputs_pretokenized"]
    assert data.examples[0].inputs == (*other.encode(text), EOS_ID)


def test_a_vocabulary_out_of_reach_is_one_line(vocabulary):
    tasks.register_file("far", "far.tsv", vocabulary=str(MODEL) + "://x")
    with pytest.raises(ValueError, match=r"cannot read the vocabulary of the task far"):
        tasks.load_seqio_task("far", vocabulary, split="test")


class OtherIds:
    """As many ids as the shipped vocabulary, but others."""

    path = "nowhere"
    fingerprint = "other"
    vocab_size = SentencePieceVocabulary(MODEL).vocab_size

    def encode(self, text):
        return [ord(one) % 1000 + 10 for one in text]

    def decode(self, ids):
        return "".join(chr(one - 10) for one in ids if one > 9)


@pytest.mark.parametrize(
    "ours",
    [
        SentencePieceVocabulary(MODEL),
        SentencePieceVocabulary(MODEL, extra_ids=100),
        SentencePieceVocabulary("nowhere", model=pathlib.Path(MODEL).read_bytes()),
        ByteVocabulary(),
        ByteVocabulary(125),
        OtherIds(),
    ],
    ids=["file", "sentinels", "bytes of a file", "ByT5", "ByT5 with sentinels", "own"],
)
def test_a_vocabulary_of_ours_is_seqios_with_the_same_ids(ours):
    theirs = tasks.as_seqio(ours)
    assert theirs == tasks.as_seqio(ours) != tasks.as_seqio(T5Like)
    assert theirs.vocab_size == ours.vocab_size
    assert (theirs.eos_id, theirs.unk_id, theirs.pad_id) == (EOS_ID, UNK_ID, 0)
    for text in ("Größe «3.14» €", "a  b", ""):
        ids = ours.encode(text)
        assert theirs.encode(text) == ids
        assert theirs.encode_tf(text).numpy().tolist() == ids
        assert theirs.decode([*ids, EOS_ID, 40, 0]).strip("\x01 ") == ours.decode(ids)
        if ids:
            rows = theirs.decode_tf(np.array([ids, ids], np.int32)).numpy()
            assert [row.decode() for row in rows] == [ours.decode(ids)] * 2


T5Like = seqio.ByteVocabulary(3)


def test_vocabularies_equal_what_t5xs_gin_files_make():
    made = seqio.SentencePieceVocabulary(MODEL)
    assert (
        tasks.as_seqio(MODEL) == made == tasks.as_seqio(SentencePieceVocabulary(MODEL))
    )
    assert tasks.as_seqio("bytes") == seqio.ByteVocabulary()
    with pytest.raises(ValueError, match=r"no SentencePiece model at nowhere\.model"):
        tasks.as_seqio("nowhere.model")


def test_registering_again_replaces_ours_and_leaves_what_is_not(vocabulary):
    names = tasks.register_tasks(MODEL)
    assert names == (*TFDS_NAMES, *TASKS)
    assert tasks.register_tasks(vocabulary) == names
    feature = seqio.TaskRegistry.get("lm1b").output_features["targets"]
    assert feature.vocabulary == seqio.SentencePieceVocabulary(MODEL)
    theirs = seqio.TaskRegistry.get("xsum").replace()
    seqio.TaskRegistry.remove("xsum")
    seqio.TaskRegistry.add_provider("xsum", theirs)
    assert "xsum" not in tasks.register_tasks()
    assert seqio.TaskRegistry.get("xsum") is theirs
    seqio.TaskRegistry.remove("xsum")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "wmt14_end"}, r"'wmt14_end' is registered.*nearest.*'wmt14_ende'"),
        ({"name": "zzz"}, r"'zzz' is registered.*there are \[.*'cnn_dailymail', 'e"),
        ({"name": "ende", "module": "no_such"}, "'no_such': ModuleNotFoundError"),
        ({"name": "ende", "split": "dev"}, "no split 'dev', it has test"),
        ({"name": "ende", "split": "test[:3]"}, r"no split 'test\[:3\]', it has test"),
        (
            {"name": "lm1b", "data_dir": "nowhere"},
            "reads the TFDS dataset lm1b:1.1.0, which is not in .*nowhere: .*`tfds "
            "build lm1b:1.1.0`.*TFDS_DATA_DIR",
        ),
        ({"name": "xsum", "data_dir": "nowhere"}, "sources downloaded by hand"),
    ],
    ids=str,
)
def test_what_is_not_there_is_one_line(vocabulary, arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        tasks.load_seqio_task(vocabulary=vocabulary, **{"split": "test"} | arguments)
    assert "\n" not in str(raised.value)


def test_a_missing_split_of_tfds_names_those_there_are(vocabulary, mocked):
    load = lambda split: tasks.load_seqio_task(  # noqa: E731
        "lm1b", vocabulary, split=split, data_dir=mocked
    )
    said = "lm1b has no split 'validation', it has t.*: give --gin.SPLIT=t"
    with pytest.raises(ValueError, match=said):
        load("validation")
    assert load("test[:5]")


def test_a_folder_of_tfds_is_for_one_call_alone(vocabulary, mocked):
    tasks.register_tasks(vocabulary)
    theirs = seqio.TaskRegistry.get("lm1b").replace(name="theirs")
    seqio.TaskRegistry.add_provider("theirs", theirs)
    (data,) = tasks.load_seqio_task("theirs", vocabulary, split="test", data_dir=mocked)
    assert len(data.examples) == 3
    assert theirs.source.tfds_dataset.data_dir is None


def test_sources_of_tfds_are_never_downloaded(vocabulary, mocked, monkeypatch):
    """Its splits are known, as with a network, but its data are nowhere."""
    monkeypatch.setattr(tfds, "is_dataset_on_gcs", lambda name: False)
    monkeypatch.setattr(tfds.core.DatasetBuilder, "is_prepared", lambda self: False)
    with pytest.raises(ValueError, match=r"dataset lm1b:1\.1\.0, which is not in"):
        tasks.load_seqio_task("lm1b", vocabulary, split="test", data_dir=mocked)


def test_a_failing_metric_is_one_line(vocabulary, tmp_path):
    (tmp_path / "mine.tsv").write_text("a\tb\n")
    task = tasks.register_file("mine", tmp_path / "mine.tsv", vocabulary=vocabulary)

    def broken(targets, predictions):
        raise KeyError("a\nb")

    seqio.TaskRegistry.remove("mine")
    seqio.TaskRegistry.add_provider("mine", task.replace(metric_fns=[broken]))
    (data,) = tasks.load_seqio_task("mine", vocabulary, split="test")
    with pytest.raises(ValueError, match="cannot score the task mine: KeyError: ") as e:
        data.score(["a"])
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match="as the task mine has examples, 1, got 2"):
        data.score(["a", "b"])


def odd_task(vocabulary, rows=None, *, preprocessors=None, **arguments):
    """The data of a task that is unlike what most are."""
    rows = rows or {"inputs": ["a", "b"], "targets": ["a", "b"]}
    tokenize = [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]
    feature = seqio.Feature(tasks.as_seqio(vocabulary), add_eos=True)
    seqio.TaskRegistry.add(
        "odd",
        source=seqio.FunctionDataSource(
            lambda split, shuffle_files: tf.data.Dataset.from_tensor_slices(rows),
            splits=["test"],
        ),
        preprocessors=tokenize if preprocessors is None else preprocessors,
        output_features={"inputs": feature, "targets": feature},
        **{"metric_fns": []} | arguments,
    )
    (data,) = tasks.load_seqio_task("odd", vocabulary, split="test")
    return data


def test_metrics_of_another_form_do_not_lose_the_run(vocabulary):
    def bare(targets, predictions):
        return 0.5

    def unfit(targets, predictions):
        return {"nan": math.nan, "inf": np.float32("inf"), "good": 1, "ragged": [[], 1]}

    scores = odd_task(vocabulary, metric_fns=[bare, unfit]).score(["a", "b"])
    assert scores == {
        "good": 1.0,
        "left_out": "bare (gives a float, no dict), nan (nan), inf (inf), ragged",
    }


def test_targets_of_any_form_are_kept_as_json_has_them(vocabulary):
    def process(text, example=None, is_target=False):
        return {("a", 1): np.float32(0.5)}

    seen = []

    def metric(targets, predictions):
        seen.extend(targets)
        return {}

    data = odd_task(vocabulary, postprocess_fn=process, metric_fns=[metric])
    assert data.examples[0].target == {"('a', 1)": 0.5}
    json.dumps(data.examples[0].target)
    data.score(["a", "b"])
    assert seen[0] == {("a", 1): 0.5}  # the metric has them as they are


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (np.ones((2, 3, 2), np.int32), "want a list of tokens as the {key} .*rank 2"),
        (np.full((2, 3), -3, np.int32), "want tokens from 0 as the {key} of .*got -3"),
        (np.full((2, 3), 0.5, np.float32), "want tokens as the {key} .*got float32"),
    ],
    ids=["rank", "negative", "float"],
)
@pytest.mark.parametrize("key", ["inputs", "targets"])
def test_features_that_are_no_tokens_are_named(vocabulary, key, tokens, said):
    rows = {name: np.ones((2, 3), np.int32) for name in ("inputs", "targets")}
    # A feature's own rank and dtype are checked by seqio, in its own words.
    loose = tasks.loading._check_tokens
    with pytest.raises(ValueError, match=said.format(key=key)) as raised:
        loose(f"the {key} of example 0", rows | {key: tokens[0]}, key)
    assert "\n" not in str(raised.value)
    with pytest.raises(ValueError, match="the task odd") as raised:
        odd_task(vocabulary, rows | {key: tokens}, preprocessors=[])
    assert "\n" not in str(raised.value)


def test_without_seqio_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "seqio", None)
    path = pathlib.Path(tasks.__file__).with_name("libraries.py")
    spec = importlib.util.spec_from_file_location("libraries_again", path)
    with pytest.raises(ValueError, match=r"pip install 'spec_jax\[eval\]'"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_importing_is_silent_reads_nothing_and_registers_t5s_vocabulary():
    code = textwrap.dedent(
        """
        import spec_jax.data.tasks, seqio
        task = seqio.get_mixture_or_task("wmt14_ende")
        print(task.output_features["targets"].vocabulary.sentencepiece_model_file)
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert run.stdout.split() == [
        "gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
    ]
    assert run.stderr == "" and run.returncode == 0


PAGE = pathlib.Path(__file__).parents[2] / "docs" / "tasks.md"


def test_the_page_names_what_there_is():
    rows = re.findall(r"^\| `([^`A-Z]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted([*metrics.METRICS, *TFDS_NAMES, *TASKS])
    for name, _ in TFDS_NAMES.values():
        assert f"`{name}`" in PAGE.read_text("utf-8")


def python_blocks():
    return re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)


def test_the_pages_module_has_a_task_and_a_mixture(vocabulary, tmp_path, monkeypatch):
    (tmp_path / "my_tasks.py").write_text(python_blocks()[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert "MIXTURE_OR_TASK_MODULE=my_tasks --task=my_mixture" in PAGE.read_text(
        "utf-8"
    )
    found = tasks.load_seqio_task(
        "my_mixture", vocabulary, split="test", num_examples=2, module="my_tasks"
    )
    ende, mine = sorted(found, key=lambda data: data.name)
    sys.modules.pop("my_tasks")
    assert (mine.name, ende.name) == ("my_task", "ende")
    assert mine.score(["Datei speichern.", "Stop."]) == {"exact": 50.0}
    text = "translate English to German: Stop."
    assert list(mine.examples[1].inputs) == [*vocabulary.encode(text), EOS_ID]


def test_the_pages_defaults_are_those_of_the_files():
    rows = re.findall(
        r"^\| `([A-Z_]+)` \|(.+)\|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    cells = {name: [cell.strip() for cell in rest.split("|")] for name, rest in rows}
    said = {
        name: [re.findall(r"`([\w,]+)`", cell) for cell in rest[1:]]
        for name, rest in cells.items()
    }
    macros = {
        file: SearchPath().macros(["runs/task_source.gin", f"tasks/{file}.gin"])
        for file in ("my_tsv", "my_jsonl")
    }
    first = SearchPath().macros(["runs/task_source.gin"])

    def value(macro):
        got = ast.literal_eval(macro.value)
        return ",".join(got) if isinstance(got, tuple) else got

    assert said["METRICS"] == [
        [value(first["METRICS"])],
        [value(macros[file]["METRICS"]) for file in macros],
    ]
    assert said["TASK_FIELDS"][0] == [value(first["TASK_FIELDS"])]
    assert {value(m["TASK_FIELDS"]) for m in macros.values()} == {"inputs,targets"}
    assert not value(first["PREFIX"]) and not value(macros["my_tsv"]["PREFIX"])
    assert {m["TASK_FILE"].value for m in macros.values()} == {"%gin.REQUIRED"}
    (lengths,) = {str(value(m["TASK_FEATURE_LENGTHS"])) for m in macros.values()}
    shown = [datasets.LENGTHS, ast.literal_eval(lengths)]
    assert cells["TASK_FEATURE_LENGTHS"][1:] == [
        f"{one['inputs']} and {one['targets']}" for one in shown
    ]


def test_the_pages_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, block = python_blocks()
    names = {"__name__": "tasks"}
    exec(compile(block, str(PAGE), "exec"), names)
    assert names["scores"]["bleu"] == pytest.approx(100)
    assert names["scores"]["chrf"] == pytest.approx(100)
