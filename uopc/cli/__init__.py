"""The command line: `uopc dump|passes|ops|rules|check|bench|cache|doctor`."""
