"""Every shipped gin file is parsed and dry-run, each in a fresh process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spec_jax.cli import configuration
from spec_jax.cli.commands import COMMANDS
from spec_jax.cli.configuration import shipped_files, shipped_folder

ROOT = Path(configuration.__file__).parents[2]
FILES = [str(path.relative_to(shipped_folder())) for path in shipped_files()]

# t5x's values: vocabulary, gated and tied; then emb, heads, head_dim, mlp, encoder and
# decoder layers of each size.
NETWORKS = {
    "t5_1_0": (32128, False, True),
    "t5_1_1": (32128, True, False),
    "mt5": (250112, True, False),
    "byt5": (384, True, False),
}
T5_1_1 = {
    "small": (512, 6, 64, 1024, 8, 8),
    "base": (768, 12, 64, 2048, 12, 12),
    "large": (1024, 16, 64, 2816, 24, 24),
    "xl": (2048, 32, 64, 5120, 24, 24),
    "xxl": (4096, 64, 64, 10240, 24, 24),
}
SIZES = {
    "t5_1_0": {
        "small": (512, 8, 64, 2048, 6, 6),
        "base": (768, 12, 64, 3072, 12, 12),
        "large": (1024, 16, 64, 4096, 24, 24),
        "3b": (1024, 32, 128, 16384, 24, 24),
        "11b": (1024, 128, 128, 65536, 24, 24),
    },
    "t5_1_1": T5_1_1,
    "mt5": T5_1_1,
    "byt5": {
        "small": (1472, 6, 64, 3584, 12, 4),
        "base": (1536, 12, 64, 3968, 18, 6),
        "large": (1536, 16, 64, 3840, 36, 12),
        "xl": (2560, 32, 64, 6720, 36, 12),
        "xxl": (4672, 64, 64, 12352, 36, 12),
    },
}
PUBLISHED = {  # counted from t5x's own networks
    "small": 76_961_152,
    "base": 247_577_856,
    "large": 783_150_080,
    "xl": 2_849_757_184,
    "xxl": 11_135_332_352,
}

SHIPPED = [
    "--gin.TARGET_CHECKPOINT=spec_jax://pretrained/target",
    "--gin.DRAFT_CHECKPOINT=spec_jax://pretrained/draft",
]

# Forks a process for each command line: everything is imported once, no backend runs.
SERVER = """
import json, os, sys
import spec_jax.cli.dry_run, spec_jax.cli.configuration
from spec_jax.cli.commands import COMMANDS
from spec_jax.cli.configurables import registered_names
from spec_jax.cli.main import main
from jax._src import xla_bridge
for command in COMMANDS:
    if command.base:
        command.main()
assert not xla_bridge.backends_are_initialized() and not registered_names()
folder, jobs = json.load(sys.stdin)
for name, argv in jobs.items():
    paths = [os.path.join(folder, name.replace("/", "+") + end) for end in ("1", "2")]
    child = os.fork()
    if child == 0:
        for stream, path in zip((1, 2), paths):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
        status = main(argv)
        sys.stdout.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([name, status, *(open(path).read() for path in paths)]))
"""


def parameters(family, size):
    """A T5's parameters, counted by hand."""
    vocabulary, gated, tied = NETWORKS[family]
    emb, heads, head_dim, mlp, encoder, decoder = SIZES[family][size]
    attention = 4 * emb * heads * head_dim
    forward = (3 if gated else 2) * emb * mlp
    layers = encoder * (attention + forward + 2 * emb)
    layers += decoder * (2 * attention + forward + 3 * emb)
    ends = 2 * emb + 2 * 32 * heads  # final norms, relative positions
    return vocabulary * emb * (1 if tied else 2) + layers + ends


def shallow(name):
    """Bindings that make the networks of a file shallow, where only names matter."""
    text = (shipped_folder() / name).read_text()
    included = re.findall(r"^include 'models/(.+)/(.+)\.gin'", text, re.MULTILINE)
    for family, size in included:
        family = family.replace("flan_t5", "t5_1_1")
        scope = f"t5_{size}" if size[0].isdigit() else size
        for part in ("encoder", "decoder"):
            yield f"--gin.{family}/{scope}/T5Config.num_{part}_layers=1"


