"""seqio and TensorFlow, kept from GPUs and from their chatter at start."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Sends to nowhere what C++ writes to stderr before its logging has a level."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


try:
    with _quiet():
        import seqio
        import tensorflow as tf
        import tensorflow_datasets as tfds

        # RuntimeError: somebody has started TensorFlow's devices already.
        with contextlib.suppress(RuntimeError):
            tf.config.set_visible_devices([], "GPU")  # all of it would be taken
except ImportError as error:
    raise ValueError(
        f"seqio's tasks need packages that are not here ({error}): "
        "pip install 'spec_jax[eval]'"
    ) from None

__all__ = ["seqio", "tf", "tfds"]
