"""The shipped pair: data only."""
