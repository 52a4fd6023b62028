"""The process: CPU threads, noise on stderr, how it ends."""

import os
import sys
import warnings

import absl.logging


def limit_cpu_threads(asked: int | None, batch: int) -> None:
    """Decides the threads of JAX's CPU backend; call it before JAX computes.

    With one row, handing work from thread to thread costs more than it brings: a
    verification of 5 tokens took 2.3 ms on two threads and 1.75 on one. A larger
    batch, or another device, is left alone. JAX reads PJRT_NPROC once, when its
    backend starts; a value from outside stays unless --cpu_threads is given.

    Args:
      asked: the flag's value; None decides by the batch.
      batch: rows decoded together.

    Raises:
      ValueError: if the flag is below 1.
    """
    if asked is not None:
        if asked < 1:
            raise ValueError(f"want --cpu_threads >= 1, got {asked}")
        os.environ["PJRT_NPROC"] = str(asked)
    elif batch == 1:
        os.environ.setdefault("PJRT_NPROC", "1")


def silence() -> None:
    """Keeps what libraries log out of a command's output; errors stay."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    absl.logging.set_verbosity(absl.logging.ERROR)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.filterwarnings("ignore", category=FutureWarning)


def abandon_stdout() -> None:
    """After the reader of a pipe is gone: nothing is written any more, also at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
