"""What users get wrong: each ends in one line and status 2, and leaves nothing."""

import gzip
import json
import os
import pathlib
import shutil

import pytest

from tests.golden import golden_path


@pytest.fixture(scope="module")
def there(tmp_path_factory, pair_flags, vocabulary_path):
    """Good things, and ways to spoil them, in one folder."""
    root = tmp_path_factory.mktemp("there")
    target = pathlib.Path(_given(pair_flags, "TARGET_CHECKPOINT"))
    shutil.copytree(target, root / "cut_weights")
    weights = root / "cut_weights" / "params.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    shutil.copytree(target, root / "cut_config")
    (root / "cut_config" / "t5_config.json").write_text('{"vocab_size": 6')
    (root / "empty").mkdir()
    golden = golden_path("t5x_draft/legacy_float32/checkpoint_1000")
    for name in ("cut_index", "cut_chunk"):
        shutil.copytree(golden, root / name / "checkpoint_1000")
    index = root / "cut_index" / "checkpoint_1000" / "checkpoint"
    index.write_bytes(index.read_bytes()[:100])
    chunk = "target.decoder.logits_dense.kernel/0.0"
    chunk = root / "cut_chunk" / "checkpoint_1000" / chunk
    chunk.write_bytes(chunk.read_bytes()[:50])
    (root / "three.tsv").write_text("a\tb\nc\td\te\n")
    (root / "empty.tsv").write_text("")
    (root / "fields.jsonl").write_text('{"inputs": "a", "targets": "b"}\n{"en": "a"}\n')
    (root / "no.jsonl").write_text("no json\n")
    half = '{"inputs": "a \\ud800", "targets": "b"}\n'
    (root / "half.jsonl").write_text(half)
    (root / "deep.jsonl").write_text("[" * 10**5 + "\n")
    whole = gzip.compress(b'{"inputs": "a", "targets": "b"}\n' * 99)
    (root / "cut.jsonl.gz").write_bytes(whole[:-12])
    (root / "latin.txt").write_bytes(b"ok\ncaf\xe9\n")
    (root / "loop.gin").write_text(f"include '{root}/loop.gin'\n")
    (root / "syntax.gin").write_text("GAMMA = = 4\n")
    (root / "breaks.py").write_text("raise RuntimeError('my own mistake')\n")
    (root / "file").write_text("x")
    return root


def _given(flags, macro):
    (flag,) = (flag for flag in flags if flag.startswith(f"--gin.{macro}="))
    return flag.partition("=")[2]


EVALUATE = (
    "evaluate",
    "PAIR",
    "--gin.MIXTURE_OR_TASK_NAME=ende",
    "--gin.EVAL_OUTPUT_DIR=out/eval",
    "--gin.NUM_EXAMPLES=2",
)
GENERATE = ("generate", "PAIR", "text", "--output_file=out/texts.jsonl")
FILE = (*EVALUATE[:2], "--gin.MIXTURE_OR_TASK_NAME=mine", *EVALUATE[3:])

