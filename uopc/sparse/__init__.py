"""Sparse Jacobians and Hessians of graphs: only their entries are computed."""
