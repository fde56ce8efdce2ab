"""Functions such as sines and logarithms as arithmetic."""