CASES = {
    "a checkpoint that is not there": (
        (*GENERATE, "--gin.TARGET_CHECKPOINT=THERE/none"),
        "no checkpoint of the target at",
    ),
    "a folder without one": (
        (*EVALUATE, "--gin.DRAFT_CHECKPOINT=THERE/empty"),
        "draft",
    ),
    "weights that are cut": (
        (*GENERATE, "--gin.TARGET_CHECKPOINT=THERE/cut_weights"),
        "params.safetensors is cut or damaged",
    ),
    "a config that is cut": (
        (*GENERATE, "--gin.TARGET_CHECKPOINT=THERE/cut_config"),
        "t5_config.json is no T5 config",
    ),
    "a t5x index that is cut": (
        (*GENERATE, "--gin.DRAFT_CHECKPOINT=THERE/cut_index"),
        "cut short or no msgpack index",
    ),
    "a config of another size": (
        (
            *GENERATE,
            "--gin_file=models/t5_1_1/small.gin",
            "--gin.load_pair.target_config=@t5_1_1/small/T5Config()",
        ),
        "model",
    ),
    "a vocabulary that is not there": (
        (*GENERATE, "--gin.VOCABULARY=THERE/none.model"),
        "none.model",
    ),
    "a vocabulary that is none": (
        (*GENERATE, "--gin.VOCABULARY=THERE/latin.txt"),
        "latin.txt",
    ),
    "a vocabulary of another model": (
        (*GENERATE, "--gin.VOCABULARY=spec_jax://pretrained/vocabulary.model"),
        "do not belong together",
    ),
    "an unknown task": (
        (*EVALUATE, "--gin.MIXTURE_OR_TASK_NAME=wmt14_endee"),
        "wmt14_ende",
    ),
    "a task without data": (
        (
            *EVALUATE,
            "--gin.MIXTURE_OR_TASK_NAME=xsum",
            "--gin.DATA_DIR=THERE/empty",
        ),
        "xsum",
    ),
    "a task of another vocabulary": (
        (
            *EVALUATE,
            "--gin.MIXTURE_OR_TASK_NAME=bytes_task",
            "--gin.MIXTURE_OR_TASK_MODULE=tests.cli.bytes_task",
        ),
        "vocabular",
    ),
    "a module that is not there": (
        (
            *EVALUATE,
            "--gin.MIXTURE_OR_TASK_NAME=mine",
            "--gin.MIXTURE_OR_TASK_MODULE=no_such_module",
        ),
        "no_such_module",
    ),
    "a module that fails": (
        (
            *EVALUATE,
            "--gin.MIXTURE_OR_TASK_NAME=mine",
            "--gin.MIXTURE_OR_TASK_MODULE=breaks",
        ),
        "my own mistake",
    ),
    "a split that is not there": ((*EVALUATE, "--gin.SPLIT=dev"), "SPLIT 'dev'"),
    "a file of examples that is not there": (
        (*FILE, "--gin.TASK_FILE=THERE/none.tsv"),
        "cannot read",
    ),
    "a line of three columns": (
        (*FILE, "--gin.TASK_FILE=THERE/three.tsv"),
        "three.tsv, line 2: want an input, a tab and a target, got 3 columns",
    ),
    "a file without examples": (
        (*FILE, "--gin.TASK_FILE=THERE/empty.tsv"),
        "at least one row of the task mine",
    ),
    "a line without its fields": (
        (*FILE, "--gin.TASK_FILE=THERE/fields.jsonl"),
        "fields.jsonl, line 2",
    ),
    "a line that is no JSON": (
        (*FILE, "--gin.TASK_FILE=THERE/no.jsonl"),
        "no.jsonl, line 1",
    ),
    "half a character": (
        (*FILE, "--gin.TASK_FILE=THERE/half.jsonl"),
        "half.jsonl, line 1: half a character",
    ),
    "a line that nests without end": (
        (*FILE, "--gin.TASK_FILE=THERE/deep.jsonl"),
        "deep.jsonl, line 1",
    ),
    "a file of examples that is cut": (
        (*FILE, "--gin.TASK_FILE=THERE/cut.jsonl.gz"),
        "cannot read",
    ),
    "an unknown metric": (
        (*FILE, "--gin.TASK_FILE=THERE/three.tsv", "--gin.METRICS=blue"),
        "no metric 'blue'",
    ),
    "feature lengths that are none": (
        (*EVALUATE, "--gin.TASK_FEATURE_LENGTHS={'inputs': 'long'}"),
        "want TASK_FEATURE_LENGTHS as",
    ),
    "texts that are not UTF-8": (
        (*GENERATE[:2], "--input_file=THERE/latin.txt", GENERATE[3]),
        "latin.txt, line 2 is not UTF-8",
    ),
    "a text that is too long": (
        (*GENERATE[:2], "word " * 400, GENERATE[3]),
        "the limit is 256",
    ),
    "an output folder that is a file": (
        (*EVALUATE, "--gin.EVAL_OUTPUT_DIR=THERE/file"),
        "cannot write",
    ),
    "an output file that is a folder": (
        (*GENERATE, "--output_file=THERE/empty"),
        "it is a folder",
    ),
    "a macro misspelt": ((*GENERATE, "--gin.GAMA=3"), "did you mean GAMMA?"),
    "a macro's old name": (
        (*EVALUATE, "--gin.CHECKPOINT_PATH=x"),
        "TARGET_CHECKPOINT",
    ),
    "a parameter misspelt": (
        (*GENERATE, "--gin.generate.gama=3"),
        "did you mean gamma?",
    ),
    "a configurable misspelt": (
        (*GENERATE, "--gin.generate.policy=@SampligPolicy()"),
        "did you mean SamplingPolicy?",
    ),
    "a value of another type": (
        (*GENERATE, "--gin.GAMMA=four"),
        "gamma wants a whole number",
    ),
    "a gin file that is not there": (
        (*GENERATE, "--gin_file=pairs/shiped.gin"),
        "did you mean pairs/shipped.gin?",
    ),
    "a gin file that includes itself": (
        (*GENERATE, "--gin_file=THERE/loop.gin"),
        "includes itself",
    ),
    "no gin syntax": ((*GENERATE, "--gin_file=THERE/syntax.gin"), "no gin syntax"),
    "a flag misspelt": ((*GENERATE, "--temperatur=1"), "did you mean --temperature?"),
    "a command misspelt": (("evaluat",), "did you mean evaluate?"),
    "a draft that there is not": ((*GENERATE, "--draft=modle"), "did you mean model?"),
    "a temperature that is none": ((*GENERATE, "--temperature=nan"), "temperature"),
    "t5x where it is not": (
        (*EVALUATE, "--gin.T5X_BASELINE=True", "--gin.TEMPERATURES=0"),
        "T5X_BASELINE wants t5x",
    ),
    "a checkpoint converted to what is not": (
        ("convert", "THERE/cut_weights", "out/model", "--to=pytorch"),
        "pytorch",
    ),
    "a damaged checkpoint converted": (
        ("convert", "THERE/cut_chunk", "out/model", "--to=own"),
        "logits_dense",
    ),
    "a checkpoint converted onto another": (
        ("convert", "spec_jax://pretrained/draft", "THERE/cut_weights", "--to=own"),
        "THERE/cut_weights",
    ),
    "nothing to inspect": (("inspect", "THERE/none"), "THERE/none"),
}


