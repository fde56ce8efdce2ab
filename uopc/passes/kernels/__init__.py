"""From loops over storage to a program of kernel calls."""
