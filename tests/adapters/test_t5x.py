import functools
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spec_jax.adapters import t5x_installed
from spec_jax.checkpoints import load_params
from spec_jax.core.rules import TokenRule
from spec_jax.models.t5 import T5Config
from spec_jax.testing.statistics import chi_square_pvalue
from tests.golden import golden_path

ROOT = pathlib.Path(__file__).parents[2]
needs_t5x = pytest.mark.needs_t5x
SMALL = "t5_1_1_draft"
"""The golden model that compiles fastest."""
FOLDERS = {
    "t5_1_1_target": "hf/t5_1_1_gated_gelu",
    "t5_1_1_draft": "hf/t5_1_1_assistant",
    "t5_1_0_tied": "hf/t5_1_0_relu_tied",
}


@functools.cache
def adapter():
    from spec_jax.adapters import t5x

    return t5x


@functools.cache
def shape(name):
    text = golden_path(f"models/{name}/manifest.json").read_text()
    config = json.loads(text)["config"]
    config["mlp_activations"] = tuple(config["mlp_activations"])
    return {key: value for key, value in config.items() if key in adapter()._SHAPE}


@functools.cache
def params(name):
    return load_params(golden_path(FOLDERS[name]))


def model(name="t5_1_1_target", cls=None, **fields):
    from t5x.examples.t5 import network

    vocabulary = adapter().seqio.PassThroughVocabulary(256, eos_id=1)
    module = network.Transformer(network.T5Config(**shape(name)))
    if cls is None:
        cls = adapter().SpeculativeEncoderDecoderModel
        if fields.get("draft", "model") == "model":
            small = "t5_1_0_tied" if name == SMALL else SMALL
            folder = golden_path(FOLDERS[small])
            fields = {"draft_checkpoint": str(folder)} | fields
    return cls(module, vocabulary, vocabulary, None, **fields)


def sampling(**fields):
    return functools.partial(adapter().speculative_sample, **fields)


def batch(rows=None, length=24):
    inputs = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    inputs = inputs["encoder_input_tokens"][:rows]
    start = np.zeros((len(inputs), length), np.int32)
    return {"encoder_input_tokens": inputs, "decoder_input_tokens": start}


def predict(decoder, rows, key=None, name="t5_1_1_target", **fields):
    call = jax.jit(functools.partial(decoder.predict_batch_with_aux, **fields))
    tokens, aux = call(params(name), rows, key)
    return np.asarray(tokens), np.asarray(aux["scores"])


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_looking_for_t5x_imports_neither_it_nor_tensorflow():
    code = (
        "import sys, spec_jax.adapters as a; a.t5x_installed(); "
        "sys.exit(any(m in sys.modules for m in ('t5x', 'seqio', 'tensorflow')))"
    )
    assert python(code).returncode == 0


@pytest.mark.skipif(t5x_installed(), reason="t5x is installed here")
def test_without_t5x_the_error_says_where_it_comes_from():
    with pytest.raises(ImportError, match=r"github[.]com/google-research/t5x"):
        import spec_jax.adapters.t5x  # noqa: F401


@needs_t5x
@pytest.mark.slow
@pytest.mark.parametrize("name", ["infer", "prompts", "eval"])
def test_its_scripts_give_what_its_own_greedy_decoding_gives(name, tmp_path):
    from tests.adapters.t5x_runs import GOLDEN, RUNS, run

    wanted = json.loads(GOLDEN.read_text())[name]
    given = run(RUNS[name], tmp_path, ours=True)
    assert given.keys() == wanted.keys()
    for file, lines in wanted.items():
        scores = [[line.pop("aux", None) for line in x] for x in (given[file], lines)]
        assert given[file] == lines
        for ours, theirs in zip(*scores):
            if theirs is not None:
                np.testing.assert_allclose(ours["scores"], theirs["scores"], atol=1e-3)