def tree(folder):
    return {
        str(path): path.stat().st_mtime_ns
        for path in pathlib.Path(folder).rglob("*")
        if "__pycache__" not in str(path)
    }


@pytest.mark.parametrize("case", CASES)
def test_one_line_and_nothing_left(
    case, fails, there, pair_flags, tmp_path, monkeypatch
):
    if case == "t5x where it is not" and _has_t5x():
        pytest.skip("t5x is installed here")
    argv, said = CASES[case]
    words = []
    for word in argv:
        words += pair_flags if word == "PAIR" else [word.replace("THERE", str(there))]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(there))
    monkeypatch.setenv("TFDS_DATA_DIR", str(there / "empty"))
    before = tree(there)
    line = fails(*words)
    assert said.replace("THERE", str(there)) in line
    assert len(line) < 1300
    assert not os.listdir(tmp_path)
    assert tree(there) == before


def test_there_are_enough_of_them():
    assert len(CASES) >= 25


def test_what_is_not_spoilt_works(run, there, pair_flags, tmp_path, monkeypatch):
    """The same command lines, without the mistake, end well and write."""
    monkeypatch.chdir(tmp_path)
    flags = "--max_new_tokens=4", "--batch_size=1"
    words = [GENERATE[0], *pair_flags, *GENERATE[2:], *flags]
    assert run(*words).status == 0
    (line,) = pathlib.Path("out/texts.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["inputs"] == {
        "inputs_pretokenized": "translate English to German: text"
    }
    words = ["convert", "spec_jax://pretrained/draft", "out/model", "--to=own"]
    assert run(*words).status == 0
    assert run("inspect", "out/model").status == 0


def _has_t5x():
    import importlib.util

    return importlib.util.find_spec("t5x") is not None
