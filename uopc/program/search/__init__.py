"""How long kernels take: their work, an estimate, and the search for the Opts that take least.

See docs/tuning.md.
"""
