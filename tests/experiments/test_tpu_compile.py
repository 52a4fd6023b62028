"""The tiny pair compiled for TPU v4, and what its optimized programs must not do."""

import dataclasses
import importlib.metadata
import re

import jax
import jax.numpy as jnp
import pytest

from spec_jax.decoding.tpu import COMPILER_OPTIONS
from spec_jax.experiments.chips import chip_of
from spec_jax.experiments.hlo import parse_module
from spec_jax.experiments.tpu_compile import (
    CompileRecord,
    CompileSettings,
    compile_program,
    fewest_bytes,
    topology_devices,
)
from spec_jax.experiments.traffic import count_traffic
from spec_jax.models.kv_cache import update_rows
from spec_jax.models.t5 import T5Config, T5Decoder
from spec_jax.pairs import load_pair

TOPOLOGY = "v4:2x2x1"
TARGET = T5Config(
    vocab_size=4096,
    emb_dim=256,
    num_heads=8,
    head_dim=64,
    mlp_dim=512,
    num_encoder_layers=1,
    num_decoder_layers=1,
    dtype="bfloat16",
)
DRAFT = dataclasses.replace(TARGET, emb_dim=128, num_heads=2)
SETTINGS = CompileSettings(topology=TOPOLOGY, gamma=3, input_length=64, new_tokens=32)


def tiny_pair():
    return load_pair(
        "target",
        "draft",
        "vocabulary",
        target_config=TARGET,
        draft_config=DRAFT,
        name="tiny",
        abstract=True,
    )


def on_chip(shape, dtype):
    sharding = jax.sharding.SingleDeviceSharding(topology_devices(TOPOLOGY)[0])
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def compiled(function, *arguments, donated=()):
    made = jax.jit(function, donate_argnums=donated).lower(*arguments).compile()
    return count_traffic(parse_module(made.as_text()))


