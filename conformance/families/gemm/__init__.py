"""Products of two matrices, and of batches of them, with scales, prologues and epilogues."""

from conformance.families.gemm import fills, reference

__all__ = ["fills", "reference"]
