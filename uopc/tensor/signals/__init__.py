"""Convolutions, pools, resizing and Fourier transforms: functions along axes of space or time."""
