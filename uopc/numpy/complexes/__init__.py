"""Complex arrays: pairs of real Arrays, and NumPy's functions of them."""
