"""The pass optimize: `opts/` transforms loops, `schedule/` chooses the transformations."""
