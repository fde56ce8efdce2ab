"""Factors, solutions and determinants of matrices, and the loops that compute them."""
