"""The gradient of a convolution with respect to its weights."""

from conformance.families.weight_gradient import fills, reference

__all__ = ["fills", "reference"]
