"""Checks whether a kernel's code is in order: fences before the asynchronous proxy reads, waits for products and for
LDS."""
