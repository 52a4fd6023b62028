"""A tiny pair on disk, and a command line that runs in this process."""

import dataclasses
import io
import sys

import jax
import numpy as np
import pytest

from spec_jax.cli.main import main
from spec_jax.data.samples import load_samples
from spec_jax.data.vocabulary import train_vocabulary
from spec_jax.models.t5 import T5Config
from spec_jax.pairs import parameter_shapes, save_model

TARGET = T5Config(
    vocab_size=640,
    emb_dim=16,
    num_heads=2,
    head_dim=8,
    mlp_dim=32,
    num_encoder_layers=1,
    num_decoder_layers=1,
)
DRAFT = dataclasses.replace(TARGET, emb_dim=8, num_heads=1)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a command line did."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def vocabulary_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocabulary.model"
    texts = [text for row in load_samples("translation") for text in row.values()]
    train_vocabulary(texts, path, 600)
    return path


@pytest.fixture(scope="session")
def pair_flags(tmp_path_factory, vocabulary_path):
    """Flags that choose a pair with random weights, in float32."""
    folder = tmp_path_factory.mktemp("pair")
    rng = np.random.default_rng(0)
    for name, config in {"target": TARGET, "draft": DRAFT}.items():
        params = jax.tree.map(
            lambda x: jax.numpy.asarray(0.3 * rng.normal(size=x.shape)),
            parameter_shapes(config),
        )
        save_model(folder / name, params, config, "float32")
    return [
        "--gin_file=pairs/checkpoints.gin",
        f"--gin.TARGET_CHECKPOINT={folder / 'target'}",
        f"--gin.DRAFT_CHECKPOINT={folder / 'draft'}",
        f"--gin.VOCABULARY={vocabulary_path}",
        "--gin.DTYPE=float32",
    ]


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs a command line; `stdin` is bytes, as from a pipe."""
    # Restores what the command sets, also where nothing was set before.
    monkeypatch.setenv("PJRT_NPROC", "1")
    monkeypatch.delenv("PJRT_NPROC")
    monkeypatch.setenv("COLUMNS", "100")

    def call(*argv, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        status = main([str(word) for word in argv])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def fails(run):
    """Runs a command line that must end with one clear line; returns that line."""

    def call(*argv, stdin=b""):
        outcome = run(*argv, stdin=stdin)
        assert outcome.status == 2, outcome
        lines = outcome.err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("error: "), outcome.err
        assert "Traceback" not in outcome.err
        return lines[0]

    return call
