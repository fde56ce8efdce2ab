"""Programs and kernels from caches: keys, records on disk, and the look-ups of a compile."""
