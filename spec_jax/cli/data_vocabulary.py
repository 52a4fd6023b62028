"""`spec-jax data vocabulary`: a SentencePiece model of the training texts."""

from collections.abc import Iterator

from spec_jax.cli.errors import UsageError
from spec_jax.cli.texts import check_writable, whole_file
from spec_jax.data.examples import TASKS, corpus_path, read_rows
from spec_jax.data.vocabulary import train_vocabulary

FEWEST_PIECES = 512
"""256 bytes and three special ids leave room for words."""


def main(invocation) -> None:
    """Runs the command."""
    flags = invocation.flags
    if flags.vocab_size < FEWEST_PIECES:
        raise UsageError(
            f"want --vocab_size >= {FEWEST_PIECES}, got {flags.vocab_size}"
        )
    check_writable(flags.output)
    texts = list(training_texts(flags.data_dir))
    try:
        with whole_file(flags.output) as part:
            train_vocabulary(texts, part, flags.vocab_size)
    except RuntimeError as error:
        raise UsageError(
            f"SentencePiece cannot train on these texts: {error}"
        ) from error
    print(f"{flags.vocab_size} pieces from {len(texts)} texts in {flags.output}")


def training_texts(data_dir: str) -> Iterator[str]:
    """Both sides of every training row, a line each; nothing that is held out.

    Raises:
      UsageError: if a corpus is missing.
    """
    for task in TASKS.values():
        path = corpus_path(data_dir, task, "train")
        if not path.exists():
            raise UsageError(
                f"no corpus {path}; `spec-jax data debian --output_dir={data_dir}` "
                "makes it"
            )
        for row in read_rows(path, task):
            for field in (task.inputs, task.targets):
                yield " ".join(row[field].split())
