"""`spec-jax compile`: what it refuses, and what it does not compile again."""

import importlib.metadata
import json

from spec_jax.experiments import tpu_compile
from spec_jax.experiments.tpu_compile import CompileRecord, CompileSettings


def record(name):
    settings = CompileSettings()
    fields = {key: value for key, value in vars(settings).items() if key != "programs"}
    return CompileRecord(
        pair="t5_1_1_xxl+small",
        program=name,
        dtype="bfloat16",
        hbm={"arguments": 1},
        hbm_chip=2,
        bytes_read=12 * 10**9,
        bytes_written=0,
        fewest_bytes=12 * 10**9,
        moved={},
        operations=0,
        cycles=0,
        copies=(),
        collectives=(),
        compile_seconds=1.0,
        versions={},
        **fields,
    )


def test_programs_that_are_there_are_not_compiled_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr("spec_jax.cli.compile.topology_devices", lambda name: ())
    monkeypatch.setattr("spec_jax.cli.compile.compile_program", None)
    path = tmp_path / "compile.jsonl"
    text = "".join(record(name).to_json() + "\n" for name in ("plain", "draft"))
    path.write_text(text, "utf-8")
    outcome = run(
        "compile",
        "--gin_file=pairs/t5_1_1_xxl_small.gin",
        "--gin.PROGRAMS=('plain', 'draft')",
        f"--output_file={path}",
    )
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("t5_1_1_xxl+small") == 4
    assert path.read_text("utf-8") == text
    assert json.loads(text.splitlines()[0])["kind"] == "compile"


def test_without_libtpu_one_line_says_what_to_install(run, tmp_path, monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    tpu_compile.topology_devices.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", version)
    path = tmp_path / "compile.jsonl"
    outcome = run("compile", f"--output_file={path}")
    assert outcome.status == 2
    assert "pip install 'spec_jax[compile]'" in outcome.err
    assert outcome.err.count("\n") == 1
    assert not path.exists()


def test_an_unknown_chip_is_named(run):
    outcome = run("compile", "--topology=v9:2x2")
    assert outcome.status == 2
    assert "v4:2x2x1" in outcome.err and outcome.err.count("\n") == 1
