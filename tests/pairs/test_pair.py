"""Pairs: what belongs together is loaded, what does not is refused by name."""

import dataclasses
import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.checkpoints import CheckpointError, load_params, save_weights
from spec_jax.checkpoints.loading import WEIGHTS
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import SentencePieceVocabulary, train_vocabulary
from spec_jax.decoding.loop import _jitted_generate, generate
from spec_jax.models.t5 import T5Config, Transformer
from spec_jax.pairs import (
    EXPORT,
    PACKAGE,
    START_ID,
    Pair,
    load_pair,
    parameter_shapes,
    read_model_config,
    resolve,
    save_model,
    shipped_pair,
)
from spec_jax.pairs.folders import CONFIG
from tests.golden import golden_path

VOCABULARY = PACKAGE + "pretrained/vocabulary.model"
SMALL = T5Config(
    vocab_size=4096,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=16,
    num_encoder_layers=1,
    num_decoder_layers=1,
)


def save(folder, config, seed=0):
    tokens = jnp.ones((1, 2), jnp.int32)
    params = Transformer(config).init(jax.random.key(seed), tokens, tokens)["params"]
    save_model(folder, params, config, "float32")
    return params


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A target with a padded table, and a draft without padding."""
    root = tmp_path_factory.mktemp("pair")
    save(root / "target", dataclasses.replace(SMALL, vocab_size=4224))
    save(root / "draft", SMALL, seed=1)
    return root


def test_a_saved_model_comes_back(tmp_path):
    params = save(tmp_path / "model", SMALL)
    config = read_model_config(str(tmp_path / "model"))
    assert config == SMALL
    loaded = load_params(tmp_path / "model", parameter_shapes(config))
    jax.tree.map(np.testing.assert_array_equal, loaded, jax.device_get(params))


def test_tables_of_different_size_share_the_tokenizer_s_ids(folders):
    """BEHAVIOURS 28: padded rows of either table are never emitted."""
    pair = load_pair(folders / "target", folders / "draft", VOCABULARY, dtype="float32")
    # A bias towards the padded rows, if they could be reached at all.
    kernel = pair.params["target"]["decoder"]["logits_dense"]["kernel"]
    pair.params["target"]["decoder"]["logits_dense"]["kernel"] = kernel.at[
        :, 4096:
    ].multiply(50.0)
    policy = SamplingPolicy(temperature=1.0)
    assert pair.policy(1.0).vocab_limit == pair.vocabulary.vocab_size == 4096
    own = dataclasses.replace(policy, vocab_limit=100)
    assert pair.autoregressive(own).policy == own
    inputs = np.tile(np.array([[5, 6, 7, 1]]), (16, 1))
    for algorithm in (pair.speculative(3, policy), pair.autoregressive(policy)):
        out = generate(
            algorithm,
            pair.params,
            inputs,
            np.zeros((16, 1), np.int32),
            jax.random.key(0),
            max_new_tokens=24,
        )
        assert int(out.tokens.max()) < 4096


def test_a_table_smaller_than_the_vocabulary_is_refused(folders, tmp_path):
    save(tmp_path / "draft", dataclasses.replace(SMALL, vocab_size=4000))
    message = r"the draft at .* has a table of 4000 rows, .* has 4096 pieces"
    with pytest.raises(ValueError, match=message):
        load_pair(folders / "target", tmp_path / "draft", VOCABULARY)


def test_a_checkpoint_of_another_size_says_which_and_where(folders):
    """BEHAVIOURS 29: parameter, path, both shapes, draft or target."""
    wrong = dataclasses.replace(SMALL, emb_dim=24)
    with pytest.raises(CheckpointError) as error:
        load_pair(folders / "target", folders / "draft", VOCABULARY, draft_config=wrong)
    for part in (
        "draft",
        str(folders / "draft"),
        "decoder_norm/scale",
        "(24,)",
        "(16,)",
    ):
        assert part in str(error.value)


def test_tied_against_untied_is_hinted_at(folders):
    """BEHAVIOURS 29."""
    tied = dataclasses.replace(SMALL, logits_via_embedding=True)
    with pytest.raises(CheckpointError, match=r"hint.*ties logits"):
        load_pair(folders / "target", folders / "draft", VOCABULARY, draft_config=tied)


def test_a_t5x_checkpoint_s_config_is_read_off_its_arrays():
    """Hugging Face's folder of the same weights says it in a file."""
    folder = golden_path("t5x_draft/legacy_float32")
    inferred = read_model_config(str(folder), "draft")
    hugging_face = golden_path("hf/t5_1_1_assistant")
    assert inferred == read_model_config(hugging_face)
    loaded = load_params(folder, parameter_shapes(inferred))
    same = load_params(hugging_face)
    jax.tree.map(np.testing.assert_array_equal, loaded, same)


