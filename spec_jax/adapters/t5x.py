"""Speculative decoding under t5x's own scripts, and t5x's sampling as a baseline.

The only file that imports t5x (https://github.com/google-research/t5x).
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from spec_jax.base import Decoder, Inputs, Params
from spec_jax.checkpoints import load_params
from spec_jax.core.rules import AnyRule, TokenRule
from spec_jax.core.sampling import GREEDY_TEMPERATURE, SamplingPolicy
from spec_jax.decoding.speculative import Speculative
from spec_jax.drafts import FixedLength, LengthPolicy
from spec_jax.models.t5 import T5Config, T5Decoder
from spec_jax.pairs import (
    DRAFTS,
    load_tables,
    make_rule,
    parameter_shapes,
    read_model_config,
    resolve,
)
from spec_jax.pairs.choices import draft_params, make_draft, noise_of

try:
    import seqio
    from t5x import decoding, models
    from t5x.examples.t5 import network
except ImportError as error:
    raise ImportError(
        f"spec_jax.adapters.t5x wants t5x, which does not import ({error}): install "
        "it from its repository, https://github.com/google-research/t5x"
    ) from error

START_ID = 0
"""What t5x's decoding functions feed first, whatever stands there in the inputs."""
WITH_MODEL = ("model", "chain")
WITH_TABLES = ("unigram", "bigram", "chain")
"""Of `pairs.DRAFTS`: which of them want a small model, and which tables."""
_SHAPE = [field.name for field in dataclasses.fields(network.T5Config)]


@dataclasses.dataclass(frozen=True)
class SpeculativeCache:
    """What `speculative_sample` decodes with, in the place of t5x's cache.

    Attributes:
      params: {"target": ..., "draft": ...}.
      inputs: the encoder's tokens, 0 padded.
      target: our decoder over the target's parameters.
      draft: where proposals come from, one of `pairs.DRAFTS`.
      draft_model: our decoder over the small model's, if there is one.
    """

    params: Params
    inputs: Inputs
    target: T5Decoder
    draft: str
    draft_model: T5Decoder | None


jax.tree_util.register_dataclass(
    SpeculativeCache,
    data_fields=["params", "inputs"],
    meta_fields=["target", "draft", "draft_model"],
)


