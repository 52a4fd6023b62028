"""Measurements: clocks, records, and the figures of the paper's Table 2."""
