"""A graph as text and back: `parse(print_graph(u)) is u`."""