def speculative_sample(
    inputs: Int[Array, "b l"],
    cache: SpeculativeCache | Any,  # t5x may hand over one of its own
    tokens_to_logits: Any,
    eos_id: int,
    decode_rng: Array | None = None,
    num_decodes: int = 1,
    cache_offset: int = 0,
    *,
    temperature: float | Float[Array | np.ndarray, "b"] = 1.0,
    topk: int = 0,
    topp: float = 0.0,
    max_decode_steps: int | None = None,
    rescale_log_probs: bool = True,
    gamma: int = 4,
    rule: AnyRule | str | None = None,
    lengths: LengthPolicy | None = None,
) -> tuple[Int[Array, "b d l"], Float[Array, "b d"]]:
    """t5x's `temperature_sample`, decoded speculatively.

    A decode_fn of `SpeculativeEncoderDecoderModel`. Names and results are t5x's; topk
    is off by default. It has no `initial_index`, by which t5x knows that it does its
    own prefill. The draft draws with the same temperature, topk and topp.

    Args:
      inputs: prompts as t5x has them: after position 0, which is not read, the tokens
        to go on from, 0 padded. A prompt ends at its first 0.
      cache: what that model makes.
      tokens_to_logits: not called.
      eos_id: ends a row.
      decode_rng: one key, new or old style; row i draws with fold_in(key, i). None
        is PRNGKey(0).
      num_decodes: d, sequences for each row of inputs.
      cache_offset: not read.
      temperature: up to 1e-4 it is argmax; one number, or one a row.
      topk: keep the k likeliest tokens, ties with the last included; 0 keeps all.
      topp: keep the smallest set of likeliest tokens of this probability; 0 keeps all.
      max_decode_steps: most new tokens of a row; by default as many as fit.
      rescale_log_probs: whether scores are log-probabilities after temperature, topk
        and topp, so 0 at temperature 0, or of the raw logits.
      gamma: most tokens drafted in a step.
      rule: how they are judged: a rule, or its name in `pairs.RULES`; None is
        `TokenRule`.
      lengths: how many of them a step drafts; None is always gamma.

    Returns:
      Tokens with their prompts, without the start token, 0 after EOS, and the summed
      log-probabilities of the new ones; of each row's d the best comes last.

    Raises:
      ValueError: if the cache is another, topk and topp are both set, or a value is
        out of range.
    """
    del tokens_to_logits, cache_offset
    if not isinstance(cache, SpeculativeCache):
        raise ValueError(
            "speculative_sample wants the cache of SpeculativeEncoderDecoderModel, got "
            f"{type(cache).__name__}: bind MODEL to that class"
        )
    if topk and topp:
        raise ValueError(
            f"want at most one of topk and topp, got topk={topk} and topp={topp}"
        )
    length = inputs.shape[1]
    if max_decode_steps is None:
        max_decode_steps = length
    elif not 0 < max_decode_steps <= length:
        raise ValueError(
            f"want max_decode_steps in 1 .. {length}, the sequence length, got "
            f"{max_decode_steps}"
        )
    rule = make_rule(rule) if isinstance(rule, str) else rule or TokenRule()
    by_row = isinstance(temperature, jax.Array | np.ndarray)
    policy = SamplingPolicy(
        temperature=1.0 if by_row else temperature, top_k=topk, top_p=topp or 1.0
    )
    sampling = None
    if by_row:
        rows = jnp.broadcast_to(temperature, inputs.shape[:1])
        sampling = {"temperature": jnp.repeat(rows, num_decodes)}
    greedy = not by_row and temperature <= GREEDY_TEMPERATURE

    def algorithm(target: Decoder, model: Decoder | None) -> Speculative:
        draft = make_draft(
            cache.draft,
            model,
            target.vocab_size,
            gamma,
            policy,
            lengths or FixedLength(),
            noise_of(rule),
            eos_id,
        )
        scored = not (greedy and rescale_log_probs)
        return Speculative(
            target, draft, policy, rule, eos_id, pad_id=0, logprobs=scored
        )

    prompt = jnp.repeat(inputs, num_decodes, axis=0).at[:, 0].set(START_ID)
    given = jnp.cumprod(prompt[:, 1:] != 0, axis=1).sum(1)
    target, model, prompted = cache.target, cache.draft_model, given.any()
    begin = algorithm(
        _Prefill(target, prompted), None if model is None else _Prefill(model, prompted)
    )
    state = begin.init(
        cache.params,
        jnp.repeat(cache.inputs, num_decodes, axis=0),
        prompt,
        1 + given,
        _threefry(decode_rng),
        jnp.full_like(given, max_decode_steps),
        length + 1,
        sampling,
    )
    # `generate` leaves prompts out of what it returns and makes room for the widest
    # prompt and the most new tokens together, twice what t5x's result holds.
    decode = algorithm(target, model)
    state = jax.lax.while_loop(
        lambda state: ~state.done.all(),
        lambda state: decode.step(cache.params, state)[0],
        state,
    )
    position = jnp.arange(length + 1)
    written = position < state.length[:, None]
    logprobs = state.policy_logprobs if rescale_log_probs else state.logprobs
    scores = jnp.zeros(given.shape)
    if logprobs is not None:
        new = written & (position >= state.prompt_length[:, None])
        scores = jnp.where(new, logprobs, 0.0).sum(1)
    tokens = jnp.where(written, state.tokens, 0)[:, 1:]
    tokens = tokens.reshape(-1, num_decodes, length)
    scores = scores.reshape(-1, num_decodes)
    order = jnp.argsort(scores, axis=1)
    return (
        jnp.take_along_axis(tokens, order[..., None], 1),
        jnp.take_along_axis(scores, order, 1),
    )


