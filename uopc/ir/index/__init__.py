"""Arithmetic on integers of dtype index, which never wrap, in one normal form."""
