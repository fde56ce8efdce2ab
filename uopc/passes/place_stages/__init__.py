"""The pass place-stages and its cost model."""
