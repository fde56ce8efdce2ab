"""Functions of samples: curves through them, and their statistics."""
