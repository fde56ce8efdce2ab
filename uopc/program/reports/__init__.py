"""Reports of a compile for people: the lines of UOPC_DEBUG, and a page of HTML."""
