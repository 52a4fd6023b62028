"""Several processes that run one program: they meet, one writes, all end together."""

import ctypes
import os
import pathlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from spec_jax.cli.errors import UsageError, one_line
from spec_jax.cli.runtime import limit_cpu_threads

INTERNAL_STATUS, USAGE_STATUS = 1, 2
LOST_STATUS = 3
"""Another host was lost."""
HEARTBEAT_SECONDS = 30
"""A host that is silent for so long is lost."""
MEETING_SECONDS = 300
"""The hosts have so long to meet."""
_OF_XLA = ("JaxRuntimeError", "XlaRuntimeError")
_AGAIN = "start all of them again, and the run goes on where it was"
_PR_SET_PDEATHSIG = 1
_joined = False
_thrown_away: str | None = None
"""A folder that is removed when this process ends, however it does."""


def join(flags: Any) -> None:
    """Meets the other processes where the flags say there are some.

    The flags are t5x's, `--multiprocess` aside: with it alone JAX finds the others by
    itself, on TPU and under Slurm, or from JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
    and JAX_PROCESS_ID. Must be called before JAX computes.

    Raises:
      UsageError: if the flags do not fit, or the others do not come.
    """
    global _joined
    values = flags.flag_values_dict()
    address = values.get("coordinator_address")
    count, index = values.get("process_count"), values.get("process_index")
    given = [one is not None for one in (address, count, index)]
    if not values.get("multiprocess") and not any(given):
        return
    if any(given) and not all(given):
        raise UsageError(
            "want --coordinator_address, --process_count and --process_index together, "
            f"got {address}, {count}, {index}; --multiprocess alone lets JAX find them"
        )
    if all(given) and not 0 <= index < count:
        raise UsageError(
            f"want --process_index in 0 .. {count - 1}, got {index} of {count}"
        )
    _supervise()
    import jax

    # Else TERM, which a slice about to be taken away sends, ends no process: JAX keeps
    # it as a notice for training loops. Here any moment is good for an end.
    jax.config.update("jax_enable_preemption_service", False)
    # To meet starts the backend, which reads the threads once.
    limit_cpu_threads(values.get("cpu_threads"), batch=0)
    try:
        jax.distributed.initialize(
            address,
            count,
            index,
            initialization_timeout=MEETING_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
            shutdown_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        raise UsageError(
            f"the {count or ''} processes did not meet at "
            f"{address or 'an address that JAX finds'}: {one_line(error)}"
        ) from error
    _joined = jax.process_count() > 1
    if hasattr(os, "sched_getaffinity"):  # what a record will say of the threads
        os.environ.setdefault("PJRT_NPROC", str(len(os.sched_getaffinity(0))))
    wait_for_all("met")
    if not is_writer():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _supervise() -> None:
    """Goes on in a child; this process waits for it, and says how it ended.

    Where a host falls silent JAX aborts the others from a thread of its own, with a
    trail of addresses as the last thing that a user sees. JAX must not have started.
    """
    global _thrown_away
    _thrown_away = tempfile.mkdtemp(prefix="spec_jax_")
    child = os.fork()
    if child == 0:
        if sys.platform == "linux":  # ends with its parent, also when that is killed
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells the child too
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    shutil.rmtree(_thrown_away, ignore_errors=True)
    if status == -signal.SIGABRT:
        print(f"error: another host was lost: {_AGAIN}", file=sys.stderr)
        status = LOST_STATUS
    sys.stderr.flush()
    os._exit(status if status >= 0 else 128 - status)


def is_writer() -> bool:
    """Whether this process writes what all have made: the first does."""
    if not _joined:
        return True
    import jax

    return jax.process_index() == 0


def are_several() -> bool:
    """Whether there are other processes."""
    return _joined


def own_path(path: str | None, name: str) -> str | None:
    """Where this process writes a file or folder: a copy of it, but for the writer.

    All go on from the same place after a kill, so each begins with what is there,
    and what the others write is thrown away. The hosts share that disk.

    Args:
      path: given by the user; None is the screen.
      name: of the setting, for messages.

    Raises:
      UsageError: if another host sees another content there.
    """
    if not _joined or path is None:
        return path
    real = pathlib.Path(os.path.expanduser(path))
    own = str(path)
    if not is_writer():
        folder = pathlib.Path(tempfile.mkdtemp(dir=_thrown_away))
        own = str(folder / real.name)
        if real.is_dir():
            shutil.copytree(real, own)
        else:
            for file in real.parent.glob(f".{real.name}.*.partial"):
                shutil.copy(file, folder)
    sizes = [int(size) for size in _of_all(_content(pathlib.Path(own)) % 2**31)]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"want {name} {path} on a disk that all hosts share, got contents of "
            f"{sizes} bytes"
        )
    return own


def check_same(head: Mapping[str, Any]) -> None:
    """Sees to it that all processes do the same; waits for all of them.

    Hosts that were given other texts or settings would make rows of one batch of
    them, or wait for each other without end.

    Args:
      head: what must be the same, by name; JSON can hold it.

    Raises:
      UsageError: on every host, if something differs; it is named.
    """
    if not _joined:
        return
    names = sorted(head)
    values = _of_all(_codes(head))
    differing = [
        name for i, name in enumerate(names) if (values[:, i] != values[0, i]).any()
    ]
    if differing:
        raise UsageError(
            f"want the same run on every host, got other {', '.join(differing)}: "
            "give all of them the same command and the same files"
        )


def _codes(head: Mapping[str, Any]) -> Any:
    """A fingerprint of each value, as numbers [names, digits]."""
    import numpy as np

    from spec_jax.experiments.journal import digest

    return np.array(
        [list(digest({name: head[name]}).encode()) for name in sorted(head)]
    )


def wait_for_all(what: str) -> None:
    """A barrier: returns when every process has come to it.

    Args:
      what: all have done; a name for messages.
    """
    if not _joined:
        return
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(what)


def _of_all(value: Any) -> Any:
    """What every process has: whole numbers of 32 bits, with a leading axis of them."""
    import numpy as np
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(np.asarray(value, np.int32))


def _content(path: pathlib.Path) -> int:
    """Bytes in a folder, or in the unfinished parts of a file."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.is_file()]
    else:
        files = list(path.parent.glob(f".{path.name}.*.partial"))
    return sum(file.stat().st_size for file in files)


def leave() -> None:
    """Waits until all processes are done."""
    if not _joined:
        return
    wait_for_all("end")
    import jax

    jax.distributed.shutdown()


def end_if_lost(error: Exception) -> None:
    """Ends the process at once where the error comes from the other hosts.

    An orderly end would wait for the lost one. Its own mistakes end it at once too:
    the others then lose this one.
    """
    if not _joined:
        return
    if isinstance(error, ValueError | OSError):
        status, said = USAGE_STATUS, f"error: {one_line(error)}"
    elif "RESOURCE_EXHAUSTED" in str(error) or type(error).__name__ not in _OF_XLA:
        status = INTERNAL_STATUS
        said = f"internal error: {type(error).__name__}: {one_line(error)}"
    else:
        status = LOST_STATUS
        said = f"error: another host was lost ({one_line(error)[:200]}): {_AGAIN}"
    print(said, file=sys.stderr)
    sys.stderr.flush()
    os._exit(status)
