"""The pass reroll and its helpers."""
