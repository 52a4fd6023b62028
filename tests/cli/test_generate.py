import io
import json
import sys

import jax
import pytest

from spec_jax.cli.decoding import one_line, row_key
from spec_jax.data.samples import load_samples

TEXTS = ["Choose the item.", "Save the file now, then close it.", "Open", "Click OK."]
# One compiled shape serves nearly all: compiling costs more than all the rest.
SHORT = ["--max_new_tokens=6", "--batch_size=4"]


@pytest.fixture
def generate(run, pair_flags):
    def call(*argv, stdin=b"", status=0):
        outcome = run("generate", *pair_flags, *SHORT, *argv, stdin=stdin)
        assert outcome.status == status, outcome
        return outcome

    return call


@pytest.fixture
def refuses(fails, pair_flags):
    def call(*argv, stdin=b""):
        return fails("generate", *pair_flags, *argv, stdin=stdin)

    return call


def lines(outcome):
    return outcome.out.splitlines()


def test_texts_come_from_arguments_a_file_or_stdin(generate, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS))
    expected = lines(generate(*TEXTS))
    assert len(expected) == len(TEXTS) and len(set(expected)) > 1
    assert lines(generate("--input_file", path)) == expected
    assert lines(generate(stdin="\n".join(TEXTS).encode())) == expected


def test_a_row_does_not_depend_on_its_batch(generate):
    together = lines(generate(*TEXTS, "--temperature=1"))
    assert lines(generate(*TEXTS, "--temperature=1", "--batch_size=1")) == together
    # A row's number, not its company, decides.
    others = [TEXTS[0], "Other text.", TEXTS[2], "Other."]
    assert lines(generate(*others, "--temperature=1"))[::2] == together[::2]
    # A batch that is not full.
    more = [*TEXTS, "More.", "Most."]
    assert lines(generate(*more, "--temperature=1"))[:4] == together


def test_the_seed_decides_and_greedy_needs_none(generate):
    def sampled(seed):
        return lines(generate(*TEXTS, "--temperature=1", f"--seed={seed}"))

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)
    assert lines(generate(*TEXTS, "--seed=1")) == lines(generate(*TEXTS, "--seed=2"))


def test_several_outputs_a_text_differ_and_keep_their_order(generate):
    out = lines(generate(*TEXTS[:2], "--temperature=1", "-n", 2))
    assert len(out) == 4 and len(set(out)) > 2
    # More outputs do not change the first ones.
    assert lines(generate(*TEXTS, "--temperature=1"))[:2] == out[::2]


def test_the_key_of_a_row():
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(5), 3), 2)
    assert jax.random.key_data(row_key(5, 3, 2)).tolist() == (
        jax.random.key_data(key).tolist()
    )


def test_json_lines_are_t5xs(generate, tmp_path):
    path = tmp_path / "new" / "out.jsonl"
    outcome = generate(*TEXTS, "--output_file", path)
    assert not outcome.out
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["inputs"]["inputs_pretokenized"] for row in rows] == [
        f"translate English to German: {text}" for text in TEXTS
    ]
    assert [row["prediction"] for row in rows] == lines(generate(*TEXTS))
    assert all(set(row) == {"inputs", "prediction"} for row in rows)


def test_an_output_folder_gets_t5xs_names_and_the_configuration(generate, tmp_path):
    folder = tmp_path / "infer"
    generate("x", "y", "-n", 2, "--seed=3", f"--gin.INFER_OUTPUT_DIR={folder}")
    assert {path.name for path in folder.iterdir()} == {
        "ende-predict.jsonl-00000-of-00001",
        "config.gin",
    }
    rows = (folder / "ende-predict.jsonl-00000-of-00001").read_text().splitlines()
    assert [json.loads(row)["output"] for row in rows] == [0, 1] * 2
    config = (folder / "config.gin").read_text()
    assert "SEED = 3" in config and "generate.seed = %SEED" in config


def test_task_and_prefix_decide_what_the_encoder_reads(generate, tmp_path):
    def read(*argv):
        path = tmp_path / "out.jsonl"
        generate(*["text"] * 4, "-o", path, *argv)
        row = json.loads(path.read_text().splitlines()[0])
        return row["inputs"]["inputs_pretokenized"]

    assert read("--task=summarize") == "summarize: text"
    assert read("--prefix=to French: ") == "to French: text"
    assert read("--prefix=") == "text"


def test_blank_lines_stay_blank(generate):
    out = lines(generate(stdin=b"Choose.\n\nOpen\nClose\nSave\n"))
    assert len(out) == 5 and out[1] == "" and all(out[:1] + out[2:])


def test_flags_win_over_gin_flags_and_these_over_files(generate, tmp_path):
    file = tmp_path / "mine.gin"
    file.write_text("SEED = 1\nTEMPERATURE = 1.0")
    mine = f"--gin_file={file}"
    bound = [mine, "--gin.SEED=2"]

    def same(a, b):
        return lines(generate(*TEXTS, *a)) == lines(generate(*TEXTS, *b))

    assert same([mine], ["--temperature=1", "--seed=1"])
    assert same(bound, ["--temperature=1", "--seed=2"])
    assert same([*bound, "--seed=3"], ["--temperature=1", "--seed=3"])


