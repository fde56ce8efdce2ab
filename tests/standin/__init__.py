"""A device that is not there: a stand-in for NVIDIA's driver whose kernels the PTX machine runs.

`module.py` stands in for pycuda.driver itself, where pycuda is not installed; `library.py` builds a
libcuda.so.1 in C that hands every call over to Python, so that the real pycuda runs on it.
"""
