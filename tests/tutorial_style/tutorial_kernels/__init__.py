"""Kernels in the style of Triton's tutorials 03, 06 and 09, as an outsider would bring them to the harness.

None of them takes what the usual example asks for: each has orders, variants or shapes of its own.
"""

import os

from tutorial_kernels.attention import FusedAttention
from tutorial_kernels.persistent import ContiguousMatmul, PersistentMatmul
from tutorial_kernels.tuned import GreedyMatmul, OversizedMatmul, RaisingMatmul, TunedMatmul, WrappedMatmul

#: More kernels, which the tests add by the variable TUTORIAL_MORE: names of them with spaces between.
MORE = {
    kernel.name: kernel
    for kernel in (ContiguousMatmul(), GreedyMatmul(), OversizedMatmul(), RaisingMatmul(), WrappedMatmul())
}


def kernels():
    more = os.environ.get("TUTORIAL_MORE", "").split()
    return [TunedMatmul(), FusedAttention(), PersistentMatmul(), *(MORE[name] for name in more)]
