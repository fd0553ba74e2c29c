"""Compiles a kernel and runs it, on the device or in Triton's interpreter, with guards around its memory."""
