"""`python -m spec_jax.cli COMMAND` is `spec-jax COMMAND`."""

from spec_jax.cli.main import run

if __name__ == "__main__":
    run()
