"""The time of kernels: their work, an estimate, and the search for the Opts that take least.

See docs/tuning.md.
"""
