"""A test-and-conformance harness for Triton's matrix kernels. CONTRIBUTING.md is the map of its packages."""
