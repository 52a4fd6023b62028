"""`spec-jax convert`: a checkpoint in another form."""

from spec_jax.cli.errors import UsageError, did_you_mean
from spec_jax.cli.sizes import byte_size
from spec_jax.pairs.conversion import (
    DTYPES,
    FORMS,
    HUGGINGFACE_FORM,
    Conversion,
    convert,
)

SHORT = {"hf": HUGGINGFACE_FORM}
"""Forms by other names."""


def main(invocation) -> None:
    """Runs the command."""
    flags = invocation.flags
    if len(invocation.arguments) != 2:
        raise UsageError(
            f"want SOURCE and DESTINATION, got {len(invocation.arguments)} arguments: "
            f"{invocation.command.example}"
        )
    form = SHORT.get(flags.to, flags.to)
    for name, value, known in (
        ("to", form, FORMS),
        ("dtype", flags.dtype, DTYPES),
    ):
        if value is not None and value not in known:
            raise UsageError(
                f"want --{name} as one of {', '.join(known)}, got {value}"
                f"{did_you_mean(value, known)}"
            )
    source, destination = invocation.arguments
    done = convert(source, destination, form, dtype=flags.dtype, step=flags.step)
    print(one_sentence(done))


def one_sentence(done: Conversion) -> str:
    """What was read and what was written."""
    along = f", with {', '.join(done.copied)}" if done.copied else ""
    return (
        f"{done.destination}: {done.num_parameters:,} parameters in "
        f"{' and '.join(done.dtypes)} ({byte_size(done.num_bytes)}){along}, "
        f"from {done.source} ({done.kind})"
    )
