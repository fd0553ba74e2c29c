"""Block-scaled products: mxfp4, mxfp8 and nvfp4 operands with one scale for each block of K."""

from conformance.families.microscaled import fills, reference

__all__ = ["fills", "reference"]
