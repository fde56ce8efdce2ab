"""Running on an NVIDIA device: the assembler, the driver through pycuda, calls of programs.

This package is imported when a program for `cuda` is made, pycuda when such a program is loaded.
"""
