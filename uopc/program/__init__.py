"""From a request to a callable: lowered once, planned, compiled or found in the cache."""
