"""Grouped products: several matrices of different sizes in one launch."""

from conformance.families.grouped import fills, reference

__all__ = ["fills", "reference"]
