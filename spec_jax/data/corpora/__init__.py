"""Builds the training corpora from the documentation in Debian packages.

`build_debian` is the whole of it: `debian_packages` obtains the text; one module a
kind of document aligns English with German (`descriptions`, `libreoffice`,
`manpages`, `catalogues`, `documents`); `splits` divides the rows into train,
validation and test and removes near copies; `build` runs the stages.
"""

from spec_jax.data.corpora.build import build_debian
from spec_jax.data.corpora.debian_packages import BuildError

__all__ = ["BuildError", "build_debian"]
