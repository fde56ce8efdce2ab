"""The reference semantics: runs a graph of any level in NumPy."""
