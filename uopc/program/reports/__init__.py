"""What a compile tells people: the lines of UOPC_DEBUG, and a page of HTML."""
