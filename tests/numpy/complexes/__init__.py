"""Tests of complex arrays."""
