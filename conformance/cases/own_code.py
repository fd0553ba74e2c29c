"""Kernels of products that stand for others with the same device code, where a suite is about every index of it."""

from __future__ import annotations

from conformance.kernels.kernel import Kernel

#: Kernels that run a device function of another kernel, on fewer operands or without the further work of the other.
SAME_CODE = frozenset(
    {
        *("addmm", "scaled_mm", "contiguous_mm", "bmm", "mixed_mm", "mm_persistent_tma", "scaled_mm_persistent_tma"),
        *("mm_fp64", "fp8_bmm"),
        *("mm_blackwell_ws", "scaled_mm_blackwell_ws"),
    }
)


def has_own_code(kernel: Kernel) -> bool:
    """True if a kernel multiplies matrices, or batches of them, with device code that no other kernel shows. A
    third-party kernel does."""
    return kernel.family in ("gemm", "split-k") and kernel.name not in SAME_CODE
