"""The pass simplify-values and its helpers."""
