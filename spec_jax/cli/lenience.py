"""`spec-jax lenience`: the paper's Table 5 for a target and its drafts."""

import dataclasses
import gc
import os
import pathlib
from typing import ClassVar

from spec_jax.cli import alpha
from spec_jax.cli.decoding import load_both
from spec_jax.cli.evaluate import RESULTS, Place, Work, measure
from spec_jax.cli.settings import once, require
from spec_jax.cli.texts import check_writable
from spec_jax.core.rules import LenientRule
from spec_jax.experiments.evaluate import EvaluateSettings
from spec_jax.experiments.lenience import check_leniences
from spec_jax.experiments.record import Record
from spec_jax.reports.alpha import lenience_markdown


@dataclasses.dataclass(frozen=True, kw_only=True)
class LenienceRun(alpha.AlphaRun):
    """Of which drafts, how lenient, on what, and where it goes.

    Attributes:
      leniences: each l in (0, 1].
      speed_examples: texts of each task that are decoded and timed at temperature 0
        under the rule of each l, for each of `pairs`; 0 is none.
      speed: how they are.
      plain_dtype: of plain decoding there; None is the fastest here.
    """

    speed: EvaluateSettings
    leniences: tuple[float, ...] = (1.0, 0.5, 0.3, 0.1)
    speed_examples: int = 0
    plain_dtype: str | None = None

    t5x_baseline: ClassVar[bool] = False
    """t5x has no such rule."""

    def __post_init__(self):
        super().__post_init__()
        check_leniences(self.leniences)
        once(self, "leniences")
        require(
            self.speed_examples >= 0,
            f"want SPEED_EXAMPLES >= 0, got {self.speed_examples}",
        )

    @property
    def gamma(self) -> int:
        """Drafted tokens of the longest step."""
        return self.speed.gamma if self.speed_examples else 1

    @property
    def rows(self) -> int:
        """One where one row at a time is timed."""
        return self.speed.batch if self.speed_examples else self.settings.batch


def main(invocation) -> None:
    """Runs the command; lines that are there are not measured again."""
    run: LenienceRun = invocation.settings
    records = alpha.measure(run, invocation, run.leniences)
    names = (alpha.RECORDS, alpha.OUTPUTS + "/")
    speeds = []
    if run.speed_examples:
        names = (*names, RESULTS)
        speeds = measure_speeds(run, invocation.operative_config())
    alpha.finish(run, lenience_markdown(records, speeds), names)


def measure_speeds(run: LenienceRun, config: str) -> list[tuple[str, Record]]:
    """Decodes of the first texts at temperature 0 under each rule, timed.

    With l = 1 the rule is the token rule, whose speed the others are compared with.

    Args:
      run: says what.
      config: of the run, as a gin file.

    Returns:
      A name in `pairs` and a record for each.
    """
    check_writable(os.path.join(run.output_dir, RESULTS), appended=True)
    place = Place(pathlib.Path(run.output_dir), config)
    source = dataclasses.replace(run.tasks, num_examples=run.speed_examples)
    records = []
    for name, load in run.pairs.items():
        pairs = load_both(load, run.dtype, run.plain_dtype)
        work = [
            Work(
                f"{data.name}, {name}, lenience {one:g}",
                data,
                dataclasses.replace(
                    run.speed,
                    temperature=0.0,
                    rule=None if one == 1 else LenientRule(one),
                    score_draft=False,
                ),
                name,
            )
            for data in source.load(pairs[0].vocabulary)
            for one in run.leniences
        ]
        records += [(name, record) for record in measure(run, pairs, work, place)]
        del pairs
        gc.collect()
    return records