def test_what_holds_no_config_and_is_no_t5_is_named(tmp_path):
    save_weights(tmp_path / WEIGHTS, {"encoder": {"x": np.zeros(3, np.float32)}})
    with pytest.raises(CheckpointError, match=r"draft at .*draft_config = @draft/T5"):
        read_model_config(str(tmp_path), "draft")
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match="the draft: no checkpoint at"):
        read_model_config(str(tmp_path), "draft")


@pytest.mark.parametrize("missing", ["target", "draft"])
def test_a_missing_checkpoint_is_named(folders, missing):
    paths = {role: folders / role for role in ("target", "draft")}
    paths[missing] = folders / "nowhere"
    with pytest.raises(CheckpointError, match=f"{missing} at .*nowhere"):
        load_pair(paths["target"], paths["draft"], VOCABULARY)


@pytest.mark.parametrize(
    "content",
    [b'{"vocab_size": 4096,', b"[1]", b'{"vocab_size": -1}', b"[" * 100_000, b"\xff"],
    ids=["cut", "list", "size", "nested", "encoding"],
)
def test_a_damaged_config_is_named(folders, tmp_path, content):
    shutil.copytree(folders / "draft", tmp_path / "draft")
    (tmp_path / "draft" / CONFIG).write_bytes(content)
    with pytest.raises(CheckpointError, match=CONFIG):
        load_pair(folders / "target", tmp_path / "draft", VOCABULARY)


def test_another_vocabulary_than_the_model_was_trained_with_is_refused(
    folders, tmp_path
):
    """BEHAVIOURS 28: as many pieces, but others."""
    texts = [text for row in load_samples("translation") for text in row.values()]
    for half, name in ((texts[::2], "mine"), (texts[1::2], "other")):
        train_vocabulary(half, tmp_path / name, 520)
    mine = SentencePieceVocabulary(tmp_path / "mine")
    params = load_params(folders / "draft")
    save_model(tmp_path / "draft", params, SMALL, "float32", vocabulary=mine)
    load_pair(folders / "target", tmp_path / "draft", tmp_path / "mine")
    with pytest.raises(ValueError, match=r"draft at .* trained with another") as caught:
        load_pair(folders / "target", tmp_path / "draft", tmp_path / "other")
    assert str(tmp_path / "other") in str(caught.value)


@pytest.mark.parametrize("dtype", ["int32", "bf16", None])
def test_a_dtype_that_no_network_computes_in_is_refused(folders, dtype):
    with pytest.raises(ValueError, match=f"float32.*bfloat16.*got {dtype!r}"):
        load_pair(folders / "target", folders / "draft", VOCABULARY, dtype=dtype)


def test_a_package_of_links_into_an_installers_cache(folders, tmp_path, monkeypatch):
    linked = tmp_path / "pretrained" / "target"
    linked.mkdir(parents=True)
    for file in (folders / "target").iterdir():
        (linked / file.name).symlink_to(file)
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    found = resolve(PACKAGE + "pretrained/target")
    assert load_params(found) and read_model_config(found).vocab_size == 4224
    with pytest.raises(CheckpointError, match="link"):
        load_params(linked)


def test_float16_is_refused_for_t5_1_1(folders):
    """BEHAVIOURS 32."""
    with pytest.raises(ValueError, match="float16"):
        load_pair(folders / "target", folders / "draft", VOCABULARY, dtype="float16")


def test_another_dtype_is_another_pair_of_the_same_weights(folders):
    pair = load_pair(folders / "target", folders / "draft", VOCABULARY)
    assert pair.dtype == jnp.bfloat16
    wide = pair.astype("float32")
    assert isinstance(wide, Pair) and wide.dtype == jnp.float32
    for narrow, leaf in zip(jax.tree.leaves(pair.params), jax.tree.leaves(wide.params)):
        assert leaf.dtype == jnp.float32
        np.testing.assert_array_equal(narrow.astype(jnp.float32), leaf)


