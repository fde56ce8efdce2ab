"""Recorded graphs replayed: `python -m tests.conformance DIR` compiles and runs every case in DIR.

A case is a tensor graph with its inputs, the outputs another compiler computed for it, and how
many kernels that one launched. `corpus` reads the files, `loader` maps the recorded nodes onto
uopc's, `runner` compiles and runs one case, `compare` and `perturb` say what counts as equal,
`workers` runs many in processes of their own, `report` prints. `ir` replays the pure-IR data.
"""
