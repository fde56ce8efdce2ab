"""Linear kernels as functions in C11."""
