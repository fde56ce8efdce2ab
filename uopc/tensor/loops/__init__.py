"""Loops and branches in the graph, of bodies that are FUNCTIONs."""
