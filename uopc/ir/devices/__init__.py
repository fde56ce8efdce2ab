"""Devices: the one of a value, tiles of matrix units, meshes, and how an array is cut over a mesh."""
