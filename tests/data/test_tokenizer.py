"""Byte-level BPE from tokenizer.json and from GGUF's metadata; chat templates."""

import builtins
import json

import pytest
import tokenizers

from spec_jax.data.tokenizer import (
    read_tokenizer,
    render_chat,
    tokenizer_from_gguf,
)

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MESSAGES = [{"role": "user", "content": "Hello <b>"}]
TEXTS = (
    "It's 12:45, I'll pay $1,234.50 for 3  apples.\n\n\tDon't  you?  ",
    "Grüße, naïve café — 日本語 ☃ 🤖 2²",
    "hello hello 2024<|im_end|>hello",
    "",
)


def trained(digits=True):
    """A small tokenizer of the library's own."""
    pre = tokenizers.pre_tokenizers
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    parts = [pre.ByteLevel(add_prefix_space=False)]
    if digits:
        parts.insert(0, pre.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre.Sequence(parts)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["hello apples 2024 2024 don't don't"] * 3, trainer)
    return tokenizer


def metadata_of(tokenizer, **changes):
    """The same tokenizer as GGUF's metadata have it."""
    content = json.loads(tokenizer.to_str())
    vocab = content["model"]["vocab"]
    tokens = sorted(vocab, key=vocab.get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if t in SPECIAL else 1 for t in tokens],
        "tokenizer.ggml.merges": [" ".join(m) for m in content["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": CHAT,
    } | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}


def from_gguf(**changes):
    return tokenizer_from_gguf(metadata_of(trained(), **changes), "tiny.gguf")


@pytest.fixture
def file(tmp_path):
    trained().save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize("text", TEXTS)
def test_metadata_and_json_give_the_library_s_tokens(text, file):
    wanted = trained().encode(text).ids
    assert from_gguf().encode(text) == wanted
    assert read_tokenizer(file).encode(text) == wanted
    assert from_gguf().encode_batch([text, text]) == [wanted, wanted]


def test_any_text_comes_back():
    tokenizer = from_gguf()
    for text in TEXTS[:2]:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_found_in_text_and_have_none():
    tokenizer = from_gguf()
    assert tokenizer.encode("<|im_start|>") == [1]
    assert tokenizer.decode([1, *tokenizer.encode("hello")]) == "hello"
    assert tokenizer.pieces[2] == "<|im_end|>"
    assert len(tokenizer.pieces) == tokenizer.vocab_size


def test_text_ends_at_the_first_end():
    tokenizer = from_gguf()
    ids = tokenizer.encode("hello")
    assert tokenizer.decode([*ids, 2, *ids]) == "hello"
    assert tokenizer.eos_ids == (2,) and tokenizer.pad_id == 2


def test_every_digit_is_a_piece_of_its_own_where_the_model_says_so():
    """2024 is one token to a tokenizer without that rule."""
    apart = from_gguf().encode("2024")
    assert len(apart) == 4
    joined = tokenizer_from_gguf(
        metadata_of(trained(digits=False), pre="gpt-2"), "tiny.gguf"
    )
    assert len(joined.encode("2024")) < 4
    split = tokenizer_from_gguf(metadata_of(trained(digits=False)), "tiny.gguf")
    assert len(split.encode("2024")) == 4


def test_a_text_begins_as_the_model_s_do():
    tokenizer = from_gguf(add_bos_token=True)
    ids = from_gguf().encode("hello")
    assert tokenizer.encode("hello") == [1, *ids]
    assert tokenizer.encode("hello", add_special_tokens=False) == ids
    assert tokenizer.encode_batch(["hello"]) == [[1, *ids]]


def test_equal_tokenizers_hash_alike(file):
    assert from_gguf() == from_gguf() and hash(from_gguf()) == hash(from_gguf())
    other = tokenizer_from_gguf(metadata_of(trained(), pre="gpt-2"), "tiny.gguf")
    assert other != from_gguf()
    assert read_tokenizer(file) == read_tokenizer(file)
    assert "tokenizer.json" in repr(read_tokenizer(file))


