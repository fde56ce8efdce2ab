"""The Opts: one loop transformation each."""
