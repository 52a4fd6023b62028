"""What gin files can name. Only this file tells gin of the package's parts.

Nothing is decorated: gin is a way to make the plain objects that commands take.
"""

import importlib
import inspect
from collections.abc import Callable, Iterable

import gin

from spec_jax.cli.settings import checked

# The names of gin files, where each is found, and the commands that know it.
_PAIR = (
    "demo",
    "generate",
    "compare",
    "evaluate",
    "sweep",
    "table2",
    "alpha",
    "lenience",
    "distill",
    "choose-gamma",
    "trace",
    "compile",
)
_CONFIGURABLES = {
    "T5Config": ("spec_jax.models.t5", (*_PAIR, "train")),
    "load_pair": ("spec_jax.pairs", _PAIR),
    "load_causal_lm": ("spec_jax.pairs", ("generate", "compare")),
    "Partitioner": ("spec_jax.partitioning", ("generate", "evaluate", "table2")),
    "SamplingPolicy": (
        "spec_jax.core.sampling",
        ("demo", "generate", "compare", "trace"),
    ),
    "TaskSource": (
        "spec_jax.cli.task_source",
        ("generate", "evaluate", "sweep", "table2", "alpha", "lenience", "distill"),
    ),
    "EvaluateSettings": (
        "spec_jax.experiments.evaluate",
        ("evaluate", "table2", "lenience"),
    ),
    "AlphaSettings": ("spec_jax.experiments.alpha_record", ("alpha", "lenience")),
    "make_rule": ("spec_jax.pairs", _PAIR),
    "make_lengths": ("spec_jax.pairs", _PAIR),
    "SweepSettings": ("spec_jax.experiments.sweep", ("sweep",)),
    "TrainSettings": ("spec_jax.training.train", ("train",)),
    "demo": ("spec_jax.cli.demo:DemoSettings", ("demo",)),
    "generate": ("spec_jax.cli.generate:GenerateSettings", ("generate",)),
    "compare": ("spec_jax.cli.compare:CompareSettings", ("compare",)),
    "choose_gamma": ("spec_jax.cli.choose_gamma:ChooseSettings", ("choose-gamma",)),
    "CompileSettings": ("spec_jax.experiments.tpu_compile", ("compile",)),
    "compile": ("spec_jax.cli.compile:CompileRun", ("compile",)),
    "trace": ("spec_jax.cli.trace:TraceSettings", ("trace",)),
    "evaluate": ("spec_jax.cli.evaluate:EvaluateRun", ("evaluate",)),
    "sweep": ("spec_jax.cli.sweep:SweepRun", ("sweep",)),
    "table2": ("spec_jax.cli.table2:Table2Run", ("table2",)),
    "alpha": ("spec_jax.cli.alpha:AlphaRun", ("alpha",)),
    "lenience": ("spec_jax.cli.lenience:LenienceRun", ("lenience",)),
    "train": ("spec_jax.cli.train:TrainRun", ("train",)),
    "DistillSettings": ("spec_jax.training.distill", ("distill",)),
    "distill": ("spec_jax.cli.distill:DistillRun", ("distill",)),
}
_registered: dict[str, Callable] = {}


def register(command: str) -> None:
    """Tells gin what the files of a command may name; imports only that."""
    for name, (place, commands) in _CONFIGURABLES.items():
        if command in commands and name not in _registered:
            module, _, attribute = place.partition(":")
            thing = getattr(importlib.import_module(module), attribute or name)
            # Under the package's name, so that a file may also say spec_jax.NAME.
            gin.external_configurable(checked(thing, name), name, module="spec_jax")
            _registered[name] = thing


def readers(name: str) -> tuple[str, ...]:
    """The commands whose files may name something; none for an unknown name."""
    return _CONFIGURABLES.get(name, ("", ()))[1]


def registered_names() -> Iterable[str]:
    """Every name that a file can use now."""
    return _registered.keys()


def registered_parameters(name: str) -> Iterable[str]:
    """The parameters of one of them; none for an unknown name."""
    thing = _registered.get(name.rpartition(".")[2])
    return inspect.signature(thing).parameters if thing else ()
