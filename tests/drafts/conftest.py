"""Settings of the drafts' tests: those of the loop's."""

from tests.decoding.conftest import little_compilation  # noqa: F401
