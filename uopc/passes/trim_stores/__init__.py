"""The pass trim-stores and its helpers."""
