"""Running on an NVIDIA device: the assembler, the driver through pycuda, calls of programs.

Nothing here is imported before a program for `cuda` is compiled; pycuda not before it is launched.
"""
