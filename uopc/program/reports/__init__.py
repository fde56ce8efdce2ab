"""Reports about a compile: the lines of UOPC_DEBUG, and an HTML page."""
