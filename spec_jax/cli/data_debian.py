"""`spec-jax data debian`: the corpora, from Debian packages."""

import os

from spec_jax.cli.errors import UsageError
from spec_jax.cli.terminal import make_console
from spec_jax.cli.texts import check_writable


def main(invocation) -> None:
    """Runs the command."""
    from spec_jax.data.corpora import BuildError, build_debian

    flags = invocation.flags
    for folder in filter(None, (flags.output_dir, flags.workdir)):
        check_writable(os.path.join(folder, "report.json"))
    try:
        report = build_debian(flags.output_dir, flags.root, flags.workdir)
    except BuildError as error:
        raise UsageError(str(error)) from error
    console = make_console()
    for task, splits in report["splits"].items():
        counts = ", ".join(f"{of['rows']} {split}" for split, of in splits.items())
        console.print(f"{task}: {counts}")
    for note in report.get("notes", ()):
        console.print(f"note: {note}", markup=False)
