import os

import jax
import pytest

from spec_jax.cli.decoding import fastest_dtypes
from spec_jax.cli.runtime import limit_cpu_threads


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("PJRT_NPROC", "7")
    return os.environ


def test_one_row_takes_one_thread_unless_told_otherwise(environment):
    limit_cpu_threads(None, batch=1)
    assert environment["PJRT_NPROC"] == "7"
    del environment["PJRT_NPROC"]
    limit_cpu_threads(None, batch=1)
    assert environment["PJRT_NPROC"] == "1"


def test_more_rows_take_all(environment):
    del environment["PJRT_NPROC"]
    limit_cpu_threads(None, batch=2)
    assert "PJRT_NPROC" not in environment


def test_the_flag_wins(environment):
    limit_cpu_threads(3, batch=1)
    assert environment["PJRT_NPROC"] == "3"
    with pytest.raises(ValueError, match="--cpu_threads >= 1"):
        limit_cpu_threads(0, batch=1)


def test_the_fastest_dtypes_of_one_row_and_of_several():
    several = "float32" if jax.__version_info__ < (0, 12) else "bfloat16"
    assert fastest_dtypes(None, None) == (several, "float32")
    assert fastest_dtypes("float16", "bfloat16") == ("float16", "bfloat16")
