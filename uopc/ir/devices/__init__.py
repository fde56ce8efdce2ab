"""Devices: the one of a value, meshes of several, and how an array is cut over a mesh."""
