"""The pass linearize and its helpers."""
