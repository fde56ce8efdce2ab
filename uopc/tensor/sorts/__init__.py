"""Sorts of rows: sort, argsort, top_k and searchsorted, and the kernels behind them."""
