"""`spec-jax data teacher`: a target's own outputs, for its draft to be trained on."""

import itertools
import pathlib

from rich.progress import Progress

from spec_jax.cli.decoding import fastest_dtypes
from spec_jax.cli.errors import UsageError
from spec_jax.cli.runtime import start_backend
from spec_jax.cli.settings import positive
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable
from spec_jax.core.sampling import SamplingPolicy
from spec_jax.data.examples import TASKS, corpus_path, get_task, read_rows
from spec_jax.data.vocabulary import EOS_ID, PAD_ID, Vocabulary
from spec_jax.decoding.autoregressive import Autoregressive
from spec_jax.pairs import load_model, open_vocabulary
from spec_jax.training.teacher import write_teacher_corpus

SPLITS = ("train", "validation")
"""What training reads; nothing of the test split is looked at."""


def main(invocation) -> None:
    """Runs the command."""
    flags = invocation.flags
    if (
        pathlib.Path(flags.output_dir).resolve()
        == pathlib.Path(flags.data_dir).resolve()
    ):
        raise UsageError("want another --output_dir than --data_dir: files would clash")
    positive(flags, "batch_size", "num_examples")
    tasks = TASKS.values() if flags.task is None else [get_task(flags.task)]
    work = []
    for task, split in itertools.product(tasks, SPLITS):
        source = corpus_path(flags.data_dir, task, split)
        if not source.exists():
            raise UsageError(
                f"no corpus {source}; `spec-jax data debian "
                f"--output_dir={flags.data_dir}` makes it"
            )
        path = corpus_path(flags.output_dir, task, split)
        work.append((f"{task.name}, {split}", task, source, path))
    check_writable(work[0][-1])
    start_backend()
    vocabulary = open_vocabulary(flags.vocabulary)
    algorithm, params = load_target(flags.target, vocabulary, flags.temperature)
    console = make_console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        for name, task, source, path in work:
            if path.exists():
                console.print(f"{path} is already there: kept")
                continue
            shown = bar.add_task(name, total=None)

            def progress(done, total, shown=shown):
                bar.update(shown, completed=done, total=total)

            write_teacher_corpus(
                algorithm,
                params,
                vocabulary,
                task,
                read_rows(source, task)[: flags.num_examples],
                path,
                batch_size=flags.batch_size,
                seed=flags.seed,
                progress=progress,
            )
            console.print(f"{path} written")


def load_target(folder: str, vocabulary: Vocabulary, temperature: float):
    """Plain decoding by an exported target in its fastest dtype, and its parameters."""
    _, dtype = fastest_dtypes(None, None)
    decoder, params = load_model(folder, vocabulary, dtype=dtype)
    policy = SamplingPolicy(temperature=temperature, vocab_limit=vocabulary.vocab_size)
    algorithm = Autoregressive(decoder, policy, eos_id=EOS_ID, pad_id=PAD_ID)
    return algorithm, {"target": params}
