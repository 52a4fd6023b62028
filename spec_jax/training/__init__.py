"""Training of targets and drafts with optax."""
