"""`--dry_run`: shapes and memory by hand; nothing is loaded, nothing is written."""

import re
import shlex
from pathlib import Path

import pytest

from spec_jax.cli.commands import COMMANDS
from spec_jax.cli.configuration import SearchPath, shipped_files
from spec_jax.cli.flags import DRY_RUN

PAGE = Path(__file__).parents[2] / "docs" / "gin.md"
GIB = 2**30
XXL, SMALL = 11_135_332_352, 76_961_152
PAIR = ["--gin_file=pairs/t5_1_1_xxl_small.gin"]
SHALLOW = [
    f"--gin.t5_1_1/{size}/T5Config.num_{part}coder_layers=1"
    for size in ("xxl", "small")
    for part in ("en", "de")
]
COMPARE = ["compare", *PAIR, *SHALLOW, "--gin.DTYPE=bfloat16"]


@pytest.fixture
def dry(run, tmp_path, monkeypatch):
    """The output of a dry run in a folder that it must leave empty."""
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        outcome = run(*argv, "--dry_run")
        assert (outcome.status, outcome.err) == (0, ""), outcome
        assert not list(tmp_path.iterdir())
        return outcome.out

    return call


def rows(out):
    """The cells of every line that is a table's."""
    lines = (re.split(r" {2,}", line.strip()) for line in out.splitlines())
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


@pytest.mark.slow
def test_xxl_with_small_by_hand(dry):
    """The paper's Table 2 pair: WMT14's lengths, batch 2, gamma 7, all in bfloat16."""
    out = dry(
        "evaluate",
        *PAIR,
        "--gin_file=tasks/wmt14_ende.gin",
        "--gin.TARGET_CHECKPOINT=/there/is/none",
        "--gin.DTYPE=bfloat16",
        "--gin.PLAIN_DTYPE=bfloat16",
        "--gin.BATCH_SIZE=2",
        "--gin.GAMMA=7",
        "--gin.INPUT_LENGTHS=256",
    )
    assert "TARGET_CHECKPOINT = '/there/is/none'" in out
    assert f"target parameters: {XXL:,} numbers, bfloat16, 20.74 GiB" in out
    assert f"draft parameters: {SMALL:,} numbers, bfloat16, 146.79 MiB" in out
    table = rows(out)
    # 24 layers, keys and values, 1 + 256 + 7 positions of 64 heads.
    own = 24 * 2 * 2 * 64 * 264 * 64 * 2
    cross = 24 * 2 * 2 * 64 * 256 * 64 * 2
    draft_own = 8 * 2 * 2 * 6 * 264 * 64 * 2
    draft_cross = 8 * 2 * 2 * 6 * 256 * 64 * 2
    for name, count, shape, held in (
        ("target self-attention cache", 48, "2 x 64 x 264 x 64", own),
        ("target cross-attention cache", 48, "2 x 64 x 256 x 64", cross),
        ("draft self-attention cache", 16, "2 x 6 x 264 x 64", draft_own),
        ("draft cross-attention cache", 16, "2 x 6 x 256 x 64", draft_cross),
    ):
        memory = f"{held / 2**20:.2f} MiB"
        assert table[name] == [f"{count} of {shape}", "bfloat16", memory]
    assert table["target logits"][0] == "2 x 8 x 32128"
    assert table["target probabilities"][0] == "2 x 8 x 32128"
    assert table["draft probabilities"][0] == "2 x 7 x 32128"
    probabilities = 2 * (8 + 8 + 7) * 32128 * 4
    # Float32 tables of position biases and masks, and the tokens, are small.
    biases = (64 + 6) * 2 * 264 * 4 + 2 * 2 * 256 * 4 + 2 * (256 + 257) * 4
    state = own + cross + draft_own + draft_cross + probabilities + biases
    assert table["target parameters, bfloat16"] == [f"{2 * XXL / GIB:.3f}"]
    assert table["draft parameters, bfloat16"] == [f"{2 * SMALL / GIB:.3f}"]
    name = "batch 2, 256 input tokens, 256 new tokens, gamma 7"
    assert table[name] == [f"{state / GIB:.3f}"]
    total = 2 * XXL + 2 * SMALL + state
    assert table["in all, with the batch"] == [f"{total / GIB:.3f}"]
    assert "Not counted: what XLA keeps" in out


def test_what_both_dtypes_hold_is_counted(dry):
    one = rows(dry(*COMPARE, "--gin.PLAIN_DTYPE=bfloat16"))
    out = dry(*COMPARE, "--gin.PLAIN_DTYPE=float32")
    two = rows(out)
    assert "target parameters, float32" not in one
    for role in ("target", "draft"):
        half = float(one[f"{role} parameters, bfloat16"][0])
        whole = float(two[f"{role} parameters, float32"][0])
        assert whole == pytest.approx(2 * half, abs=0.002)
    assert two["target self-attention cache"][1] == "float32"
    assert "DTYPE and PLAIN_DTYPE set them" in " ".join(out.split())
    # Each array is listed once.
    assert out.count("token_embedder/embedding") == 2


