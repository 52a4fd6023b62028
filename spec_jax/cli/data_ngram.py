"""`spec-jax data ngram`: tables of what follows what, for drafts without a model."""

import os

from spec_jax.cli.errors import UsageError
from spec_jax.cli.settings import positive
from spec_jax.cli.texts import check_writable, whole_file
from spec_jax.data.examples import TASKS, corpus_path, read_rows
from spec_jax.data.vocabulary import SentencePieceVocabulary
from spec_jax.pairs import resolve, save_tables
from spec_jax.training.tables import count_tables, target_sequences


def main(invocation) -> None:
    """Runs the command."""
    flags = invocation.flags
    positive(flags, "successors")
    check_writable(flags.output)
    if os.path.exists(flags.output) and not os.path.isfile(flags.output):
        raise UsageError(f"cannot write {flags.output}: want a file, got a device")
    vocabulary = SentencePieceVocabulary(resolve(flags.vocabulary))
    sequences = []
    for task in TASKS.values():
        path = corpus_path(flags.data_dir, task, "train")
        if not path.exists():
            raise UsageError(
                f"no corpus {path}; `spec-jax data teacher "
                f"--output_dir={flags.data_dir}` writes a target's own outputs, "
                "`spec-jax data debian` builds what people wrote"
            )
        sequences += target_sequences(read_rows(path, task), task, vocabulary)
    tables = count_tables(sequences, vocabulary.vocab_size, successors=flags.successors)
    with whole_file(flags.output) as part:
        save_tables(part, tables, vocabulary)
    tokens = sum(map(len, sequences))
    print(f"{tokens} tokens of {len(sequences)} texts counted in {flags.output}")
