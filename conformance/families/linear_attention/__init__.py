"""Linear attention: attention without a softmax, with a state that decays."""

from conformance.families.linear_attention import fills, reference

__all__ = ["fills", "reference"]
