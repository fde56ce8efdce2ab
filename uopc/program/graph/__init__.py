"""The graph of a request: its facts, its check, and how its arrays lie on a mesh."""