def command_line(name):
    """A sensible command line with a file, from what a user would have."""
    folder, _, rest = name.partition("/")
    stem = Path(rest).stem
    given = [f"--gin_file={name}", "--dry_run"]
    if folder == "models":
        return ["train", *given, *(shallow(name) if "/flan" in name else ())]
    if folder == "tasks":
        file = f"--gin.TASK_FILE=../mine.{stem.removeprefix('my_')}"
        own = [file] if stem.startswith("my_") else []
        return ["evaluate", *given, *own, "--gin.INPUT_LENGTHS=32"]
    if name == "pairs/smollm2.gin":
        return ["generate", *given]
    if folder == "pairs":
        shapes = SHIPPED if stem == "checkpoints" else []
        task = "--gin_file=tasks/cnn_dailymail.gin"
        short = "--gin.INPUT_LENGTHS=512"
        return ["evaluate", *given, task, short, *shapes, *shallow(name)]
    commands = {command.name for command in COMMANDS}
    command = stem.split("_")[0]
    if command not in commands:
        command = {
            "choices": "demo",
            "task_source": "generate",
            "partitioning": "generate",
            "choose_gamma": "choose-gamma",
        }[stem]
    if stem.endswith("_xxl"):
        given += shallow(name)
    if stem == "train":
        given.append("--gin_file=models/shipped_draft.gin")
    if stem == "evaluate_checkpoints":
        given += SHIPPED
    if command == "evaluate":
        given.append("--gin.INPUT_LENGTHS=256")
    if name == "runs/distill_shipped.gin":
        given.append("--gin.INITIAL_CHECKPOINT=spec_jax://pretrained/draft")
    return [command, *given]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What every file's command line did: status, output, errors."""
    folder = tmp_path_factory.mktemp("work")
    output = tmp_path_factory.mktemp("output")
    for ending in ("tsv", "jsonl"):
        (folder.parent / f"mine.{ending}").touch()
    done = subprocess.run(
        [sys.executable, "-c", SERVER],
        input=json.dumps([str(output), {name: command_line(name) for name in FILES}]),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert not list(folder.iterdir())  # nothing is written
    return {name: rest for name, *rest in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_shipped_file_is_parsed_and_dry_run(outcomes, name):
    """BEHAVIOURS 33."""
    status, out, err = outcomes[name]
    assert (status, err) == (0, ""), err
    expected = "a dry run does not open it" if "smollm2" in name else "in all, with"
    assert expected in out


@pytest.mark.slow
@pytest.mark.parametrize("family", SIZES)
def test_sizes_are_t5xs(outcomes, family):
    for size in SIZES[family]:
        _, out, _ = outcomes[f"models/{family}/{size}.gin"]
        assert f"\nparameters: {parameters(family, size):,} numbers, float32" in out


def test_the_hand_count_is_right():
    assert {size: parameters("t5_1_1", size) for size in T5_1_1} == PUBLISHED


@pytest.mark.slow
def test_pairs_name_their_own_models_and_checkpoints(outcomes):
    for family, target in (("t5_1_0", "11b"), ("t5_1_1", "xxl"), ("flan_t5", "xxl")):
        for draft in ("small", "base", "large"):
            _, out, _ = outcomes[f"pairs/{family}_{target}_{draft}.gin"]
            assert f"load_pair.name = '{family}_{target}+{draft}'" in out
            paths = dict(
                re.findall(
                    r"^(TARGET|DRAFT)_CHECKPOINT = .*?'.*/t5x/(.*)/checkpoint_\d+'",
                    out.replace("\\\n", ""),
                    re.MULTILINE,
                )
            )
            public = family.replace("t5_1_0", "t5")
            assert paths["TARGET"].lower() == f"{public}_{target}"
            assert paths["DRAFT"] == f"{public}_{draft}"
            network = family.replace("flan_t5", "t5_1_1")
            emb, heads, head_dim, *_ = SIZES[network][draft]
            cache = rf"draft self-attention cache +2 of 1 x {heads} x \d+ x {head_dim} "
            assert re.search(cache, out)
            assert re.search(rf"token_embedder/embedding +32128 x {emb} ", out)
            scope = f"{network}/{'t5_' * (target == '11b')}{target}"
            assert f"load_pair.target_config = @{scope}/T5Config()" in out
            assert f"load_pair.draft_config = @{network}/{draft}/T5Config()" in out


@pytest.mark.slow
def test_tasks_are_as_long_as_their_files_say(outcomes):
    for name in FILES:
        if not name.startswith("tasks/"):
            continue
        _, out, _ = outcomes[name]
        inputs, targets = re.search(
            r"TASK_FEATURE_LENGTHS = \{'inputs': (\d+), 'targets': (\d+)\}", out
        ).groups()
        assert f"{inputs} input tokens, {targets} new tokens" in out
        assert f"MIXTURE_OR_TASK_NAME = '{Path(name).stem}'" in out
