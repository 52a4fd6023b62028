"""Algorithms and loops; they know no model and no draft."""
