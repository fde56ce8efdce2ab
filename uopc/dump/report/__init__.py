"""The report of a compile: an HTML page with its kernels, stages, decisions and times."""
