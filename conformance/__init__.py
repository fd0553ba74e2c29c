"""A conformance harness for Triton's GEMM kernels."""