def test_a_larger_batch_and_more_tokens_hold_more(dry):
    name = "target self-attention cache"
    few = rows(dry(*COMPARE, "--max_new_tokens=8", "--gamma=2"))
    many = rows(dry(*COMPARE, "--max_new_tokens=16", "--gamma=3"))
    assert few[name][0].endswith("1 x 64 x 11 x 64")
    assert many[name][0].endswith("1 x 64 x 20 x 64")


def test_of_several_drafts_it_says_which_is_counted(dry):
    out = " ".join(dry(*COMPARE, "--drafts=lookup,model").split())
    assert "as the draft model holds it; with the draft lookup it is smaller" in out
    assert "it is smaller" not in dry(*COMPARE, "--drafts=model,chain")


def test_the_sum_stands_last(dry):
    lines = dry(*COMPARE).splitlines()
    (row,) = (line for line in lines if line.strip().startswith("in all, with"))
    assert lines[-1].startswith("Memory in all: ") and lines[-1].endswith(" GiB")
    last = float(lines[-1].split()[-2])
    assert last == pytest.approx(float(row.split()[-1]), abs=0.006)


def test_a_file_of_examples_must_be_there(dry, fails, tmp_path):
    argv = ["evaluate", "--gin_file=tasks/my_tsv.gin", "--gin.INPUT_LENGTHS=32"]
    missing = f"{tmp_path}/none.tsv"
    message = fails(*argv, f"--gin.TASK_FILE={missing}", "--dry_run")
    assert message == f"error: no file {missing} (TASK_FILE)"


def test_a_training_is_counted(dry):
    out = dry("train", "--gin_file=models/shipped_draft.gin")
    assert "MODEL_DIR = '(not given)'" in out
    table = rows(out)
    attention, forward, emb = 4 * 128 * 128, 3 * 128 * 512, 128
    encoder = 3 * (attention + forward + 2 * emb)
    count = encoder + 2 * attention + forward + 3 * emb
    count += 2 * 4096 * emb + 2 * emb + 2 * 32 * 4
    assert f"\nparameters: {count:,} numbers, float32" in out
    held = f"{4 * count / GIB:.3f}"
    assert table["parameters, float32"] == table["gradient, float32"] == [held]
    # Adam's two moments, and two counts of steps.
    assert f"optimizer state: {2 * count + 2:,} numbers" in out
    assert table["encoder_input_tokens"][0] == "32 x 96"
    assert "activations kept for the gradient" in " ".join(out.split())


def test_the_shipped_pair_needs_no_file_of_ones_own(dry):
    out = dry("demo")
    assert "load_pair.name = 'shipped'" in out
    assert "batch 1, 256 input tokens, 128 new tokens, gamma 4" in out


def test_a_model_whose_file_has_its_shapes_is_not_opened(dry):
    out = dry("generate", "--gin_file=pairs/smollm2.gin", "--gin.TABLES=none")
    assert "a dry run does not open it" in out


def test_what_is_missing_is_said(fails):
    message = fails("evaluate", "--gin_file=pairs/checkpoints.gin", "--dry_run")
    assert "not known: give TARGET_CHECKPOINT and DRAFT_CHECKPOINT, or a" in message
    message = fails("train", "--dry_run")
    assert message == (
        "error: train needs MODEL (the network's shape): give --gin.MODEL=..."
    )
    files = ["--gin_file=pairs/shipped.gin", "--gin_file=tasks/my_tsv.gin"]
    assert "needs TASK_FILE" in fails("evaluate", *files, "--dry_run")
    folder = "--gin.TARGET_CHECKPOINT=/there/is/none"
    message = fails("evaluate", "--gin_file=pairs/checkpoints.gin", folder, "--dry_run")
    assert "no checkpoint of the target at /there/is/none" in message


def test_every_command_with_gin_files_has_the_flag(run):
    for command in COMMANDS:
        out = " ".join(run(*command.name.split(), "--help").out.split())
        assert (f"--dry_run {DRY_RUN}" in out) == (command.base is not None), command


@pytest.mark.slow
def test_the_page_shows_what_is_printed(dry):
    blocks = re.findall(r"```(\w*)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (shown,) = (text for kind, text in blocks if kind == "text")
    (command,) = (text for _, text in blocks if "--dry_run" in text)
    program, *argv = shlex.split(command.replace("\\\n", ""))
    assert program == "spec-jax" and argv.pop() == "--dry_run"
    _, heading, tables = dry(*argv).partition("target parameters:")
    printed = (line.rstrip() for line in (heading + tables).splitlines())
    assert list(filter(None, printed)) == list(filter(None, shown.splitlines()))


def test_the_pages_macros_are_macros():
    rows = re.findall(r"^\| (`[A-Z].*?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"`([A-Z_]+)`", " ".join(rows)))
    known = {
        name for path in shipped_files() for name in SearchPath().macros([str(path)])
    }
    assert len(named) > 15 and named <= known
