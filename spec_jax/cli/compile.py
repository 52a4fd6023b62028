"""`spec-jax compile`: a pair's programs for a TPU that need not be there."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator

import jax

from spec_jax.cli.runtime import start_backend
from spec_jax.cli.settings import check_pairs
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable
from spec_jax.experiments.record import append_record, read_records
from spec_jax.experiments.tpu_compile import (
    CompileRecord,
    CompileSettings,
    compile_program,
    record_key,
    topology_devices,
)
from spec_jax.models.t5 import T5Config
from spec_jax.pairs import Pair
from spec_jax.reports.compile import markdown


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileRun:
    """Of which pairs, for what, and where it goes.

    Attributes:
      pairs: what loads each, by any name.
      settings: see `CompileSettings`.
      dtype: of parameters and activations.
      output_file: gets a JSON line a program; None: none is written.

    Raises:
      ValueError: if a value is wrong.
    """

    pairs: dict
    settings: CompileSettings
    dtype: str = "bfloat16"
    output_file: str | None = None

    def __post_init__(self):
        check_pairs(self.pairs)

    @property
    def load_pair(self) -> Callable[..., Pair]:
        """The last pair, which a dry run counts: by custom the one of most memory."""
        return list(self.pairs.values())[-1]

    @property
    def plain_dtype(self) -> str:
        """One copy of the weights serves both ways."""
        return self.dtype

    @property
    def gamma(self) -> int:
        """Drafted tokens of a step."""
        return self.settings.gamma

    def decode_shapes(self) -> tuple[tuple[int, int, int], ...]:
        """(rows, padded input length, most new tokens) of the programs."""
        one = self.settings
        return ((one.batch, one.input_length, one.new_tokens),)


def main(invocation) -> None:
    """Runs the command; programs that are in the output file are not compiled again."""
    run: CompileRun = invocation.settings
    if run.output_file is not None:
        check_writable(run.output_file, appended=True)
    # Nothing runs on a device, whichever is here.
    jax.config.update("jax_platforms", "cpu")
    # What is compiled without a device cannot be read back from there.
    jax.config.update("jax_enable_compilation_cache", False)
    start_backend()
    topology_devices(run.settings.topology)
    records = list(_records(run))
    print(markdown(records))


def _records(run: CompileRun) -> Iterator[CompileRecord]:
    """Those of the output file that are wanted, and new ones, as they are made."""
    path = None if run.output_file is None else pathlib.Path(run.output_file)
    kept = read_records(path, CompileRecord) if path and path.exists() else []
    steps_of: dict[T5Config, CompileRecord] = {}  # plain steps, by their target
    for load in run.pairs.values():
        pair = load(abstract=True, dtype=run.dtype)
        for name in run.settings.programs:
            wanted = record_key(pair, run.settings, name)
            config = pair.target.config
            record = next((one for one in kept if one.key == wanted), None)
            is_new = record is None
            if is_new and name == "plain" and config in steps_of:
                record = dataclasses.replace(steps_of[config], pair=pair.name)
            elif is_new:
                doing = f"compiling {name} of {pair.name} for {run.settings.topology}"
                with make_console(stderr=True).status(doing):
                    record = compile_program(pair, run.settings, name)
            if name == "plain":
                steps_of[config] = record
            if is_new and path is not None:
                append_record(path, record)
            yield record
