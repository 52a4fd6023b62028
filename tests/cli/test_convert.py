"""`spec-jax convert` through the command line: what it does, and what it refuses."""

import json
import os
import pathlib
import shutil

import pytest

from tests.golden import golden_path

LEGACY = "t5x_draft/legacy_float32"
KERNEL = "target.decoder.layers_1.mlp.wi_0.kernel"


@pytest.fixture
def legacy(tmp_path):
    source = golden_path(f"{LEGACY}/checkpoint_1000")
    return pathlib.Path(shutil.copytree(source, tmp_path / "in/checkpoint_1000"))


def test_one_line_says_what_was_done(run, tmp_path):
    source = golden_path(LEGACY)
    done = run("convert", source, tmp_path / "a", "--to=own", "--dtype=bfloat16")
    assert done.status == 0, done.err
    assert done.out == (
        f"{tmp_path}/a: 55,744 parameters in bfloat16 (111.5 kB), from "
        f"{source}/checkpoint_1000 (t5x's legacy format)\n"
    )
    assert sorted(os.listdir(tmp_path / "a")) == [
        *("params.safetensors", "t5_config.json"),
    ]


def test_there_and_back(run, tmp_path):
    start = golden_path("hf/t5_1_0_relu_tied")
    for words in (
        (start, tmp_path / "t5x", "--to=t5x", "--step=7"),
        (tmp_path / "t5x", tmp_path / "own", "--to=own"),
        ("--to", "huggingface", tmp_path / "own", tmp_path / "hf"),
    ):
        assert run("convert", *words).status == 0
    assert (tmp_path / "t5x/checkpoint_7/checkpoint").is_file()
    ours, theirs = (
        (folder / "model.safetensors").read_bytes()
        for folder in (tmp_path / "hf", start)
    )
    assert ours == theirs


def test_every_form_is_told_by_its_absolute_path(run, tmp_path, monkeypatch):
    source = golden_path(LEGACY)
    monkeypatch.chdir(tmp_path)
    for form, name in {"own": "a", "hf": "b", "t5x": "c"}.items():
        done = run("convert", source, name, f"--to={form}")
        step = "/checkpoint_1000" if form == "t5x" else ""
        assert done.out.startswith(f"{tmp_path}/{name}{step}: "), done.err
    assert (tmp_path / "b/config.json").is_file()


def test_the_shipped_draft_with_its_vocabulary(run, tmp_path):
    done = run("convert", "spec_jax://pretrained/draft", tmp_path / "a", "--to=t5x")
    assert ", with vocabulary.model, from " in done.out
    names = os.listdir(tmp_path / "a/checkpoint_0")
    assert "vocabulary.model" in names and "checkpoint" in names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere", "out", "--to=own"], "no checkpoint at"),
        (["in", "out"], "convert needs --to, for example: spec-jax convert"),
        (["in", "--to=own"], "want SOURCE and DESTINATION, got 1 arguments"),
        (["in", "a", "b", "--to=own"], "got 3 arguments"),
        (
            ["in", "out", "--to=huggingfase"],
            "want --to as one of own, t5x, huggingface, got huggingfase; did you mean "
            "huggingface?",
        ),
        (["in", "out", "--to=own", "--dtype=fp16"], "want --dtype as one of float32"),
        (["in", "out", "--to=own", "--step=3"], "a step is t5x's alone"),
        (["in", "out", "--to=t5x", "--step=x"], "flag --step=x"),
        (["in", "out", "--to=t5x", "--steps=3"], "did you mean --step?"),
        (["in", "in", "--to=own"], "exists; a checkpoint is never overwritten"),
        (["in", "in", "--to=t5x"], "checkpoint_1000 exists"),
        (["in", "full/a", "--to=own"], "full is not a folder"),
        (["in", "gs://bucket/a", "--to=t5x"], "want a local path, got a URL"),
        (["gguf.gguf", "out", "--to=own"], "gguf.gguf"),
        (["llama", "out", "--to=own"], "model_type 'llama'; wanted 't5' or 'mt5'"),
        (["umt5", "out", "--to=own"], "model_type 'umt5': every layer has its own"),
        (["pickled", "out", "--to=own"], "pytorch_model.bin is not read"),
        (["other", "out", "--to=own"], "wanted those of a T5"),
    ],
)
def test_bad_input(fails, legacy, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("full").write_text("")
    pathlib.Path("gguf.gguf").write_bytes(b"GGUF\3\0\0\0")
    shutil.copytree(golden_path("causal_lm/llama"), "llama")
    for name, config in {"umt5": {"model_type": "umt5"}, "pickled": {}}.items():
        os.mkdir(name)
        pathlib.Path(name, "config.json").write_text(json.dumps(config))
        pathlib.Path(name, "pytorch_model.bin").write_text("")
    pathlib.Path("umt5/pytorch_model.bin").rename("umt5/model.safetensors")
    shutil.copy("llama/model.safetensors", "umt5")
    shutil.copytree("llama", "other")
    pathlib.Path("other/model.safetensors").rename("other/params.safetensors")
    pathlib.Path("other/config.json").unlink()
    before = sorted(tmp_path.rglob("*"))
    assert message in fails("convert", *words)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("form", ["own", "t5x", "huggingface"])
@pytest.mark.parametrize("what", ["checkpoint", f"{KERNEL}/0.0", f"{KERNEL}/.zarray"])
def test_cut_files(fails, legacy, tmp_path, what, form):
    file = legacy / what
    file.write_bytes(file.read_bytes()[:20])
    line = fails("convert", legacy, tmp_path / "new/out", f"--to={form}")
    # Hugging Face's name of it holds that too.
    assert ("checkpoint is cut" if what == "checkpoint" else "wi_0") in line
    assert os.listdir(tmp_path) == ["in"]


def test_a_folder_that_cannot_be_written(fails, legacy, tmp_path, monkeypatch):
    """Tests may run as root, who may write anywhere."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    line = fails("convert", legacy, tmp_path / "out", "--to=own")
    assert f"no permission to write in {tmp_path}" in line
    assert os.listdir(tmp_path) == ["in"]


def test_a_full_disk(fails, legacy, tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for form in ("own", "t5x", "huggingface"):
        line = fails("convert", legacy, tmp_path / "out", f"--to={form}")
        assert "No space left on device" in line
        assert os.listdir(tmp_path) == ["in"]
