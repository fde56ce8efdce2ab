"""From one graph and a mesh to the graph that each device runs."""
