"""Derivatives and batches of graphs: graphs in, graphs out. No pass uses this package."""
