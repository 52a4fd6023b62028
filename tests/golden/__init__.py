"""Golden data made by real t5x and Hugging Face T5, unpacked when first asked for.

The archives beside this file are listed, with their origin, in README.md.
"""

import atexit
import functools
import pathlib
import shutil
import tarfile
import tempfile

_ARCHIVES = pathlib.Path(__file__).parent


@functools.cache
def _unpacked() -> pathlib.Path:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="spec_jax_golden_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def _unpack(archive: str) -> pathlib.Path:
    folder = _unpacked() / archive
    with tarfile.open(_ARCHIVES / f"{archive}.tar.gz") as tar:
        tar.extractall(folder, filter="data")
    return folder


def golden_path(name: str) -> pathlib.Path:
    """Where a golden file or folder lies, after unpacking its archive.

    The files are shared by a whole test process: copy before changing one.

    Args:
      name: `archive/path inside it`, e.g. `models/t5_1_1_target/forward.npz`,
        `hf/t5_1_1_gated_gelu` or `t5x_draft/legacy_float32/checkpoint_1000`.

    Returns:
      An absolute path that exists.

    Raises:
      FileNotFoundError: if there is no such archive or no such path in it.
    """
    archive, _, inside = name.partition("/")
    path = _unpack(archive) / inside
    if not path.exists():
        raise FileNotFoundError(f"no {inside!r} in tests/golden/{archive}.tar.gz")
    return path
