"""Loops and branches in the graph; their bodies are FUNCTIONs."""
