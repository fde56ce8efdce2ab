"""Checks that a graph obeys its level and that no access leaves its storage."""
