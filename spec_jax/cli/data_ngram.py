"""`spec-jax data ngram`: tables of what follows what, for drafts without a model."""

import os
from collections.abc import Sequence

from spec_jax.cli.errors import UsageError
from spec_jax.cli.settings import positive
from spec_jax.cli.texts import check_writable, read_texts, whole_file
from spec_jax.data.examples import TASKS, corpus_path, read_rows
from spec_jax.data.vocabulary import PAD_ID, Vocabulary
from spec_jax.pairs import load_tokenizer, open_vocabulary, save_tables
from spec_jax.training.tables import count_tables, target_sequences


def main(invocation) -> None:
    """Runs the command."""
    flags = invocation.flags
    positive(flags, "successors")
    if (flags.data_dir is None) == (flags.input_file is None):
        raise UsageError("give --data_dir or --input_file, one of them")
    check_writable(flags.output)
    if os.path.exists(flags.output) and not os.path.isfile(flags.output):
        raise UsageError(f"cannot write {flags.output}: want a file, got a device")
    if flags.data_dir is not None:
        vocabulary = open_vocabulary(flags.vocabulary)
        sequences = targets(flags.data_dir, vocabulary)
        start = PAD_ID
    else:
        vocabulary = load_tokenizer(flags.vocabulary)
        end, start = vocabulary.eos_ids[:1], vocabulary.pad_id
        sequences = [
            [*vocabulary.encode(text), *end]
            for text in read_texts((), flags.input_file)
            if text.strip()
        ]
    tables = count_tables(
        sequences,
        vocabulary.vocab_size,
        successors=flags.successors,
        start_id=start,
    )
    with whole_file(flags.output) as part:
        save_tables(part, tables, vocabulary)
    tokens = sum(map(len, sequences))
    print(f"{tokens} tokens of {len(sequences)} texts counted in {flags.output}")


def targets(data_dir: str, vocabulary: Vocabulary) -> list[Sequence[int]]:
    """What a decoder says in training on the corpora in a folder.

    Raises:
      UsageError: if a corpus is not there.
    """
    sequences = []
    for task in TASKS.values():
        path = corpus_path(data_dir, task, "train")
        if not path.exists():
            raise UsageError(
                f"no corpus {path}; `spec-jax data teacher --output_dir={data_dir}` "
                "writes a target's own outputs, `spec-jax data debian` builds what "
                "people wrote"
            )
        sequences += target_sequences(read_rows(path, task), task, vocabulary)
    return sequences
