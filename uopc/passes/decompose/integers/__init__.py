"""Arithmetic of integers that machines lack, or have in fewer bits."""
