"""Python functions as programs: `uopc.jit`, and the containers of its arguments and results."""
