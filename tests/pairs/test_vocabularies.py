"""Vocabularies by their files: told apart by content, found beside a checkpoint."""

import functools
import http.server
import json
import shutil
import sys
import threading

import pytest

from spec_jax.checkpoints import CheckpointError
from spec_jax.checkpoints.vocabulary_files import vocabulary_files
from spec_jax.data.unigram import UnigramTokenizer
from spec_jax.data.vocabulary import ByteVocabulary, SentencePieceVocabulary
from spec_jax.pairs import find_vocabulary, open_vocabulary, resolve
from spec_jax.pairs.vocabularies import places

SHIPPED = resolve("spec_jax://pretrained/vocabulary.model")


def write_tokenizer(file, pieces=("\u2581", "a", "b")):
    """A tokenizer.json of a few pieces."""
    tokenizers = pytest.importorskip("tokenizers")
    vocab = [(piece, 0.0) for piece in ("<pad>", "</s>", "<unk>")]
    vocab += [(piece, -1.0 - i) for i, piece in enumerate(pieces)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, unk_id=2))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    file.write_text(tokenizer.to_str())


def say(folder, **fields):
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))


def test_the_content_tells_the_kind(tmp_path):
    shutil.copy(SHIPPED, tmp_path / "a.json")
    assert open_vocabulary(tmp_path / "a.json") == SentencePieceVocabulary(SHIPPED)
    write_tokenizer(tmp_path / "b.model")
    opened = open_vocabulary(tmp_path / "b.model")
    assert isinstance(opened, UnigramTokenizer)
    assert opened.encode("ab") == [3, 4, 5] and opened.decode([3, 4, 5, 1]) == "ab"
    with pytest.raises(ValueError, match="holds its sentinels"):
        open_vocabulary(tmp_path / "b.model", extra_ids=100)
    assert open_vocabulary("bytes") == ByteVocabulary()
    assert open_vocabulary("bytes", 125) == ByteVocabulary(125)
    assert open_vocabulary("spec_jax://pretrained").path == SHIPPED


@pytest.mark.parametrize(
    "content",
    [b"", b"neither", b"{", b"[]", None],
    ids=["", "text", "cut", "list", "-"],
)
def test_what_is_no_vocabulary_is_named(tmp_path, content):
    file = tmp_path / "x.model"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.model") as caught:
        open_vocabulary(file)
    assert "\n" not in str(caught.value)


def test_a_folder_without_one_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"no vocabulary: want one of spiece\.model"):
        open_vocabulary(tmp_path)


def test_hugging_face_s_folder_says_how_many_sentinels(tmp_path):
    file = tmp_path / "spiece.model"
    shutil.copy(SHIPPED, file)
    assert open_vocabulary(file).vocab_size == 4096
    say(tmp_path, extra_ids=100)
    assert open_vocabulary(file).vocab_size == 4196
    assert find_vocabulary(tmp_path).vocab_size == 4196
    assert open_vocabulary(file, extra_ids=0).vocab_size == 4096
    assert open_vocabulary(file, extra_ids=7).vocab_size == 4103
    for broken in ({"extra_ids": "many"}, ["extra_ids"]):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(broken))
        with pytest.raises(CheckpointError, match=r"tokenizer_config\.json: "):
            open_vocabulary(file)


def test_byt5_s_folder_holds_no_file(tmp_path):
    say(tmp_path, tokenizer_class="ByT5Tokenizer", extra_ids=125)
    assert find_vocabulary(tmp_path) == ByteVocabulary(125)
    assert find_vocabulary(tmp_path, extra_ids=0) == ByteVocabulary()


def test_sentencepiece_goes_before_a_tokenizer_json(tmp_path):
    assert find_vocabulary(tmp_path) is None
    write_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(find_vocabulary(tmp_path), UnigramTokenizer)
    shutil.copy(SHIPPED, tmp_path / "sentencepiece.model")
    assert isinstance(find_vocabulary(tmp_path), SentencePieceVocabulary)


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    write_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"tokenizer\.json: .*pip install tokenizers"):
        find_vocabulary(tmp_path)


@pytest.mark.parametrize("below", ["checkpoint_1000", "7", "export", "."])
def test_a_step_s_vocabulary_lies_in_its_run_s_folder(tmp_path, below):
    (tmp_path / below).mkdir(exist_ok=True)
    file = tmp_path / below / "model.safetensors"
    file.touch()
    shutil.copy(SHIPPED, tmp_path / "vocabulary.model")
    for path in (tmp_path / below, file):
        assert find_vocabulary(path) == SentencePieceVocabulary(SHIPPED)


def test_one_folder_above_is_looked_at(tmp_path):
    below = tmp_path / "models" / "base"
    below.mkdir(parents=True)
    shutil.copy(SHIPPED, tmp_path / "vocabulary.model")
    assert find_vocabulary(below) is None
    shutil.copy(SHIPPED, tmp_path / "models" / "vocabulary.model")
    assert find_vocabulary(below).path == str(below.parent / "vocabulary.model")
    assert find_vocabulary("spec_jax://pretrained/draft").path == SHIPPED
    assert places("gs://bucket/t5/checkpoint_9/") == [
        "gs://bucket/t5/checkpoint_9",
        "gs://bucket/t5",
    ]
    assert places("gs://bucket") == ["gs://bucket"]


def test_the_same_files_as_are_said_to_lie_beside_a_checkpoint(tmp_path):
    shutil.copy(SHIPPED, tmp_path / "spiece.model")
    below = tmp_path / "checkpoint_1"
    below.mkdir()
    (file,) = vocabulary_files(below)
    assert find_vocabulary(below).path == str(file)


def test_a_link_that_leads_out_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").symlink_to(SHIPPED)
    with pytest.raises(CheckpointError, match="link that leads out"):
        find_vocabulary(tmp_path)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def url(tmp_path):
    """The test's folder, served to this machine."""
    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_url_is_read(url, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(SHIPPED, run / "spiece.model")
    say(run, extra_ids=100)
    expected = SentencePieceVocabulary(SHIPPED, 100)
    opened = open_vocabulary(f"{url}/run/spiece.model")
    assert opened == expected and opened.path.startswith("http://")
    assert find_vocabulary(f"{url}/run/checkpoint_3") == expected
    with pytest.raises(ValueError, match=r"no vocabulary at http.*x\.model: no such"):
        open_vocabulary(f"{url}/run/x.model")


def test_a_store_that_does_not_answer_is_a_reason_to_copy(monkeypatch):
    def refuse(self, name):
        raise CheckpointError(f"{self.path}/{name}: no route")

    monkeypatch.setattr("spec_jax.checkpoints.storage.Folder.read", refuse)
    path = "gs://t5-data/vocabs/x/sentencepiece.model"
    with pytest.raises(ValueError, match=f"no route; copy it here: gsutil cp {path} ."):
        open_vocabulary(path)
