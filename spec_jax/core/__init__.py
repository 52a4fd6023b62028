"""The mathematics: distributions, draws, verification, theory. JAX only."""
