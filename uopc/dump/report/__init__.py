"""The report of a compile: one page of HTML with its kernels, stages, decisions and times."""