def test_a_terminal_sees_the_text_as_it_comes(generate, monkeypatch):
    class Terminal(io.StringIO):
        writes = 0

        def isatty(self):
            return True

        def write(self, text):
            self.writes += 1
            return super().write(text)

    expected = lines(generate(*TEXTS))[1]
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        generate(TEXTS[1])
    assert terminal.getvalue() == expected + "\n"
    assert terminal.writes > 3


def test_a_text_that_is_too_long_names_the_limit_or_is_cut(generate, refuses):
    long = "word " * 100
    texts = ["short", long, "short", "short"]
    message = refuses(*texts, *SHORT, "--gin.MAX_INPUT_LENGTH=32")
    assert "text 2 has" in message and "the limit is 32" in message
    assert "--truncate cuts it" in message
    cut = generate(*texts, "--truncate", "--gin.MAX_INPUT_LENGTH=32")
    assert len(lines(cut)) == 4


def test_nothing_is_written_where_a_text_is_wrong(refuses, tmp_path):
    path = tmp_path / "out.jsonl"
    refuses("ok", "word " * 500, *SHORT, "-o", path)
    refuses("ok", "word " * 500, *SHORT, "-o", tmp_path / "new" / "out.jsonl")
    refuses("--input_file=missing", "-o", tmp_path / "new" / "out.jsonl")
    assert not list(tmp_path.iterdir())


def test_a_line_has_no_break_and_keeps_what_joins_letters():
    joined = "a\u200db\u200cc\u00add\u00a0e"
    assert one_line(joined) == joined
    assert one_line("a\nb\x85c\u2028d\u2029e\x1bf\tg") == "a b c d e f g"


def test_the_examples_of_a_task_are_decoded(generate, tmp_path):
    """As t5x's infer does it: a split is named, and no text given."""
    folder = tmp_path / "infer"
    flags = ["--gin.SPLIT=test", "--gin.NUM_EXAMPLES=3", "--gin.MAX_INPUT_LENGTH=32"]
    outcome = generate(*flags, f"--gin.INFER_OUTPUT_DIR={folder}")
    file = folder / "ende-predict.jsonl-00000-of-00001"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    samples = load_samples("translation")[:3]
    assert [row["inputs"] for row in rows] == [
        {
            "inputs_pretokenized": f"translate English to German: {sample['en']}",
            "targets_pretokenized": sample["de"],
        }
        for sample in samples
    ]
    assert "inputs were cut at 32 tokens" in outcome.err
    texts = [sample["en"] for sample in samples]
    typed = generate(*texts, "--truncate", "--gin.MAX_INPUT_LENGTH=32")
    assert [row["prediction"] for row in rows] == lines(typed)


def test_a_killed_run_goes_on(generate, tmp_path, monkeypatch):
    """Stopped after each batch in turn; the file is whole or not there."""
    from spec_jax.cli import generate as module

    flags = ["--temperature=1", "-n", 3, "--batch_size=4"]
    whole, path = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    generate(*TEXTS[:3], *flags, "-o", whole)
    real, calls = module.decode_batch, []

    def killed_soon(*args):
        calls.append(args)
        if len(calls) % 2 == 0:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(module, "decode_batch", killed_soon)
    for _ in range(2):
        assert generate(*TEXTS[:3], *flags, "-o", path, status=130)
        assert not path.exists()
        assert len(list(tmp_path.glob(".out.jsonl.*.partial"))) == 1
    outcome = generate(*TEXTS[:3], *flags, "-o", path)
    assert "8 of 9 outputs are there already" in outcome.err
    assert path.read_bytes() == whole.read_bytes()
    assert len(calls) == 5 and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("argv", "stdin", "said"),
    [
        ([], b"", "no text"),
        ([], b"\n  \n", "no text"),
        ([], b"ok\nnot \xe9\n", "stdin, line 2 is not UTF-8"),
        (
            ["x", "--temperature=-1"],
            b"",
            "temperature finite and >= 0 (0 is argmax), got -1.0",
        ),
        (["x", "--temperature=nan"], b"", "temperature"),
        (["x", "--gamma=0"], b"", "gamma >= 1, got 0"),
        (["x", "--top_k=-1"], b"", "(0 is off), got -1"),
        (["x", "-n", "0"], b"", "num_return_sequences >= 1"),
        (["x", "--task=foo"], b"", "unknown task 'foo'"),
        (["x", "--input_file=missing"], b"", "not both"),
        (["--input_file=missing"], b"", "cannot read missing"),
        (["x", "--output_file=/dev/null/x"], b"", "cannot write /dev/null/x"),
        (["x", "--gin.TARGET_CHECKPOINT=/missing"], b"", "/missing"),
        (["x", "--gin.VOCABULARY=/missing"], b"", "/missing"),
        (["x", "--gin.DTYPE=float99"], b"", "float99"),
        (["x", f"--seed={10**22}"], b"", "--seed=1000"),
        (["x", f"--max_new_tokens={10**13}"], b"", "--max_new_tokens=1000"),
        (["x", f"--gin.SEED={10**22}"], b"", "seed wants a whole number of 32 bits"),
        (["x", "--gin.INFER_OUTPUT_DIR=gs://b"], b"", "cannot write gs://b/"),
        (["x", "-o", "a", "--gin.INFER_OUTPUT_DIR=b"], b"", "not both"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(refuses, argv, stdin, said):
    assert said in refuses(*argv, stdin=stdin)
