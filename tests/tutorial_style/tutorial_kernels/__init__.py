"""Kernels in the style of Triton's tutorials 03, 06 and 09, as an outsider would bring them to the harness.

None of them takes what the usual example asks for: each has orders, variants or shapes of its own.
"""

import os

from tutorial_kernels.attention import FusedAttention
from tutorial_kernels.persistent import PersistentMatmul
from tutorial_kernels.tuned import TunedMatmul, WrappedMatmul


def kernels():
    """The three; with TUTORIAL_WRAPPED also a fourth, whose launch has the function that the autotuner wraps."""
    wrapped = [WrappedMatmul()] if os.environ.get("TUTORIAL_WRAPPED") else []
    return [TunedMatmul(), FusedAttention(), PersistentMatmul(), *wrapped]
