import gzip
import json

import jax
import numpy as np
import pytest

from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import train_vocabulary
from spec_jax.pairs import load_pair

TINY = [
    "--gin_file=models/shipped_target.gin",
    *(
        f"--gin.target/T5Config.{name}={value}"
        for name, value in {
            "vocab_size": 640,
            "emb_dim": 16,
            "num_heads": 2,
            "head_dim": 8,
            "mlp_dim": 16,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "dtype": "float32",
        }.items()
    ),
    "--gin.MIXTURE_OR_TASK_NAME=summarize",
    "--gin.BATCH_TOKENS=64",
    "--gin.CHECKPOINT_PERIOD=2",
    "--gin.EVAL_PERIOD=2",
    "--gin.train.num_validation=2",
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    rows = load_samples("summarization")
    pairs = load_samples("translation")
    for corpus, parts in (
        ("summ", {"train": rows[:8], "validation": rows[8:]}),
        ("ende", {"train": pairs[:150], "validation": pairs[-4:]}),
    ):
        for split, part in parts.items():
            with gzip.open(folder / f"{corpus}.{split}.jsonl.gz", "wt") as file:
                file.writelines(json.dumps(row) + "\n" for row in part)
    return folder


@pytest.mark.slow
def test_a_training_goes_on_and_its_export_is_loaded(
    run, fails, corpora, vocabulary_path, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "model"
    command = [
        "train",
        *TINY,
        "--gin.MODEL_DIR=~/model",
        f"--gin.DATA_DIR={corpora}",
        f"--gin.VOCABULARY={vocabulary_path}",
    ]
    first = run(*command, "--gin.TRAIN_STEPS=2")
    assert first.status == 0, first
    assert "TRAIN_STEPS = 2" in (folder / "config.gin").read_text()
    second = run(*command, "--gin.TRAIN_STEPS=3")
    assert second.status == 0, second
    steps = [json.loads(x)["step"] for x in (folder / "metrics.jsonl").open()]
    assert steps == [2, 3]
    assert (folder / "vocabulary.model").read_bytes() == vocabulary_path.read_bytes()
    assert "warning" not in second.err and "already at" not in second.err

    same = run(*command, "--gin.TRAIN_STEPS=3", "--gin.LEARNING_RATE=0.5")
    assert same.status == 0 and "already at step 3" in same.err, same
    assert "LEARNING_RATE was 0.01, is 0.5" in same.err
    before = (folder / "config.gin").read_text()
    message = fails(*command, "--gin.TRAIN_STEPS=2")
    assert "already at step 3, TRAIN_STEPS is 2" in message
    other = tmp_path / "other.model"
    texts = [row["en"] for row in load_samples("translation")]
    train_vocabulary(texts, other, 520)
    message = fails(*command, "--gin.TRAIN_STEPS=3", f"--gin.VOCABULARY={other}")
    assert str(other) in message and str(folder / "vocabulary.model") in message
    assert (folder / "config.gin").read_text() == before

    export = str(folder / "export")
    pair = load_pair(export, export, str(folder / "vocabulary.model"))
    assert pair.target.config.emb_dim == 16
    leaves = [np.asarray(x, np.float32) for x in jax.tree.leaves(pair.params["target"])]
    assert all(np.isfinite(x).all() for x in leaves)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "train needs MODEL, MODEL_DIR, DATA_DIR, VOCABULARY, for example"),
        ([*TINY, "--gin.DATA_DIR=d"], "train needs MODEL_DIR, VOCABULARY"),
        (
            [
                *TINY,
                "--gin.MODEL_DIR=m",
                "--gin.DATA_DIR=d",
                "--gin.VOCABULARY=v.model",
            ],
            "`spec-jax data vocabulary --data_dir=d --output=v.model` makes one",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_makes_it(
    fails, argv, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert said in fails("train", *argv)


def test_a_missing_corpus_names_its_commands(fails, vocabulary_path, tmp_path):
    given = [
        *TINY,
        f"--gin.MODEL_DIR={tmp_path}",
        f"--gin.VOCABULARY={vocabulary_path}",
    ]
    message = fails("train", *given, "--gin.DATA_DIR=/missing")
    assert "`spec-jax data debian --output_dir=/missing`" in message
    assert "`spec-jax data teacher`" in message


def write_corpus(folder, train, validation):
    for split, lines in (("train", train), ("validation", validation)):
        with gzip.open(folder / f"summ.{split}.jsonl.gz", "wt") as file:
            file.writelines(line + "\n" for line in lines)


@pytest.mark.parametrize(
    ("train", "validation", "said"),
    [
        (['{"document": "a", "summary": "b"}'], [], "would be no validation loss"),
        (["[1]"], [], "train.jsonl.gz, line 1: want a JSON object, got [1]"),
        (['{"en": "a", "de": "b"}'], [], "line 1: want text in the field 'document'"),
    ],
    ids=["nothing to validate", "no row", "another task's"],
)
def test_wrong_corpora_are_named_and_nothing_is_written(
    fails, vocabulary_path, tmp_path, train, validation, said
):
    write_corpus(tmp_path, train, validation)
    given = [
        *TINY,
        f"--gin.MODEL_DIR={tmp_path / 'model'}",
        f"--gin.DATA_DIR={tmp_path}",
        f"--gin.VOCABULARY={vocabulary_path}",
    ]
    assert said in fails("train", *given)
    assert not (tmp_path / "model").exists()


def test_a_vocabulary_larger_than_the_table_is_an_error(
    fails, corpora, vocabulary_path, tmp_path
):
    message = fails(
        "train",
        *TINY,
        f"--gin.MODEL_DIR={tmp_path}",
        f"--gin.VOCABULARY={vocabulary_path}",
        f"--gin.DATA_DIR={corpora}",
        "--gin.target/T5Config.vocab_size=500",
    )
    assert "600 pieces" in message and "500 rows" in message


def test_a_vocabulary_is_trained_on_the_training_texts(run, corpora, tmp_path):
    path = tmp_path / "new" / "vocabulary.model"
    command = ["data", "vocabulary", f"--data_dir={corpora}", f"--output={path}"]
    outcome = run(*command, "--vocab_size=520")
    assert outcome.status == 0, outcome
    assert "520 pieces from 316 texts" in outcome.out
    assert [p.name for p in path.parent.iterdir()] == ["vocabulary.model"]


def test_too_few_texts_for_a_vocabulary_is_an_error(fails, corpora, tmp_path):
    command = ["data", "vocabulary", f"--data_dir={corpora}", f"--output={tmp_path}/v"]
    assert "--vocab_size >= 512" in fails(*command, "--vocab_size=100")
    assert "SentencePiece cannot train" in fails(*command, "--vocab_size=60000")
    assert not list(tmp_path.iterdir())
    write_corpus(tmp_path, ['{"document": "a", "summary": null}'], [])
    (tmp_path / "ende.train.jsonl.gz").write_bytes(
        (corpora / "ende.train.jsonl.gz").read_bytes()
    )
    command = [
        "data",
        "vocabulary",
        f"--data_dir={tmp_path}",
        "-o",
        tmp_path / "new" / "v",
    ]
    assert "line 1: want text in the field 'summary'" in fails(*command)
    assert not (tmp_path / "new").exists()


def test_a_teacher_answers_what_training_reads(
    run, fails, corpora, pair_flags, vocabulary_path, tmp_path, monkeypatch
):
    target = pair_flags[1].partition("=")[2]
    command = [
        "data",
        "teacher",
        f"--data_dir={corpora}",
        f"--target={target}",
        f"--vocabulary={vocabulary_path}",
    ]
    assert "another --output_dir" in fails(*command, f"--output_dir={corpora}")
    calls = []
    monkeypatch.setattr(
        "spec_jax.cli.data_teacher.write_teacher_corpus",
        lambda *args, **kwargs: calls.append((args, kwargs)),
    )
    outcome = run(*command, f"--output_dir={tmp_path}", "--seed=3")
    assert outcome.status == 0, outcome
    assert [args[5].name for args, _ in calls] == [
        "ende.train.jsonl.gz",
        "ende.validation.jsonl.gz",
        "summ.train.jsonl.gz",
        "summ.validation.jsonl.gz",
    ]
    assert [len(args[4]) for args, _ in calls] == [150, 4, 8, 4]
    assert all(kwargs["seed"] == 3 for _, kwargs in calls)
    calls.clear()
    few = run(*command, f"--output_dir={tmp_path}", "--num_examples=6")
    assert few.status == 0, few
    assert [len(args[4]) for args, _ in calls] == [6, 4, 6, 4]
    calls.clear()
    one = run(*command, f"--output_dir={tmp_path}", "--task=summarize")
    assert one.status == 0, one
    assert [len(args[4]) for args, _ in calls] == [8, 4]
    assert "want num_examples >= 1, got 0" in fails(
        *command, f"--output_dir={tmp_path}", "--num_examples=0"
    )


def test_building_without_packages_says_why(fails, tmp_path):
    missing = tmp_path / "missing"
    message = fails("data", "debian", f"--output_dir={tmp_path}", f"--root={missing}")
    url = fails("data", "debian", "--output_dir=gs://b/x", f"--root={missing}")
    assert "cannot write gs://b/x" in url
    assert "root must be a folder" in message or "spec_jax[corpora]" in message
