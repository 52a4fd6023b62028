"""Decodes a tiny pair on meshes of 8 virtual devices and prints what came out.

A process of its own: the number of devices is fixed when JAX starts. Its one argument
is a folder for checkpoints; its last line of output is JSON.
"""

import json
import pathlib
import re
import sys

import jax
import numpy as np

from spec_jax import ModelDraft, SamplingPolicy, Speculative, generate, stream, trace
from spec_jax.checkpoints import load_params, orbax, save_weights
from spec_jax.core.rules import BlockRule
from spec_jax.decoding.sharded import ShardedStep
from spec_jax.drafts import BigramDraft, PromptLookupDraft
from spec_jax.models.t5 import T5Config, T5Decoder
from spec_jax.partitioning import (
    ShardedDecoder,
    make_mesh,
    place,
    replicated,
    replicated_rules,
    standard_logical_axis_rules,
)
from spec_jax.partitioning.placement import bytes_per_device
from spec_jax.training.tables import count_tables

SHAPE = {
    "vocab_size": 520,
    "emb_dim": 16,
    "num_heads": 8,
    "head_dim": 4,
    "mlp_dim": 32,
    "num_encoder_layers": 1,
    "mlp_activations": ("gelu", "linear"),
    "logits_via_embedding": False,
    "dtype": "float32",
}
ROWS, NEW, GAMMA, LIMIT = 6, 10, 3, 510
TARGET = T5Decoder(T5Config(num_decoder_layers=2, **SHAPE))
DRAFT = T5Decoder(T5Config(num_decoder_layers=1, **SHAPE))


def random_params(decoder, seed):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (0.4 * rng.normal(size=leaf.shape)).astype(np.float32),
        decoder.param_shapes(),
    )


# The draft's parts are the target's, so that some of what it proposes is accepted.
PARAMS = {"target": random_params(TARGET, 0), "draft": random_params(DRAFT, 0)}
for part in ("token_embedder", "encoder"):
    PARAMS["draft"][part] = PARAMS["target"][part]
for part in ("logits_dense", "layers_0", "relpos_bias"):
    PARAMS["draft"]["decoder"][part] = PARAMS["target"]["decoder"][part]


def policy(temperature):
    return SamplingPolicy(temperature=temperature, vocab_limit=LIMIT)


def algorithm(target, draft, temperature):
    same = policy(temperature)
    return Speculative(target, ModelDraft(draft, same, GAMMA), same)


def on_mesh(mesh, parameter_partitioning_dims=1):
    rules = standard_logical_axis_rules(1, parameter_partitioning_dims)
    target = ShardedDecoder(TARGET, mesh, rules)
    draft = ShardedDecoder(DRAFT, mesh, replicated_rules())
    params = {
        "target": target.place(PARAMS["target"]),
        "draft": draft.place(PARAMS["draft"]),
    }
    return target, draft, params


def arguments(rows):
    inputs = np.random.default_rng(1).integers(2, LIMIT, (rows, 8)).astype(np.int32)
    return inputs, np.zeros((rows, 1), np.int32), jax.random.key(7)


def decoded(target, draft, params, temperature, rows=ROWS):
    return decoded_by(algorithm(target, draft, temperature), params, rows)


def with_other_drafts(target, params, tables):
    """A table's tokens judged by blocks at temperature 1, and copies at 0."""
    plans = {
        "bigram": Speculative(
            target, BigramDraft(LIMIT, policy(1.0), GAMMA), policy(1.0), BlockRule()
        ),
        "lookup": Speculative(target, PromptLookupDraft(GAMMA), policy(0.0)),
    }
    drafts = {"bigram": tables, "lookup": None}
    return {
        name: decoded_by(plan, {"target": params, "draft": drafts[name]})
        for name, plan in plans.items()
    }


def decoded_by(plan, params, rows=ROWS):
    out = generate(plan, params, *arguments(rows), max_new_tokens=NEW)
    return {
        "tokens": np.asarray(out.tokens).tolist(),
        "histogram": np.asarray(out.stats.histogram).tolist(),
    }


def watched(target, draft, params):
    """The same through `trace` and `stream`."""
    plan = algorithm(target, draft, 0.0)
    given = (plan, params, *arguments(ROWS))
    out, infos = trace(*given, max_new_tokens=NEW, num_steps=NEW)
    rows = [[] for _ in range(ROWS)]
    for pieces in stream(*given, max_new_tokens=NEW):
        for row, piece in zip(rows, pieces, strict=True):
            row += piece.tolist()
    return {
        "trace": np.asarray(out.tokens).tolist(),
        "emitted": np.asarray(infos.num_emitted).sum(0).tolist(),
        "stream": rows,
    }