def test_ends_and_template_of_a_folder(file):
    config = {
        "eos_token": {"content": "<|im_end|>"},
        "bos_token": "<|im_start|>",
        "chat_template": [{"name": "default", "template": CHAT}],
    }
    tokenizer = read_tokenizer(file, config=config)
    assert tokenizer.eos_ids == (2,)
    assert "Hello <b>" in tokenizer.apply_chat_template(MESSAGES)
    assert read_tokenizer(file, eos_ids=[0, 2], config=config).eos_ids == (0, 2)
    one = read_tokenizer(file, config=config, chat_template="{{ bos_token }}")
    assert one.apply_chat_template(MESSAGES) == "<|im_start|>"


def test_a_chat_is_written_as_the_template_says():
    tokenizer = from_gguf()
    head = "<|im_start|>user\nHello <b><|im_end|>\n"
    assert tokenizer.apply_chat_template(MESSAGES) == head
    whole = tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True)
    assert whole == head + "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    "template, message",
    [
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% for %}", "the chat template refuses"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ messages[9]['role'] }}", "the chat template refuses"),
    ],
)
def test_a_template_that_refuses_or_reaches_too_far(template, message):
    with pytest.raises(ValueError, match=message):
        render_chat(template, MESSAGES, add_generation_prompt=False)


def test_a_model_without_a_template_says_so():
    metadata = metadata_of(trained())
    del metadata["tokenizer.chat_template"]
    with pytest.raises(ValueError, match=r"tiny\.gguf has no chat template"):
        tokenizer_from_gguf(metadata, "tiny.gguf").apply_chat_template(MESSAGES)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model": "llama"}, "tokenizer 'llama' with pre-tokenizer 'smollm'; want"),
        ({"pre": "qwen2"}, "pre-tokenizer 'qwen2'; want 'gpt2' with one of"),
        ({"tokens": ["a", "a"]}, "each once"),
        ({"merges": None}, "and merges"),
        ({"eos_token_id": 999}, r"ids that the tokenizer has, got \[999\]"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_metadata_that_cannot_be_used(changes, message):
    with pytest.raises(ValueError, match=message):
        from_gguf(**changes)


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_missing_or_damaged_file(content, tmp_path):
    file = tmp_path / "tokenizer.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=r"no tokenizer"):
        read_tokenizer(file)


def test_rows_are_not_padded_whatever_the_file_asks(file):
    tokenizer = trained()
    tokenizer.enable_padding(length=40)
    tokenizer.enable_truncation(2)
    tokenizer.save(str(file))
    assert read_tokenizer(file).encode(TEXTS[0]) == trained().encode(TEXTS[0]).ids


@pytest.mark.parametrize("package", ["tokenizers", "jinja2"])
def test_without_a_package_it_is_said_what_to_install(package, file, monkeypatch):
    tokenizer = from_gguf()
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install tokenizers jinja2"):
        if package == "jinja2":
            tokenizer.apply_chat_template(MESSAGES)
        else:
            read_tokenizer(file)


@pytest.mark.parametrize(
    "model",
    [tokenizers.models.WordPiece({"a": 0}), tokenizers.models.Unigram()],
    ids=["wordpiece", "unigram"],
)
def test_another_kind_of_tokenizer_is_named(model, tmp_path):
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"of kind '\w+'; want 'BPE'"):
        read_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("merges", [["zz qq"], ["alone"], [3]], ids=str)
def test_merges_that_fit_no_vocabulary(merges):
    with pytest.raises(ValueError, match="merges that make no tokenizer"):
        from_gguf(merges=merges)


def test_an_end_of_text_that_is_no_token(file):
    for ids in ([-1], [10_000]):
        with pytest.raises(ValueError, match="end-of-text ids that the tokenizer has"):
            read_tokenizer(file, ids)
    assert read_tokenizer(file, config={"eos_token": ["a", "b"]}).eos_ids == ()


@pytest.mark.parametrize(
    "template",
    ["{{ 1 / 0 }}", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"],
    ids=["division", "recursion"],
)
def test_a_template_that_fails_is_an_error_of_the_template(template):
    with pytest.raises(ValueError, match="template refuses"):
        render_chat(template, MESSAGES, add_generation_prompt=True)


def test_ids_with_gaps(tmp_path):
    """Every id that encoding gives lies below the vocabulary's size."""
    model = tokenizers.models.BPE(vocab={"a": 0, "b": 1, "ab": 5}, merges=[("a", "b")])
    tokenizers.Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path / "tokenizer.json", [5])
    assert tokenizer.encode("ab") == [5]
    assert tokenizer.vocab_size == 6
