"""The pass simplify-ranges and its helpers."""
