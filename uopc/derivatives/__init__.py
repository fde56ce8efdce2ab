"""Derivatives and batches of graphs: graphs in, graphs out. No pass knows of them."""
