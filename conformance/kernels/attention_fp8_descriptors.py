"""Attention forward of fp8 operands by tensor descriptors, whose loops over keys may give warps different work."""

from __future__ import annotations

import dataclasses

from conformance.kernels.attention_descriptors import CONFIGS, DescribedForward
from conformance.kernels.attention_fp8 import Fp8Forward


class DescribedFp8Forward(DescribedForward, Fp8Forward):
    """Loads, stores and loops of :class:`DescribedForward`, arithmetic of :class:`Fp8Forward`."""

    limits = dataclasses.replace(DescribedForward.limits, scales=True, depth=32)
    rare_dtypes: tuple[str, ...] = ()


KERNELS = (DescribedFp8Forward("attention_fp8_descriptors", None, CONFIGS),)
