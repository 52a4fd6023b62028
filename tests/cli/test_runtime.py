import os

import jax
import pytest

from spec_jax.cli.decoding import fastest_dtypes, load_both
from spec_jax.cli.runtime import limit_cpu_threads
from spec_jax.decoding.tpu import ask_libtpu


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


def test_libtpu_is_asked_once_and_what_comes_from_outside_stays(monkeypatch, run):
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    assert run("generate", "A text.", "--max_new_tokens=0").status == 2  # any command
    asked = os.environ["LIBTPU_INIT_ARGS"]
    assert asked == "--xla_tpu_enable_dot_strength_reduction=false"
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "")
    ask_libtpu()
    assert os.environ["LIBTPU_INIT_ARGS"] == ""


def test_the_fastest_dtypes_of_one_row_and_of_several():
    several = "float32" if jax.__version_info__ < (0, 12) else "bfloat16"
    assert fastest_dtypes(None, None) == (several, "float32")
    assert fastest_dtypes("float16", "bfloat16") == ("float16", "bfloat16")


def test_several_rows_decode_plainly_in_their_own_dtype():
    several = "float32" if jax.__version_info__ < (0, 12) else "bfloat16"
    assert fastest_dtypes(None, None, batch=2) == (several, several)


def test_a_draft_for_one_row_is_loaded_in_the_dtype_for_one_row():
    def load_pair(dtype, draft_dtype=None):
        return dtype, draft_dtype or dtype

    def load_without_draft(dtype):
        return dtype

    several = "float32" if jax.__version_info__ < (0, 12) else "bfloat16"
    one = ("float32", "float32")
    assert load_both(load_pair, None, None) == ((several, "float32"), one)
    rows = (several, several)
    assert load_both(load_pair, None, None, batch=2) == (rows, rows)
    given = ("bfloat16", "bfloat16")
    assert load_both(load_pair, "bfloat16", "bfloat16") == (given, given)
    assert load_both(load_without_draft, None, None) == (several, "float32")