@pytest.mark.needs_libtpu
def test_a_step_copies_nothing_and_fits():
    record = compile_program(tiny_pair(), SETTINGS, "speculative")
    assert record.copied == ()
    assert record.collectives == ()
    assert record.moved["target weights"] >= 0.9 * weights("target")
    assert 0 < record.hbm_used < record.hbm_chip
    assert record.operations > 2 * (weights("target") // 2 - 4096 * 256)
    assert CompileRecord.from_json(record.to_json()) == record


def wide_pair():
    """Of T5 1.1 XXL's sizes but for its depth, and small: enough to fill a chip."""
    sizes = {"vocab_size": 32128, "num_encoder_layers": 1}
    return load_pair(
        "target",
        "draft",
        "vocabulary",
        target_config=dataclasses.replace(
            TARGET, **sizes, emb_dim=4096, num_heads=64, mlp_dim=10240
        ),
        draft_config=dataclasses.replace(
            TARGET,
            **sizes,
            emb_dim=512,
            num_heads=6,
            mlp_dim=1024,
            num_decoder_layers=8,
        ),
        name="wide",
        abstract=True,
    )


@pytest.mark.needs_libtpu
@pytest.mark.slow
def test_a_generation_copies_no_weight_and_no_cache(monkeypatch):
    """Which the check would see: without what `layouts` does it finds both."""
    record = compile_program(wide_pair(), CompileSettings(), "generate")
    assert record.copied == ()
    assert record.moved["carried"] > 0
    assert record.cycles > 0
    assert 0 < record.hbm_used < record.hbm_chip

    monkeypatch.setattr("spec_jax.models.attention.keep_kernel", lambda x: x)
    monkeypatch.setattr("spec_jax.models.kv_cache.as_stored", lambda cache: cache)
    jax.clear_caches()
    record = compile_program(wide_pair(), CompileSettings(), "generate")
    sources = [one["source"] for one in record.copied]
    assert any("self_attention']['query']" in name for name in sources), sources
    assert any(name.startswith("carried") for name in sources), sources


@pytest.mark.needs_libtpu
def test_a_product_of_one_row_is_left_to_the_matrix_units():
    """As a sum of products it takes three times as long as its weight's way."""

    def product(x, w):
        return x @ w

    shapes = on_chip((1, 4096), jnp.bfloat16), on_chip((4096, 8192), jnp.bfloat16)
    lowered = jax.jit(product).lower(*shapes)
    summed, ours = (
        count_traffic(parse_module(lowered.compile(options).as_text())).cycles
        for options in (dict.fromkeys(COMPILER_OPTIONS, "true"), COMPILER_OPTIONS)
    )
    chip = chip_of(TOPOLOGY)
    way = shapes[1].size * 2 / chip.bandwidth * chip.clock
    assert ours < 1.5 * way
    assert summed > 3 * way


@pytest.mark.needs_libtpu
@pytest.mark.parametrize("program", ["speculative", "generate"])
def test_over_four_chips_no_vocabulary_is_gathered(program):
    settings = dataclasses.replace(SETTINGS, num_partitions=4)
    record = compile_program(tiny_pair(), settings, program)
    assert record.collectives
    activations = (SETTINGS.gamma + 1) * TARGET.emb_dim * 4
    assert max(one["bytes"] for one in record.collectives) <= activations
    vocabulary = re.compile(rf"\[[\d,]*\b({TARGET.vocab_size}|4095)\b")
    assert not any(vocabulary.search(one["shape"]) for one in record.collectives)
    assert record.copied == ()


@pytest.mark.needs_libtpu
@pytest.mark.parametrize("rows", [1, 8])
def test_rows_are_written_in_place(rows):
    """By their bytes, beside a select over the cache, which writes all of it."""

    def select(cache, new, start):
        at = (jnp.arange(cache.shape[2]) - start[:, None])[:, None, :, None]
        return jnp.where(at == 0, new, cache)

    cache = on_chip((rows, 64, 2048, 64), jnp.bfloat16)
    new = on_chip((rows, 64, 1, 64), jnp.bfloat16)
    start = on_chip((rows,), jnp.int32)
    size = cache.size * cache.dtype.itemsize
    ours = compiled(update_rows, cache, new, start, donated=0)
    assert ours.bytes < size / 4
    assert not ours.copies
    theirs = compiled(select, cache, new, start, donated=0)
    assert theirs.bytes >= 2 * size
    assert theirs.copies


@pytest.mark.needs_libtpu
def test_the_check_fails_on_a_cast_weight_and_on_a_cache_that_is_not_donated():
    weight = on_chip((8192, 8192), jnp.bfloat16)
    cast = compiled(lambda w: w.astype(jnp.float32), weight)
    assert [one.source for one in cast.copies] == ["w"]
    cache = on_chip((1, 64, 2048, 64), jnp.bfloat16)
    new, start = on_chip((1, 64, 1, 64), jnp.bfloat16), on_chip((1,), jnp.int32)
    kept = compiled(update_rows, cache, new, start)
    assert [one.source for one in kept.copies] == ["cache"]


@pytest.mark.needs_libtpu
def test_a_product_moves_what_it_must():
    """Three products in a row: every matrix once, and the activations."""
    size = 4096

    def layers(x, weights):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x

    weights = [on_chip((size, size), jnp.bfloat16)] * 3
    traffic = compiled(layers, on_chip((8, size), jnp.bfloat16), weights)
    matrices = 3 * size * size * 2
    assert matrices <= traffic.bytes <= 1.01 * matrices
    assert traffic.operations == pytest.approx(3 * 2 * 8 * size * size, rel=0.01)


@pytest.mark.needs_libtpu
def test_a_draft_whose_heads_do_not_divide_is_whole_on_each_chip():
    config = dataclasses.replace(DRAFT, num_heads=3)
    pair = dataclasses.replace(tiny_pair(), draft=T5Decoder(config))
    pair.params["draft"] = pair.draft.param_shapes()
    settings = dataclasses.replace(SETTINGS, num_partitions=4)
    record = compile_program(pair, settings, "draft")
    alone = compile_program(pair, SETTINGS, "draft")
    assert record.fewest_bytes == alone.fewest_bytes
    assert record.moved["draft weights"] > 0
    assert not any(name.startswith("target") for name in record.moved)
    assert record.collectives == ()


def weights(name):
    pair = tiny_pair()
    leaf = on_chip((), jnp.int32)
    params = jax.tree.map(lambda x: on_chip(x.shape, x.dtype), pair.params[name])
    return fewest_bytes(params, leaf)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="want a topology such as v4:2x2x1"):
        CompileSettings(topology="v9:2x2")
    with pytest.raises(ValueError, match="want PROGRAMS of plain"):
        CompileSettings(programs=("prefill",))
    with pytest.raises(ValueError, match="want gamma >= 1"):
        CompileSettings(gamma=0)


def test_without_libtpu_it_is_said_what_to_install(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    topology_devices.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ValueError, match="want libtpu"):
        topology_devices(TOPOLOGY)


@pytest.mark.needs_libtpu
def test_an_unknown_shape_is_said():
    with pytest.raises(ValueError, match="want a topology that libtpu knows"):
        topology_devices("v4:3x5x7")
