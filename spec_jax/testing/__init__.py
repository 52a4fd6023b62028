"""Decoders with a known law, enumeration and goodness-of-fit, for anyone's tests."""
