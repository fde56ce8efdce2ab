"""The pass canonicalize and its helpers."""
