"""Gated linear attention by products of transposed products: of the scores, and of the state that the loop sums.

The transposed result of a product as an operand: https://github.com/triton-lang/triton/issues/6124.
"""

from __future__ import annotations

from conformance.heuristics.configs import AnyConfig, LinearAttentionConfig
from conformance.kernels.device.linear_attention_transposed import linear_attention_transposed
from conformance.kernels.linear_attention import GatedLinearAttention

#: Either block the smaller one, one stage and several.
CONFIGS: tuple[AnyConfig, ...] = (
    LinearAttentionConfig(16, 32, 1, 2),
    LinearAttentionConfig(64, 16, 2, 4),
    LinearAttentionConfig(32, 64, 3, 4),
)


class TransposedLinearAttention(GatedLinearAttention):
    """The same with the state and the scores summed the other way round."""

    configs = CONFIGS
    transposed = True
    function = linear_attention_transposed


KERNELS: tuple[TransposedLinearAttention, ...] = (TransposedLinearAttention("linear_attention_transposed"),)
