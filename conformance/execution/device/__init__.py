"""Runs kernels on a GPU, in guarded memory, and finds the first error of a launch."""
