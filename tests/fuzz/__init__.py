"""A differential fuzzer: random cases of several kinds, each in a child process.

`kinds.py` has the table of kinds, `workers.py` the child processes, `__main__.py` the command.
For the kind `graphs`, `vocabulary.py` says which op takes which dtype, `generate.py` draws a graph
for a number, and `check.py` runs it every way there is and compares.
"""
