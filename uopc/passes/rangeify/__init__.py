"""The pass rangeify and its helpers."""
