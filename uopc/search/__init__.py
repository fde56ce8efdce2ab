"""The search for the fastest Opts of a kernel, with measurements of the machine and an estimate.

See docs/tuning.md.
"""
