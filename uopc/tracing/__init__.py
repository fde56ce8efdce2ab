"""Python functions as programs: `uopc.jit`, and the containers that it takes and gives."""
