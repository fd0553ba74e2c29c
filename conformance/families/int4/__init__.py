"""Products whose second operand has packed 4-bit weights with scales and zero points."""

from conformance.families.int4 import fills, reference

__all__ = ["fills", "reference"]
