"""The graph of a request: the facts that a compile asks of it, and its check."""
