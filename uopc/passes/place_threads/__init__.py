"""The pass place-threads and its helpers."""
