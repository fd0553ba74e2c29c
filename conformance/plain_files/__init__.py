"""Judges the kernels of one Python file: its launches are recorded in a process apart, and its device functions taken
from its text."""
