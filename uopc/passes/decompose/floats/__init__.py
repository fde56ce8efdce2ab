"""Floats that machines lack: narrow ones, quotients to integers, one rounding of two operations."""
