"""seqio's tasks: ours, which importing this registers, and anybody's as examples.

The only folder that imports seqio, and with it TensorFlow.
"""

from spec_jax.data.tasks.loading import load_seqio_task
from spec_jax.data.tasks.registered import register_file, register_tasks
from spec_jax.data.tasks.vocabulary import as_seqio

__all__ = ["as_seqio", "load_seqio_task", "register_file", "register_tasks"]

register_tasks()
