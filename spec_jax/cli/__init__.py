"""The command line: the only room that knows gin and absl's flags."""
