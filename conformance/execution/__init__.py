"""Compiles a kernel, and runs it in guarded memory on the device or in Triton's interpreter."""
