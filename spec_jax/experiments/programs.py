"""Compiled programs that a long run no longer needs."""

import gc
import pathlib

import jax

_MAPPINGS = pathlib.Path("/proc/self/maps")
_MOST = pathlib.Path("/proc/sys/vm/max_map_count")


def forget_programs(share: float = 0.5) -> bool:
    """Frees compiled programs where they use up what Linux allows one process.

    A program on CPU holds some hundred memory mappings, and a process may have 65,530:
    some hundred programs later a compilation fails, and the process with it.

    Args:
      share: of the allowed mappings, from which on programs are freed. What is needed
        again is compiled again.

    Returns:
      Whether they were freed; never where the system tells no such numbers.
    """
    try:
        mappings = _MAPPINGS.read_bytes().count(b"\n")
        most = int(_MOST.read_text())
    except OSError:
        return False
    if mappings <= share * most:
        return False
    jax.clear_caches()
    gc.collect()
    return True
