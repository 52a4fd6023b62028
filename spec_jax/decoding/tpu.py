"""How libtpu is asked to compile a decode."""

import os

COMPILER_OPTIONS = {"xla_tpu_enable_dot_strength_reduction": "false"}
"""For `jax.jit(compiler_options=)` of programs that decode on a TPU.

By itself XLA makes a product of one row a sum of products, which the vector units
work out at a third of the pace at which HBM brings the weights (`docs/tpu.md`).
"""

LIBTPU_INIT_ARGS = " ".join(
    f"--{name}={value}" for name, value in COMPILER_OPTIONS.items()
)
"""The same for all programs of a process, by this variable of the environment."""


def ask_libtpu() -> None:
    """Has all programs of this process compiled as decoding wants them.

    A LIBTPU_INIT_ARGS from outside, also an empty one, is left alone. Call it before
    JAX computes; without a TPU it changes nothing.
    """
    os.environ.setdefault("LIBTPU_INIT_ARGS", LIBTPU_INIT_ARGS)
