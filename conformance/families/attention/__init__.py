"""Attention: the softmax of scaled products, forward and backward, with masks, scores, pages and packed sequences."""

from conformance.families.attention import fills, reference

__all__ = ["fills", "reference"]
