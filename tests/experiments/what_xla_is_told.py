"""Prints the table of docs/tpu.md on what is said to XLA. Wants libtpu; a minute.

PYTHONPATH=. python tests/experiments/what_xla_is_told.py
"""

from unittest import mock

import jax
from test_tpu_compile import wide_pair

from spec_jax.experiments.tpu_compile import CompileSettings, compile_program

OPTIONS = "spec_jax.experiments.tpu_compile.COMPILER_OPTIONS"
KERNEL = "spec_jax.models.attention.keep_kernel"
CACHE = "spec_jax.models.kv_cache.as_stored"


def compiled(program, *unsaid):
    """A program of one layer of XXL and eight of small, without some of it."""
    jax.clear_caches()
    for name in unsaid:
        mock.patch(name, {} if name == OPTIONS else lambda array: array).start()
    try:
        return compile_program(wide_pair(), CompileSettings(), program)
    finally:
        mock.patch.stopall()


def row(name, program, *unsaid):
    said = compiled(program, *unsaid)
    weights = [one for one in said.copied if one["source"].startswith("params")]
    cells = (
        program,
        name,
        f"{said.cycles / 1e6:.2f}",
        f"{len(weights)}, {sum(one['bytes'] for one in weights) / 1e6:.0f} MB",
        str(len(said.copied) - len(weights)),
    )
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    print("| program | without | million cycles | weights copied | caches |")
    print("|---|---|---|---|---|")
    row("", "plain")
    row("the option", "plain", OPTIONS)
    row("", "generate")
    row("`keep_kernel`", "generate", KERNEL)
    row("`as_stored`", "generate", CACHE)
