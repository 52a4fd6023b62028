import gzip
import json

import numpy as np
import pytest
import tokenizers

from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import SentencePieceVocabulary
from spec_jax.pairs import load_tables, load_tokenizer


@pytest.fixture
def corpora(tmp_path):
    folder = tmp_path / "corpora"
    folder.mkdir()
    for corpus, rows in (
        ("summ", load_samples("summarization")[:8]),
        ("ende", load_samples("translation")[:50]),
    ):
        with gzip.open(folder / f"{corpus}.train.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def command(corpora, vocabulary_path, output):
    return [
        "data",
        "ngram",
        f"--data_dir={corpora}",
        f"--vocabulary={vocabulary_path}",
        f"--output={output}",
    ]


def test_tables_are_counted_of_both_corpora(run, corpora, vocabulary_path, tmp_path):
    path = tmp_path / "new" / "ngram.safetensors"
    outcome = run(*command(corpora, vocabulary_path, path), "--successors=5")
    assert outcome.status == 0, outcome
    assert "tokens of 58 texts counted in" in outcome.out
    vocabulary = SentencePieceVocabulary(vocabulary_path)
    tables = load_tables(path, vocabulary)
    assert tables["shares"].shape == (600, 5)
    text = load_samples("translation")[0]["de"]
    first, second = vocabulary.encode(text)[:2]
    assert float(tables["unigram"][second]) > float(np.min(tables["unigram"]))
    assert second in np.asarray(tables["successors"][first])
    assert [p.name for p in path.parent.iterdir()] == ["ngram.safetensors"]


def test_what_is_missing_is_named(fails, corpora, vocabulary_path, tmp_path):
    output = tmp_path / "ngram.safetensors"
    words = command(corpora, vocabulary_path, output)
    assert "want successors >= 1, got 0" in fails(*words, "--successors=0")
    assert "no vocabulary at" in fails(*command(corpora, tmp_path / "none", output))
    assert "got a device" in fails(*command(corpora, vocabulary_path, "/dev/null"))
    (corpora / "summ.train.jsonl.gz").unlink()
    message = fails(*words)
    assert "summ.train.jsonl.gz" in message and "`spec-jax data teacher" in message
    assert not output.exists()


def test_texts_for_a_decoder_only_model(run, fails, tmp_path):
    """A tokenizer.json and lines of text; each line ends with the end of text."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    pre = tokenizers.pre_tokenizers.ByteLevel
    made.pre_tokenizer = pre(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|end|>"], initial_alphabet=pre.alphabet()
    )
    made.train_from_iterator(["to be or not to be"], trainer)
    made.save(str(tmp_path / "tokenizer.json"))
    config = {"model_type": "llama", "eos_token_id": 0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    texts = tmp_path / "texts.txt"
    texts.write_text("to be\n\nnot to be\n")
    path = tmp_path / "ngram.safetensors"
    flags = [f"--vocabulary={tmp_path}", f"--output={path}", "--successors=4"]
    outcome = run("data", "ngram", f"--input_file={texts}", *flags)
    assert outcome.status == 0, outcome
    assert "of 2 texts counted in" in outcome.out
    tokenizer = load_tokenizer(tmp_path)
    tables = load_tables(path, tokenizer)
    last = tokenizer.encode("to be")[-1]
    assert int(tables["successors"][last][0]) == 0  # nothing but the end follows
    for both in ((), (f"--input_file={texts}", f"--data_dir={tmp_path}")):
        message = fails("data", "ngram", *both, *flags)
        assert "--data_dir or --input_file, one of them" in message
