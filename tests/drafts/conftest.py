"""Settings of the drafts' tests."""

import jax
import pytest


@pytest.fixture(autouse=True)
def little_compilation(request):
    """Compiles half as long: most of these tests run a tiny program once.

    The slow tests of the law compile as a user does.
    """
    quick = request.node.get_closest_marker("slow") is None
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
