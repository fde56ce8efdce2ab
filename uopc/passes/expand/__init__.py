"""The pass expand and its helpers."""
