"""Runs kernels in Triton's interpreter, with corrections for its known faults, and records the memory they access."""