class SpeculativeEncoderDecoderModel(models.EncoderDecoderModel):
    """t5x's T5, decoded by our network and loop with a draft.

    Everything but decoding is t5x's: checkpoints, training, scoring. t5x restores
    and places the target's parameters. The draft's are read from their checkpoint at
    the first prediction and placed whole on every device of the mesh that predicts.
    They are arguments of t5x's compiled predict step, not constants in it: jit turns
    a reference (jax.new_ref) it closes over into one, where it would embed an array.

    Args:
      *args: as of t5x's EncoderDecoderModel; its module must be the Transformer of
        t5x.examples.t5.network.
      draft: where proposals come from, one of `pairs.DRAFTS`: "model" and "chain" want
        a draft_checkpoint, "unigram", "bigram" and "chain" draft_tables, "lookup"
        nothing.
      draft_checkpoint: the small model's, of any kind that `load_params` reads.
      draft_config: its shape; None reads it from the folder. Its table gets as many
        rows as the target's.
      draft_dtype: of its parameters and activations; None is that of the target's
        activations.
      draft_tables: what `spec-jax data ngram` wrote, with as many tokens as the
        target's table has rows.
      decode_fn: `speculative_sample`, as it is or with arguments bound.
      **kwargs: as of t5x's EncoderDecoderModel.

    Raises:
      ValueError: if the module or decode_fn cannot be used, or a draft lacks what it
        wants.
    """

    def __init__(
        self,
        *args,
        draft: str = "model",
        draft_checkpoint: str | None = None,
        draft_config: T5Config | None = None,
        draft_dtype: Any = None,
        draft_tables: str | None = None,
        decode_fn: Callable = speculative_sample,
        **kwargs,
    ):
        super().__init__(*args, decode_fn=decode_fn, **kwargs)
        if "gamma" not in inspect.signature(decode_fn).parameters:
            raise ValueError(
                "SpeculativeEncoderDecoderModel wants decode_fn = @speculative_sample, "
                f"got {getattr(decode_fn, '__name__', decode_fn)}, which cannot read "
                "its cache"
            )
        if draft not in DRAFTS:
            raise ValueError(f"want a draft of {', '.join(DRAFTS)}, got {draft!r}")
        for wanted, name, value in (
            (WITH_MODEL, "draft_checkpoint", draft_checkpoint),
            (WITH_TABLES, "draft_tables", draft_tables),
        ):
            if draft in wanted and value is None:
                raise ValueError(f"the draft {draft!r} wants {name}, got none")
        self._draft = draft
        self._draft_tables = draft_tables
        self._target = T5Decoder(_config_of(self.module))
        self._draft_model = None
        if draft in WITH_MODEL:
            self._draft_folder = resolve(draft_checkpoint)
            config = draft_config or read_model_config(self._draft_folder, "draft")
            config = dataclasses.replace(
                config,
                vocab_size=self._target.vocab_size,
                dtype=draft_dtype or self._target.config.dtype,
            )
            self._draft_model = T5Decoder(config)
        self._placed = {}

    @functools.cached_property
    def _draft_params(self) -> Params:
        """The draft's parameters as host arrays, read when first asked for."""
        model, tables = None, {}
        if self._draft in WITH_MODEL:
            config = self._draft_model.config
            model = load_params(
                self._draft_folder,
                parameter_shapes(config),
                "draft",
                config.dtype,
                resize_vocabulary=True,
            )
        if self._draft in WITH_TABLES:
            tables = load_tables(resolve(self._draft_tables))
            tokens, rows = len(tables["unigram"]), self._target.vocab_size
            if tokens != rows:
                raise ValueError(
                    f"want tables of {rows} tokens, the rows of the target's table, "
                    f"got {tokens} in {self._draft_tables}"
                )
        return jax.tree.map(np.asarray, draft_params(self._draft, model, tables))

    def _draft_references(self) -> Params:
        """References to the draft's parameters on the devices of the current mesh."""
        mesh = jax.interpreters.pxla.thread_resources.env.physical_mesh
        if mesh not in self._placed:
            whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
            place = functools.partial(
                jax.device_put, device=None if mesh.empty else whole
            )
            with jax.ensure_compile_time_eval():  # the caller is being traced
                self._placed[mesh] = jax.tree.map(
                    lambda x: jax.new_ref(place(x)), self._draft_params
                )
        return self._placed[mesh]

    def _compute_kv_cache(
        self,
        params,
        encoded_inputs,
        encoder_input_tokens,
        decoder_input_tokens,
        prefill_decoder_prompt=False,
    ):
        """What `speculative_sample` needs; t5x's encoder output is not used."""
        del encoded_inputs, decoder_input_tokens, prefill_decoder_prompt
        draft = jax.tree.map(lambda reference: reference[...], self._draft_references())
        cache = SpeculativeCache(
            {"target": params, "draft": draft},
            encoder_input_tokens,
            self._target,
            self._draft,
            self._draft_model,
        )
        return cache, None


