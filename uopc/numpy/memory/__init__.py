"""Memory as NumPy's: views of Arrays, and writes that every view sees."""
