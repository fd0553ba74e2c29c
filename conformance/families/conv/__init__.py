"""Convolutions: a product of each kernel position with the input, in two and three dimensions, also transposed."""

from conformance.families.conv import fills, reference

__all__ = ["fills", "reference"]
