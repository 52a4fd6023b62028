"""The process: its streams, the device, noise on stderr, how it ends."""

import codecs
import io
import os
import sys
import warnings

import absl.logging

from spec_jax.cli.errors import UsageError


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


def start_backend() -> None:
    """Starts what JAX computes on.

    Raises:
      UsageError: if JAX_PLATFORMS names what is not here.
    """
    import jax

    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        reason = f": {error}" if str(error) else ""
        raise UsageError(
            f"JAX cannot start JAX_PLATFORMS={jax.config.jax_platforms}{reason}; unset "
            "it, or install JAX for that device"
        ) from error


def prepare_streams() -> None:
    """Sees to it that there are streams, and that any text can be printed.

    A stream that the shell closed, as in `spec-jax demo >&-`, is None in Python. What
    the encoding of stdout does not have is printed as a question mark.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    out = sys.stdout
    wrapped = isinstance(out, io.TextIOWrapper)
    if wrapped and codecs.lookup(out.encoding).name != "utf-8":
        out.reconfigure(errors="replace")


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
