"""Other people's decoders and scripts, and ours under them."""

import importlib.util


def t5x_installed() -> bool:
    """Whether t5x is there to import; finding out does not import it."""
    return importlib.util.find_spec("t5x") is not None
