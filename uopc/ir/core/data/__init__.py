"""The arrays of constants: in memory, by content, and in files, by place."""
