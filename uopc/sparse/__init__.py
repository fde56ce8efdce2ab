"""Sparse Jacobians and Hessians of graphs: nothing but their entries is computed."""
