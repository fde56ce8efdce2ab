"""Types, the op table, the interned node, and the facts about one node: shape, bounds, ranges."""