def step_program(target, draft, params, temperature):
    """The collectives of a compiled step, and where its state lies."""
    inputs, prompt, key = arguments(ROWS + 2)
    one = np.ones(ROWS + 2, np.int32)
    programs = ShardedStep(algorithm(target, draft, temperature), NEW + 1)
    state = programs.start(params, inputs, prompt, one, key, NEW * one, None)
    program = programs.lower(params, state).compile()
    cache = state.target_cache.own[0][0]
    program(params, state)
    return {
        "collectives": collectives(program.as_text()),
        "cache": str(cache.sharding.spec),
        "tokens": str(state.tokens.sharding.spec),
        "donated": cache.is_deleted(),
    }


def collectives(text):
    """[operation, elements of its largest result] of each collective of an HLO text."""
    kinds = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    found = []
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({kinds})(?:-start)?\(", line)
        if match:
            shapes = re.findall(r"\[([\d,]*)\]", match[1])
            sizes = [
                np.prod([int(n) for n in shape.split(",") if n]) for shape in shapes
            ]
            found.append([match[2], int(max(sizes))])
    return found


def restored(folder, meshes):
    """Of checkpoints saved on one mesh and read on another: whether they are equal."""
    params = PARAMS["draft"]
    save_weights(folder / "params.safetensors", params)
    found = {}
    for name, mesh in meshes.items():
        orbax.save(folder / name, ShardedDecoder(DRAFT, mesh).place(params))
    paths = [folder / "params.safetensors", *(folder / name for name in meshes)]
    for path in paths:
        for name, mesh in meshes.items():
            wanted = ShardedDecoder(DRAFT, mesh).place(DRAFT.param_shapes())
            got = load_params(path, wanted)
            same = jax.tree.map(
                lambda a, b, c: np.array_equal(a, b) and a.sharding == c.sharding,
                got,
                params,
                wanted,
            )
            found[f"{path.name} on {name}"] = all(jax.tree.leaves(same))
    return found


def main(folder):
    eight = {f"{8 // n}x{n}": make_mesh(n) for n in (1, 2, 8)}
    fewer = {
        f"{n // m}x{m}": make_mesh(m, devices=jax.devices()[:n])
        for n, m in ((1, 1), (2, 1), (4, 4))
    }
    report = {"one": {}, "meshes": {}, "batch_1": {}}
    for temperature in (0.0, 1.0):
        report["one"][temperature] = decoded(TARGET, DRAFT, PARAMS, temperature)
    report["one"]["batch 1"] = decoded(TARGET, DRAFT, PARAMS, 0.0, rows=1)
    for name, mesh in (eight | fewer).items():
        sharded = on_mesh(mesh)
        temperatures = (0.0, 1.0) if name in eight else (0.0,)
        report["meshes"][name] = {one: decoded(*sharded, one) for one in temperatures}
        if name in ("8x1", "1x8"):
            report["batch_1"][name] = decoded(*sharded, 0.0, rows=1)
    report["steps"] = {
        f"{name} at {temperature}": step_program(*on_mesh(eight[name]), temperature)
        for name, temperature in (
            *((name, 0.0) for name in eight),
            ("8x1", 1.0),
            ("1x8", 1.0),
        )
    }
    report["watched"] = watched(*on_mesh(eight["4x2"]))
    report["restored"] = restored(folder, eight)
    divided = on_mesh(eight["4x2"], parameter_partitioning_dims=2)
    report["embed divided"] = decoded(*divided, 1.0)
    tables = count_tables(report["one"][1.0]["tokens"], LIMIT)
    target, _, params = on_mesh(eight["4x2"])
    report["other drafts"] = [
        with_other_drafts(TARGET, PARAMS["target"], tables),
        with_other_drafts(
            target, params["target"], place(tables, replicated(eight["4x2"]))
        ),
    ]
    report["bytes"] = {
        "whole": 4 * sum(leaf.size for leaf in jax.tree.leaves(PARAMS["target"])),
        "1x8": bytes_per_device(on_mesh(eight["1x8"])[2]["target"]),
        "embed divided": bytes_per_device(divided[2]["target"]),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
