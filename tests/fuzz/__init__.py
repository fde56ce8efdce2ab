"""A differential fuzzer: random graphs from the op table, compiled and interpreted.

`vocabulary.py` says which op takes which dtype, `generate.py` draws a graph for a number,
`check.py` runs it every way there is and compares, `__main__.py` is the command.
"""
