"""Compiles kernels, in worker processes with a deadline, and reads resources and structure from the compiled code."""
