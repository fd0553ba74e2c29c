"""A test-and-conformance harness for Triton's matrix kernels. CONTRIBUTING.md is the map of its packages.

PYTEST_DONT_REWRITE: the command imports this module before pytest, which would warn that it comes too late for it.
"""