def temperature_sample_decoder(
    config: T5Config,
    params: Params,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    max_new_tokens: int,
    vocab_limit: int | None = None,
    eos_id: int = 1,
) -> Callable[[Int[Array | np.ndarray, "b s"], Array], Int[Array, "b m"]]:
    """t5x's own decoding of a model: its network, loop and `temperature_sample`.

    Args:
      config: the network's shape and dtype.
      params: its parameters, in t5x's tree.
      temperature: see `SamplingPolicy`, also for top_k, top_p and vocab_limit.
      max_new_tokens: m, columns of the result.
      eos_id: ends a row.

    Returns:
      A function of encoder tokens and one key that gives new tokens, 0 after EOS;
      compiled once for each shape of tokens.

    Raises:
      ValueError: if the config says what t5x's network does not have.
    """
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(T5Config)
        if field.name.startswith("relative")
    }
    for name, value in defaults.items():
        if getattr(config, name) != value:
            raise ValueError(
                f"want {name} = {value}, which t5x's network has fixed, got "
                f"{getattr(config, name)}"
            )
    SamplingPolicy(temperature=temperature, top_k=top_k, top_p=top_p)

    def limit(logits, state):
        del state
        return jnp.where(jnp.arange(logits.shape[-1]) < vocab_limit, logits, -1e7)

    vocabulary = seqio.PassThroughVocabulary(config.vocab_size, eos_id=eos_id)
    model = models.EncoderDecoderModel(
        network.Transformer(
            network.T5Config(**{name: getattr(config, name) for name in _SHAPE})
        ),
        vocabulary,
        vocabulary,
        optimizer_def=None,
        decode_fn=functools.partial(
            decoding.temperature_sample,
            temperature=temperature,
            topk=top_k,
            topp=top_p if top_p < 1 else 0.0,
            logit_callback_fn=None if vocab_limit is None else limit,
        ),
    )

    @jax.jit
    def predict(params, inputs, key):
        start = jnp.zeros((inputs.shape[0], max_new_tokens), jnp.int32)
        batch = {"encoder_input_tokens": inputs, "decoder_input_tokens": start}
        return model.predict_batch_with_aux(params, batch, rng=key)[0]

    return lambda inputs, key: predict(params, inputs, key)


@dataclasses.dataclass(frozen=True)
class _Prefill:
    """A decoder that writes a prompt only if a row has one.

    Attributes:
      decoder: whose cache is written.
      needed: whether one has; known on the device alone.
    """

    decoder: Decoder
    needed: Bool[Array, ""]

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size

    @property
    def max_length(self) -> int | None:
        return self.decoder.max_length

    def init_cache(self, params, inputs, batch, max_length):
        return self.decoder.init_cache(params, inputs, batch, max_length)

    def extend(self, params, cache, tokens, start):
        """The cache alone: nobody asks for a prefill's logits."""
        return None, jax.lax.cond(
            self.needed,
            lambda: self.decoder.extend(params, cache, tokens, start)[1],
            lambda: cache,
        )


def _config_of(module: Any) -> T5Config:
    """Our config of t5x's network."""
    if not isinstance(module, network.Transformer):
        raise ValueError(
            "SpeculativeEncoderDecoderModel wants the module of "
            f"t5x.examples.t5.network.Transformer, got {type(module).__name__}"
        )
    fields = {name: getattr(module.config, name) for name in _SHAPE}
    return T5Config(**fields | {"dropout_rate": 0.0})


def _threefry(key: Array | None) -> Array:
    """A key of either style as one of our generator."""
    if key is None:
        key = jax.random.PRNGKey(0)
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    # Keys of rbg, which hardware has, are two of threefry in a row.
    return jax.random.wrap_key_data(key[..., :2], impl="threefry2x32")
