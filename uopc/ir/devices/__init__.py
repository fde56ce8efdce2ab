"""Devices: the device of a value, tiles of matrix units, meshes, and arrays cut over a mesh."""
