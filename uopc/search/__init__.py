"""The search for the fastest Opts of a kernel, by measured time.

See docs/tuning.md.
"""