@needs_t5x
@pytest.mark.slow
def test_gin_files_bind_the_model():
    """Both whole files of gin_configs/t5x, parsed and built by t5x's gin."""
    from tests.adapters.t5x_runs import call

    code = f"""
import gin, t5x, pathlib
for folder in ({str(ROOT / "gin_configs")!r}, *map(str, t5x.__path__)):
    gin.add_config_file_search_path(folder)
    gin.add_config_file_search_path(str(pathlib.Path(folder).parent))
@gin.configurable
def made(model):
    return model
for name, fields in (
    ('xxl_small', "DRAFT_CHECKPOINT = '/nowhere'"), ('shipped', 'GAMMA = 5')
):
    gin.clear_config()
    with gin.unlock_config():
        gin.parse_config_files_and_bindings(
            ['t5x/' + name + '.gin'], [fields, 'made.model = %MODEL'])
    model = made()
    config = model._draft_model.config
    print(name, model._target.config.emb_dim, config.emb_dim, config.vocab_size,
          config.dtype, model.output_vocabulary.eos_id if name == 'shipped' else 1)
"""
    result = call(["-c", code])
    assert result.stdout.splitlines() == [
        "xxl_small 4096 512 32128 bfloat16 1",
        "shipped 256 128 4096 bfloat16 1",
    ], result.stderr


@needs_t5x
@pytest.mark.parametrize(
    "fields",
    [
        {"gamma": 1, "rule": "block"},
        {"gamma": 5, "draft": "lookup"},
    ],
)
def test_greedy_tokens_and_scores_are_t5xs(fields):
    fields = dict(fields)
    draft = {"draft": fields.pop("draft")} if "draft" in fields else {}
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    decode = sampling(temperature=0.0, rescale_log_probs=False, **fields)
    tokens, scores = predict(model(decode_fn=decode, **draft), batch())
    assert (tokens == golden["greedy_tokens"]).all()
    np.testing.assert_allclose(scores, golden["greedy_scores_logprob"], atol=1e-4)
    rescaled = sampling(temperature=0.0, **fields)
    assert (predict(model(decode_fn=rescaled, **draft), batch())[1] == 0).all()


@needs_t5x
def test_prompts_are_part_of_the_output():
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    prompt = golden["prompt_decoder_input_tokens"]
    rows = batch() | {"decoder_input_tokens": prompt}
    decoder = model(decode_fn=sampling(temperature=0.0))
    tokens, _ = predict(decoder, rows, prompt_with_targets=True)
    assert (golden["prompt_lengths"] == [3, 1, 0, 5]).all()
    assert (tokens == golden["prompted_greedy_tokens"]).all()


@needs_t5x
def test_a_prompt_of_the_whole_length_leaves_room_for_one_token():
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    first = golden["greedy_tokens"][:1]
    for length in (2, 3):  # here a draft prefills nothing, or one token
        prompt = np.concatenate([[[7]], first[:, : length - 1]], axis=1)
        rows = batch(1) | {"decoder_input_tokens": prompt}
        decoder = model(decode_fn=sampling(temperature=0.0))
        tokens, _ = predict(decoder, rows, prompt_with_targets=True)
        assert tokens.tolist() == first[:, :length].tolist()


@needs_t5x
def test_decodes_come_in_ascending_order_of_score():
    decoder = model(SMALL, decode_fn=sampling(temperature=1.0))
    fields = {"num_decodes": 5, "return_all_decodes": True}
    key = jax.random.PRNGKey(3)
    tokens, scores = predict(decoder, batch(), key, SMALL, **fields)
    assert tokens.shape == (4, 5, 24) and scores.shape == (4, 5)
    assert (np.diff(scores, axis=1) > 0).any() and (np.diff(scores, axis=1) >= 0).all()
    ended = np.cumsum(tokens == 1, axis=-1) - (tokens == 1) > 0
    assert ended.any() and (tokens[ended] == 0).all() and (tokens[~ended] != 0).any()


@needs_t5x
def test_scores_are_log_probabilities_of_the_new_tokens():
    """Against t5x's own teacher-forced logits, above temperature 0."""
    rows = batch(length=8)
    for rescale in (True, False):
        decode = sampling(temperature=0.5, topk=20, rescale_log_probs=rescale)
        decoder = model(SMALL, decode_fn=decode)
        tokens, scores = predict(decoder, rows, jax.random.PRNGKey(5), SMALL)
        shifted = np.pad(tokens, ((0, 0), (1, 0)))[:, :-1]
        forced = rows | {
            "decoder_input_tokens": shifted,
            "decoder_target_tokens": np.ones_like(tokens),  # masks nothing
        }
        logits = decoder._compute_logits(params(SMALL), forced)
        if rescale:
            kept = logits >= jnp.sort(logits)[..., -20, None]
            logits = jnp.where(kept, logits / 0.5, -jnp.inf)
        logprobs = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], 2)
        ended = np.cumsum(tokens == 1, axis=-1) - (tokens == 1) > 0
        wanted = jnp.where(ended, 0, logprobs[..., 0]).sum(1)
        np.testing.assert_allclose(scores, wanted, atol=1e-3)


