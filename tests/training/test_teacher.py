"""A target's outputs as a corpus: in place, resumable, without cut-off rows."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.examples import get_task, read_rows
from spec_jax.data.vocabulary import SentencePieceVocabulary
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.pairs import resolve
from spec_jax.testing.tables import TableDecoder
from spec_jax.training import teacher
from spec_jax.training.teacher import write_teacher_corpus

WORDS = "This package contains the documentation of a small library".split()


@pytest.fixture(scope="module")
def setting():
    """A target that says some pieces, whatever it reads, and then ends."""
    vocabulary = SentencePieceVocabulary(
        resolve("spec_jax://pretrained/vocabulary.model")
    )
    spoken = [0, *vocabulary.encode("Die Datei"), 1]
    return vocabulary, spoken


def constant_target(spoken, vocab_size, ends=True):

    class Chain(TableDecoder):
        """Follows `spoken` by the last token alone."""

        def init_cache(self, params, inputs, batch, max_length):
            del params, inputs, max_length
            return jnp.zeros((batch, 1))

        def extend(self, params, cache, tokens, start):
            del start
            return params[tokens], cache

    table = np.full((vocab_size, vocab_size), -9.0, np.float32)
    for before, after in itertools.pairwise(spoken):
        table[before, after if ends or after != 1 else spoken[1]] = 9.0
    return Chain(vocab_size), {"target": jnp.asarray(table)}


def rows(count):
    return [
        {"group": f"g{i}", "en": " ".join(WORDS[: 1 + i % 9]), "de": "Bezug"}
        for i in range(count)
    ]


def write(setting, path, corpus, ends=True, temperature=0.0, **fields):
    vocabulary, spoken = setting
    decoder, params = constant_target(spoken, vocabulary.vocab_size, ends)
    algorithm = Autoregressive(decoder, SamplingPolicy(temperature=temperature))
    write_teacher_corpus(
        algorithm,
        params,
        vocabulary,
        get_task("ende"),
        corpus,
        path,
        batch_size=4,
        **fields,
    )


def test_references_become_outputs_in_the_rows_order(setting, tmp_path):
    path = tmp_path / "ende.train.jsonl.gz"
    done = []
    corpus = rows(11)
    write(setting, path, corpus, progress=lambda n, total: done.append((n, total)))
    assert read_rows(path) == [{**row, "de": "Die Datei"} for row in corpus]
    assert done[-1] == (11, 11) and list(tmp_path.iterdir()) == [path]


def test_rows_that_did_not_end_are_left_out(setting, tmp_path):
    path = tmp_path / "ende.train.jsonl.gz"
    write(setting, path, rows(3), ends=False)
    assert read_rows(path) == []


def test_a_killed_run_goes_on_at_the_first_missing_part(setting, tmp_path, monkeypatch):
    monkeypatch.setattr(teacher, "ROWS_IN_PART", 4)
    path = tmp_path / "ende.train.jsonl.gz"

    def kill(done, total):
        if done == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(setting, path, rows(11), progress=kill)
    assert not path.exists()
    decoded, real = [], teacher.decode_ids
    monkeypatch.setattr(
        teacher,
        "decode_ids",
        lambda *args: decoded.append(len(args[2])) or real(*args),
    )
    write(setting, path, rows(11))
    assert decoded == [4, 3]  # the part that was killed and the one after it
    assert [row["group"] for row in read_rows(path)] == [f"g{i}" for i in range(11)]


@pytest.mark.parametrize(
    "change",
    [{"ends": False}, {"temperature": 0.5}, {"seed": 1}, {"corpus": rows(6)}],
    ids=["target", "policy", "seed", "rows"],
)
def test_parts_of_another_run_are_not_taken(setting, tmp_path, monkeypatch, change):
    """The fault: a corpus of two targets' outputs, after a kill and a new start."""
    monkeypatch.setattr(teacher, "ROWS_IN_PART", 4)
    path = tmp_path / "ende.train.jsonl.gz"
    corpus = [*rows(5), {**rows(1)[0], "en": "Another last row."}]

    def kill(done, total):
        if done == len(corpus):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(setting, path, corpus, progress=kill)
    decoded, real = [], teacher.decode_ids
    monkeypatch.setattr(
        teacher,
        "decode_ids",
        lambda *args: decoded.append(len(args[2])) or real(*args),
    )
    write(setting, path, **({"corpus": corpus} | change))
    assert decoded == ([2] if "corpus" in change else [4, 2])
    assert list(tmp_path.iterdir()) == [path]
