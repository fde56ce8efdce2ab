"""Export the function that the programs beside this file call.

    python make.py OUT && gcc main.c OUT/libdistances.a -IOUT && ./a.out

lengths: of the rows of a matrix with any number of rows; total: of all its elements.
"""

import sys

import uopc

x = uopc.param("x", (uopc.variable("n", 1, 1000), 3), uopc.dtypes.float64)
graph = {"lengths": (x * x).sum(axis=1).sqrt(), "total": x.sum()}
folder = sys.argv[1]
for kind in ("static", "shared"):
    uopc.export(graph, f"{folder}/libdistances", kind=kind, name="distances")
uopc.export(graph, f"{folder}/distances", kind="shared", target="wasm32")
print("exported", "distances")
