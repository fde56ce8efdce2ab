"""The pass linearize and its helpers, and fuse-products behind it."""