def test_the_shipped_pair_is_what_the_documents_say():
    pair = shipped_pair()
    per_step = {}
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        decoder = pair.params[role]["decoder"]
        leaves = jax.tree_util.tree_leaves_with_path(decoder)
        per_step[role] = sum(
            leaf.size
            for path, leaf in leaves
            if not any(
                f"['encoder_decoder_attention']['{name}']" in jax.tree_util.keystr(path)
                for name in ("key", "value")
            )
        )
        assert model.config.vocab_size == pair.vocabulary.vocab_size
        assert all(x.dtype == jnp.bfloat16 for x in jax.tree.leaves(pair.params[role]))
    assert per_step["target"] >= 8 * per_step["draft"]


def test_a_path_into_the_package_is_resolved():
    assert resolve("relative/path") == "relative/path"
    assert resolve(VOCABULARY).endswith("vocabulary.model")
    assert not resolve(VOCABULARY).startswith(PACKAGE)


def test_no_network_is_made_of_layers_that_cannot_be_there(folders, tmp_path):
    folder = shutil.copytree(folders / "target", tmp_path / "a")
    config = json.loads((folder / CONFIG).read_text()) | {"num_decoder_layers": 10**12}
    (folder / CONFIG).write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"{CONFIG}: 10{{12}} layers, but there are"):
        read_model_config(folder)


def test_an_empty_path_is_told(folders):
    for target, vocabulary in (("", VOCABULARY), (str(folders / "target"), "")):
        with pytest.raises(ValueError, match="want a path, got an empty one"):
            load_pair(target, str(folders / "draft"), vocabulary)


def test_the_home_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    save("~/model", SMALL)
    assert read_model_config(resolve("~/model")) == SMALL
    assert (tmp_path / "model" / WEIGHTS).is_file()


def test_the_folder_of_a_run_stands_for_what_it_exported(folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders / "draft", run / EXPORT)
    (run / "7").mkdir()
    pair = load_pair(folders / "target", run, VOCABULARY, dtype="float32")
    assert pair.draft.config == SMALL
    assert pair.name == "target+run"
    for own in (CONFIG, "config.json"):
        (run / own).write_text("{}")
        assert resolve(run) == str(run)
        (run / own).unlink()


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS, EXPORT])
def test_links_that_lead_out_are_refused(folders, tmp_path, file):
    folder = tmp_path / "model"
    shutil.copytree(folders / "draft", folder)
    if file == EXPORT:
        shutil.move(folder, tmp_path / "x")
        folder.mkdir()
    else:
        shutil.move(folder / file, tmp_path / "x")
    (folder / file).symlink_to(tmp_path / "x")
    with pytest.raises(CheckpointError, match="link that leads out"):
        load_pair(folders / "target", folder, VOCABULARY)


def test_a_shape_is_read_off_arrays_behind_a_url(folders):
    folder = golden_path("t5x_draft/legacy_float32")
    there = read_model_config(folder.as_uri(), "draft")
    assert there == read_model_config(str(folder))
    with pytest.raises(CheckpointError, match=r"the draft: .*nowhere"):
        read_model_config((folders / "nowhere").as_uri(), "draft")


def test_a_config_with_other_padding_than_the_checkpoint_fits(folders):
    """T5's gin files say 32128 rows; somebody's checkpoint has 32100."""
    configs = {
        "target_config": SMALL,  # 4224 rows in the checkpoint
        "draft_config": dataclasses.replace(SMALL, vocab_size=4224),  # 4096 there
    }
    paths = folders / "target", folders / "draft"
    padded = load_pair(*paths, VOCABULARY, dtype="float32", **configs)
    plain = load_pair(*paths, VOCABULARY, dtype="float32")
    assert padded.policy() == plain.policy()
    for role, rows in (("target", 4096), ("draft", 4224)):
        assert getattr(padded, role).vocab_size == rows
        ours, theirs = (pair.params[role] for pair in (padded, plain))
        tables = [x["token_embedder"]["embedding"] for x in (ours, theirs)]
        heads = [x["decoder"]["logits_dense"]["kernel"].T for x in (ours, theirs)]
        for ours, theirs in (tables, heads):
            assert len(ours) == rows
            np.testing.assert_array_equal(ours[:4096], theirs[:4096])


def test_a_checkpoint_without_rows_for_the_vocabulary_is_not_padded(folders, tmp_path):
    save(tmp_path / "draft", dataclasses.replace(SMALL, vocab_size=4000))
    with pytest.raises(CheckpointError, match=r"4000"):
        load_pair(
            folders / "target", tmp_path / "draft", VOCABULARY, draft_config=SMALL
        )


