"""Device functions that another module names as attributes."""

import triton
import triton.language as tl

SUM = tl.float32


@triton.jit
def program_id(axis):
    return tl.program_id(axis).to(tl.int64)
