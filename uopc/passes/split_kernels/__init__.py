"""The pass split-kernels and its helpers."""
