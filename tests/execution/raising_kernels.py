"""A kernel that raises errors in the interpreter, in itself or in a function that it calls."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def shifted(a, WIDTH: tl.constexpr):
    """A sum of two blocks, which must be of one length."""
    return tl.load(a + tl.arange(0, 4)) + tl.arange(0, WIDTH)


@triton.jit
def raises(a, WAY: tl.constexpr):
    """Fails as ``WAY`` says."""
    if WAY == "name":
        tl.store(a, missing_name)  # noqa: F821
    else:
        width: tl.constexpr = 8 if WAY == "shapes" else 4
        value = shifted(a, width)
        tl.store(a + tl.arange(0, 4), value)
