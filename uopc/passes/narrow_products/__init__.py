"""The pass narrow-products and its helpers."""
