"""python main.py OUT: through ctypes and NumPy, without a compiler."""

import sys

import numpy as np

import uopc

distances = uopc.load_exported(f"{sys.argv[1]}/libdistances.so")
made = distances(np.array([[3.0, 0.0, 4.0], [1.0, 2.0, 2.0]]))
print(*[f"{value:g}" for value in (*made["lengths"], made["total"])])
try:
    distances(np.zeros((0, 3)))
except uopc.UserError:
    sys.exit(0)
sys.exit(1)
