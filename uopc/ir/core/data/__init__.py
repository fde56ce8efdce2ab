"""Constant arrays: identified by content in memory, and by place in files."""