def test_the_vocabulary_beside_the_models_is_taken(folders, tmp_path):
    for role in ("target", "draft"):
        shutil.copytree(folders / role, tmp_path / role)
    paths = tmp_path / "target", tmp_path / "draft"
    with pytest.raises(ValueError, match=r"in .*target, .*draft: give load_pair\.voc"):
        load_pair(*paths)
    assert load_pair(*paths, abstract=True).vocabulary is None
    shipped = resolve(VOCABULARY)
    shutil.copy(shipped, tmp_path / "draft" / "spiece.model")
    pair = load_pair(*paths)
    assert pair.vocabulary == SentencePieceVocabulary(shipped)
    assert load_pair(*paths, abstract=True).vocabulary == pair.vocabulary
    texts = [text for row in load_samples("translation") for text in row.values()]
    train_vocabulary(texts, tmp_path / "target" / "spiece.model", 520)
    with pytest.raises(ValueError, match=r"different vocabularies: token \d+ is"):
        load_pair(*paths)


def test_a_pair_of_bytes(tmp_path):
    for role in ("target", "draft"):
        save(tmp_path / role, dataclasses.replace(SMALL, vocab_size=384))
    paths = tmp_path / "target", tmp_path / "draft"
    pair = load_pair(*paths, "bytes")
    assert pair.policy().vocab_limit == 259
    assert pair.encode("ab") == (100, 101, 1)
    assert pair.text([100, 101, 1, 0]) == "ab"
    assert load_pair(*paths, "bytes", extra_ids=125, abstract=True).vocab_size == 384
    with pytest.raises(ValueError, match="384 rows"):
        load_pair(*paths, "bytes", extra_ids=126)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_of_a_bucket_share_a_program_that_never_asks_the_host(
    folders, temperature
):
    pair = load_pair(folders / "target", folders / "draft", VOCABULARY, dtype="float32")
    algorithm = pair.speculative(3, SamplingPolicy(temperature=temperature))
    prompt = np.full((2, 1), START_ID)
    programs = _jitted_generate._cache_size()
    outputs = []
    for lengths in ((4, 4), (16, 9), (1, 16)):
        inputs = np.zeros((2, 16), np.int32)
        for row, length in enumerate(lengths):
            inputs[row, :length] = 7 + np.arange(length)
        key = jax.random.key(length)
        out = generate(algorithm, pair.params, inputs, prompt, key, max_new_tokens=12)
        outputs.append(np.asarray(out.tokens))
    assert _jitted_generate._cache_size() == programs + 1
    assert not np.array_equal(outputs[0], outputs[1])
    one = jnp.ones(2, jnp.int32)
    lowered = _jitted_generate.lower(
        algorithm,
        pair.params,
        jnp.asarray(inputs),
        jnp.asarray(prompt, jnp.int32),
        one,
        key,
        12 * one,
        None,
        max_length=13,
    )
    program = lowered.compile().as_text()
    assert program.count(" while(") >= 1
    for visit in ("callback", "infeed", "outfeed", " send(", " recv("):
        assert visit not in program


def test_an_abstract_pair_needs_no_checkpoint():
    wide = dataclasses.replace(SMALL, vocab_size=4224)
    pair = load_pair(
        "gs://bucket/target",
        "nowhere/draft",
        "nowhere/vocabulary.model",
        target_config=wide,
        draft_config=SMALL,
        abstract=True,
    )
    leaves = jax.tree.leaves(pair.params)
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)
    assert {leaf.dtype for leaf in leaves} == {jnp.dtype("bfloat16")}
    narrow = jax.tree.leaves(pair.astype("float32").params)
    assert {leaf.dtype for leaf in narrow} == {jnp.dtype("float32")}
    assert pair.vocab_size == 4096
    with pytest.raises(ValueError, match="without a vocabulary"):
        pair.encode("text")
    with pytest.raises(CheckpointError, match="no checkpoint of the draft"):
        load_pair("a", "b", target_config=wide, abstract=True)


def test_an_abstract_pair_computes_the_shapes_of_a_run(folders):
    pair = load_pair(folders / "target", folders / "draft", VOCABULARY, abstract=True)
    assert pair.vocabulary.vocab_size == 4096
    algorithm = pair.speculative(3, SamplingPolicy())
    run = functools.partial(
        generate, algorithm, max_new_tokens=8, key=jax.random.key(0)
    )
    rows = jax.ShapeDtypeStruct((2, 16), jnp.int32)
    start = jax.ShapeDtypeStruct((2, 1), jnp.int32)
    out = jax.eval_shape(run, pair.params, rows, start)
    assert out.tokens.shape == (2, 8)
