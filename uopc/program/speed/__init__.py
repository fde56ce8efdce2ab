"""The speed of programs: the work of their kernels, a prediction, and arguments for measuring."""
