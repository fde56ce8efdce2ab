"""Machine code on this processor: compile, load, call.

plan            what the compiler tells the runtime about a program (data)
jit             LLVM IR text → object bytes
image           object bytes → code in memory
native          the runtime's own machine code; its text: entry_code, launch_code
layout          where CPython and NumPy keep the fields that machine code reads
pool            worker threads
arguments       what a caller passed → arrays and sizes, or a precise error
runner          runs a plan from Python: the slow path of every call
callables       program objects that CPython calls like a builtin
"""