class AlwaysP(TokenRule):
    """A planted fault: corrections follow p instead of the residual."""

    def next_law(self, tokens, q, p, accepted):
        return p[accepted]


@needs_t5x
@pytest.mark.parametrize("rule", [TokenRule(), AlwaysP()])
def test_first_tokens_follow_the_targets_law(rule):
    """Chi-square of 5,000 first tokens against t5x's own logits; a fault is seen."""
    decoder = model(SMALL, decode_fn=sampling(temperature=1.5, gamma=2, rule=rule))
    rows = batch(1, length=2)
    fields = {"num_decodes": 5_000, "return_all_decodes": True}
    tokens, _ = predict(decoder, rows, jax.random.PRNGKey(7), SMALL, **fields)
    forced = rows | {"decoder_target_tokens": np.ones((1, 2), np.int32)}
    logits = decoder._compute_logits(params(SMALL), forced)[0, 0]
    law = np.asarray(jax.nn.softmax(logits / 1.5), np.float64)
    pvalue = chi_square_pvalue(tokens[0, :, :1], law)
    assert (pvalue < 1e-6) == isinstance(rule, AlwaysP), pvalue


@needs_t5x
def test_temperatures_of_rows():
    """Rows at 0 in a batch of others give t5x's greedy tokens."""
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    decode = sampling(temperature=np.array([0.0, 5.0, 0.0, 5.0]))
    decoder = model(draft="lookup", decode_fn=decode)
    tokens, _ = predict(decoder, batch(), jax.random.PRNGKey(0))
    same = (tokens == golden["greedy_tokens"]).all(1)
    assert same.tolist() == [True, False, True, False]


@needs_t5x
def test_rows_draw_with_keys_of_their_own():
    """A row's output stays when others are left out; keys of both styles are equal."""
    decoder = model(SMALL, draft="lookup", decode_fn=sampling())
    call = functools.partial(predict, decoder, name=SMALL)
    some, _ = call(batch(2), jax.random.PRNGKey(9))
    more, _ = call(batch(4), jax.random.key(9))
    assert (some == more[:2]).all()
    other, _ = call(batch(2), jax.random.PRNGKey(10))
    assert (some != other).any()


@needs_t5x
@pytest.mark.parametrize("bound", [sampling, None])
def test_t5x_does_not_prefill_and_gets_its_choice_from_signatures(bound, monkeypatch):
    """t5x prefills where decode_fn has `initial_index` and module.decode `prefill`."""
    import inspect

    import gin

    if bound is None:
        configured = gin.external_configurable(
            adapter().speculative_sample, module="test_t5x"
        )
        with gin.config_scope("test"):
            gin.bind_parameter("test_t5x.speculative_sample.temperature", 0.0)
            gin.bind_parameter("test_t5x.speculative_sample.gamma", 2)
    else:
        configured = bound(temperature=0.0, gamma=2)
    assert "initial_index" not in inspect.signature(configured).parameters
    decoder = model(decode_fn=configured)
    asked = []
    original = type(decoder)._compute_kv_cache

    def spy(self, *args, **kwargs):
        asked.append(kwargs["prefill_decoder_prompt"])
        return original(self, *args, **kwargs)

    monkeypatch.setattr(type(decoder), "_compute_kv_cache", spy)
    from t5x.examples.t5 import network

    # A module that could prefill: t5x must still leave it to decode_fn.
    plain = network.Transformer.decode

    def decode(self, *args, prefill=False, **kwargs):
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(network.Transformer, "decode", decode)
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    try:
        tokens, _ = predict(decoder, batch())
    finally:
        gin.clear_config()
    assert asked == [False]
    assert (tokens == golden["greedy_tokens"]).all()


@needs_t5x
def test_parameters_of_the_draft_are_arguments_of_the_program():
    """No weight is a constant in what is compiled; they are read and placed once."""
    decoder = model(decode_fn=sampling(temperature=0.0))
    call = jax.jit(decoder.predict_batch_with_aux)
    text = call.lower(params("t5_1_1_target"), batch()).as_text()
    weights = len(jax.tree.leaves(params("t5_1_1_draft")))
    targets = len(jax.tree.leaves(params("t5_1_1_target")))
    assert text.split("func.func public @main")[1].split("->")[0].count("%arg") == (
        weights + targets + 1  # the inputs
    )
    assert len(text) < 2_000_000
    first = decoder._draft_references()
    assert decoder._draft_references() is first


