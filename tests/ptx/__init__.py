"""PTX without a GPU: a parser, a machine that executes it with NumPy, and the assembler's figures.

One lane is a thread; every lane of many blocks runs at once. The machine is strict where hardware
is not: what is out of bounds, misaligned, divergent at a barrier or raced for is an error that
names the instruction and the thread.
"""
