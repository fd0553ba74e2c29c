"""Grouped products with block-scaled operands."""

from conformance.families.microscaled_grouped import fills, reference

__all__ = ["fills", "reference"]
