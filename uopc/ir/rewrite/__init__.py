"""Patterns, rules as data, and the engine that applies them."""
