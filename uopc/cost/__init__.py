"""The cost of a kernel on a machine: cycles of its loops, and traffic between the caches."""
