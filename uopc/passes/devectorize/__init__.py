"""The pass devectorize and its helpers."""
