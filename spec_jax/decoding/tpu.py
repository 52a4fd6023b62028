"""How libtpu is asked to compile a decode."""

COMPILER_OPTIONS = {"xla_tpu_enable_dot_strength_reduction": "false"}
"""For `jax.jit(compiler_options=)` of programs that decode on a TPU.

By itself XLA makes a product of one row a sum of products, which the vector units
work out at a third of the pace at which HBM brings the weights (`docs/tpu.md`).
"""

LIBTPU_INIT_ARGS = " ".join(
    f"--{name}={value}" for name, value in COMPILER_OPTIONS.items()
)
"""The same for all programs of a process, by this variable of the environment."""