@needs_t5x
def test_a_draft_of_another_number_of_rows_is_resized():
    weights = load_params(golden_path(FOLDERS["t5_1_1_draft"]))
    from t5x.examples.t5 import network

    wide = network.Transformer(
        network.T5Config(**shape("t5_1_1_target") | {"vocab_size": 300})
    )
    vocabulary = adapter().seqio.PassThroughVocabulary(300, eos_id=1)
    decoder = adapter().SpeculativeEncoderDecoderModel(
        wide,
        vocabulary,
        vocabulary,
        None,
        draft_checkpoint=str(golden_path(FOLDERS["t5_1_1_draft"])),
        draft_dtype="bfloat16",
    )
    table = decoder._draft_params["token_embedder"]["embedding"]
    assert table.shape == (300, 32) and table.dtype == jnp.bfloat16
    wanted = weights["token_embedder"]["embedding"].astype(jnp.bfloat16)
    assert (table[:256] == wanted).all() and (table[256:] == 0).all()


@needs_t5x
def test_unusable_arguments_are_told_in_one_line():
    from t5x import decoding, models

    cases = [
        ({"draft": "small"}, "want a draft of model"),
        ({"draft_checkpoint": None}, "'model' wants draft_checkpoint"),
        ({"draft": "bigram"}, "'bigram' wants draft_tables"),
        ({"decode_fn": decoding.beam_search}, "wants decode_fn = @speculative_sample"),
        ({"draft_checkpoint": "/nowhere"}, "no checkpoint of the draft at /nowhere"),
    ]
    for fields, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            model(**fields)
        assert "\n" not in str(error.value)
    with pytest.raises(
        ValueError, match=r"t5x[.]examples[.]t5[.]network[.]Transformer"
    ):
        adapter().SpeculativeEncoderDecoderModel(None, None, None, None, draft="lookup")
    rows = batch(1)
    for fields, message in [
        ({"topk": 5, "topp": 0.5}, "at most one of topk and topp"),
        ({"max_decode_steps": 25}, r"max_decode_steps in 1 \.\. 24"),
        ({"gamma": 0}, "gamma >= 1"),
        ({"rule": "tokn"}, "want a rule of token"),
        ({"temperature": -1.0}, "want temperature"),
    ]:
        decoder = model(draft="lookup", decode_fn=sampling(**fields))
        with pytest.raises(ValueError, match=message):
            decoder.predict_batch_with_aux(params("t5_1_1_target"), rows)
    tables = "spec_jax://pretrained/ngram.safetensors"
    decoder = model(draft="bigram", draft_tables=tables)
    with pytest.raises(ValueError, match="want tables of 256 tokens"):
        decoder.predict_batch_with_aux(params("t5_1_1_target"), rows)
    plain = model(cls=models.EncoderDecoderModel, decode_fn=sampling())
    with pytest.raises(ValueError, match="bind MODEL to that class"):
        plain.predict_batch_with_aux(params("t5_1_1_target"), rows)


@needs_t5x
def test_most_new_tokens_are_limited():
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    decode = sampling(temperature=0.0, max_decode_steps=3)
    tokens, _ = predict(model(draft="lookup", decode_fn=decode), batch())
    assert (tokens[:, :3] == golden["greedy_tokens"][:, :3]).all()
    assert (tokens[:, 3:] == 0).all()


@needs_t5x
def test_the_baseline_is_t5xs_own_decoding():
    golden = np.load(golden_path("models/t5_1_1_target/decode.npz"))
    config = T5Config(**shape("t5_1_1_target"))
    weights, inputs = params("t5_1_1_target"), batch()["encoder_input_tokens"]
    decode = adapter().temperature_sample_decoder(config, weights, max_new_tokens=24)
    assert (decode(inputs, jax.random.key(0)) == golden["greedy_tokens"]).all()
    drawn = adapter().temperature_sample_decoder(
        config, weights, temperature=2.0, max_new_tokens=24, vocab_limit=40
    )
    first, second = (np.asarray(drawn(inputs, jax.random.key(i))) for i in range(2))
    assert first.max() < 40 and (first != second).any()
    other = T5Config(**shape("t5_1_1_target"), relative_attention_num_buckets=16)
    with pytest.raises(ValueError, match="relative_attention_num_buckets = 32"):
        adapter().temperature_sample_decoder(other, weights, max_new_tokens=24)
