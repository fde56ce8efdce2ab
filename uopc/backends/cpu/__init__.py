"""Running programs on this processor: load machine code, check arguments, launch.

elf_loader      object bytes → code in memory
native          the runtime's own machine code; its text: entry_ir, keyword_ir, launch_ir
layout          offsets of the fields of CPython's and NumPy's objects that machine code reads
pool            worker threads
arguments       a call's arguments → arrays and sizes, or a precise error
runner          runs a plan from Python: the slow path of every call
callables       program objects that CPython calls like a builtin
bounded_cache   maps of bounded size
"""
