"""The command line: `uopc dump|run|replay|passes|ops|rules|check|bench|cache|doctor`."""
