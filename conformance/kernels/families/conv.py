"""The base of the kernels of convolutions."""

from __future__ import annotations

from typing import Any

from conformance.families.conv.problem import Conv
from conformance.families.examples import FLOATS
from conformance.kernels.kernel import Kernel


class ConvFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.conv.problem.Conv`. A third-party kernel needs only
    this base."""

    problems: type[Any] = Conv
    weight = 1
    family = "conv"
    dtypes = FLOATS
    #: whether it takes windows of one tap only
    pointwise: bool = False
    #: whether it computes transposed convolutions
    transposed: bool = False
    #: whether it takes groups of one channel only
    depthwise: bool = False
    #: whether its programs are split by the remainders of output positions by the stride
    phases: bool = False

    @property
    def rank(self) -> int:
        """Dimensions of the images of its examples: 3 only if it takes no others."""
        return 3 if self.operations == {"conv3d"} else 2
