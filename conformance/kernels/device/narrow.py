"""Device code of mxfp8, mxfp4 and codebooks: each program has a block of rows and walks over their columns.

Two neighbours whose codes share a byte are loaded as two matrices, of the even and of the odd columns.
"""

import triton
import triton.language as tl

from conformance.kernels.device.quantisation import load_scales, nearest
from conformance.kernels.device.rotary import pair_columns
from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def scale_byte(amax, EMAX: tl.constexpr):
    """Returns the byte of the scale of blocks whose largest size is ``amax``."""
    exponent = (amax.to(tl.int32, bitcast=True) >> 23) - EMAX
    return tl.maximum(exponent, 0)


@triton.jit
def reciprocal(byte):
    """Returns 2**(127 - byte), from its bits."""
    return ((254 - byte) << 23).to(tl.float32, bitcast=True)


@triton.jit
def power(byte):
    """Returns 2**(byte - 127), from its bits; NaN for 255."""
    bits = tl.where(byte == 0, 0x400000, byte << 23)
    return tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def mxfp8_rows(
    x_ptr, out_ptr, scale_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows in mxfp8: e4m3 numbers and a scale for each GROUP columns."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    blocks = tl.cdiv(columns, GROUP)
    GROUPS: tl.constexpr = BLOCK_N // GROUP
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        x = tl.reshape(x, [BLOCK_M, GROUPS, GROUP])
        byte = scale_byte(tl.max(tl.abs(x), 2), 8)
        store_block(scale_ptr, byte, rm, there, blocks, 1, start // GROUP, blocks, GROUPS, WIDE_INDEX)
        out = tl.reshape(nearest(x * reciprocal(byte)[:, :, None], True), [BLOCK_M, BLOCK_N])
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def mxfp8_back_rows(
    codes_ptr, scale_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows of mxfp8 as numbers."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    for start in range(0, columns, BLOCK_N):
        codes = load_block(codes_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        byte = load_scales(scale_ptr, rm, there, start, columns, GROUP, BLOCK_N, WIDE_INDEX).to(tl.int32)
        out = codes * power(byte)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def load_pairs(ptr, rm, there, stride_m, stride_n, start, columns, PAIRS: tl.constexpr, WIDE: tl.constexpr):
    """Returns the even and the odd columns of PAIRS pairs of columns in fp32, 0 outside the matrix."""
    first, second, _ = pair_columns(start, columns, True, PAIRS, WIDE)
    row = ptr + rm[:, None] * stride_m
    even = tl.load(row + first[None, :] * stride_n, mask=there[:, None] & (first < columns)[None, :], other=0.0)
    odd = tl.load(row + second[None, :] * stride_n, mask=there[:, None] & (second < columns)[None, :], other=0.0)
    return even.to(tl.float32), odd.to(tl.float32)


@triton.jit
def store_pairs(ptr, even, odd, rm, there, stride_m, stride_n, start, columns, PAIRS: tl.constexpr, WIDE: tl.constexpr):
    """Stores what :func:`load_pairs` would load."""
    first, second, _ = pair_columns(start, columns, True, PAIRS, WIDE)
    row = ptr + rm[:, None] * stride_m
    inside = there[:, None] & (first < columns)[None, :]
    tl.store(row + first[None, :] * stride_n, even.to(ptr.dtype.element_ty), mask=inside)
    inside = there[:, None] & (second < columns)[None, :]
    tl.store(row + second[None, :] * stride_n, odd.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def largest_of_blocks(even, odd, BLOCK_M: tl.constexpr, PAIRS: tl.constexpr, GROUP: tl.constexpr):
    """Returns the largest size of each GROUP columns."""
    sizes = tl.maximum(tl.abs(even), tl.abs(odd))
    return tl.max(tl.reshape(sizes, [BLOCK_M, 2 * PAIRS // GROUP, GROUP // 2]), 2)


@triton.jit
def of_pairs(blocks, BLOCK_M: tl.constexpr, PAIRS: tl.constexpr, GROUP: tl.constexpr):
    """Returns the value of its block for each pair of columns."""
    each = tl.broadcast_to(blocks[:, :, None], [BLOCK_M, 2 * PAIRS // GROUP, GROUP // 2])
    return tl.reshape(each, [BLOCK_M, PAIRS])


@triton.jit
def e2m1_code(v):
    """Returns the code of the nearest e2m1 number: ties go to the even one."""
    size = tl.abs(v)
    low = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32) + (size > 1.25).to(tl.int32)
    high = (size >= 1.75).to(tl.int32) + (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32)
    sign = (v.to(tl.int32, bitcast=True) >> 28) & 8
    return low + high + (size > 5.0).to(tl.int32) + sign


@triton.jit
def e2m1_value(code):
    """Returns the number of an e2m1 code."""
    place = code & 7
    small = place.to(tl.float32)
    size = tl.where(place < 4, small * 0.5, tl.where(place < 6, small - 2.0, small * 2.0 - 8.0))
    return tl.where(code >= 8, -size, size)


@triton.jit
def mxfp4_rows(
    x_ptr, out_ptr, scale_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows in mxfp4: e2m1 numbers, two a byte, and a scale for each GROUP columns."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    blocks = tl.cdiv(columns, GROUP)
    pairs = tl.cdiv(columns, 2)
    PAIRS: tl.constexpr = BLOCK_N // 2
    for start in range(0, pairs, PAIRS):
        even, odd = load_pairs(x_ptr, rm, there, stride_xm, stride_xn, start, columns, PAIRS, WIDE_INDEX)
        byte = scale_byte(largest_of_blocks(even, odd, BLOCK_M, PAIRS, GROUP), 2)
        first = start * 2 // GROUP
        store_block(scale_ptr, byte, rm, there, blocks, 1, first, blocks, BLOCK_N // GROUP, WIDE_INDEX)
        factor = of_pairs(reciprocal(byte), BLOCK_M, PAIRS, GROUP)
        out = e2m1_code(even * factor) + 16 * e2m1_code(odd * factor)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, pairs, PAIRS, WIDE_INDEX)


@triton.jit
def load_codes(ptr, rm, there, stride_m, stride_n, start, columns, PAIRS: tl.constexpr, WIDE: tl.constexpr):
    """Returns the codes of the even and of the odd columns of PAIRS bytes."""
    pairs = tl.cdiv(columns, 2)
    byte = load_block(ptr, rm, there, stride_m, stride_n, start, pairs, 0, PAIRS, WIDE).to(tl.int32)
    return byte & 15, byte >> 4


@triton.jit
def mxfp4_back_rows(
    codes_ptr, scale_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows of mxfp4 as numbers."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    PAIRS: tl.constexpr = BLOCK_N // 2
    for start in range(0, tl.cdiv(columns, 2), PAIRS):
        even, odd = load_codes(codes_ptr, rm, there, stride_xm, stride_xn, start, columns, PAIRS, WIDE_INDEX)
        pairs = tl.cdiv(columns, 2)
        byte = load_scales(scale_ptr, rm, there, start, pairs, GROUP // 2, PAIRS, WIDE_INDEX).to(tl.int32)
        even = e2m1_value(even) * power(byte)
        odd = e2m1_value(odd) * power(byte)
        store_pairs(out_ptr, even, odd, rm, there, stride_om, stride_on, start, columns, PAIRS, WIDE_INDEX)


@triton.jit
def nearest_code(v, book_ptr):
    """Returns how many thresholds, half-way between neighbours of the codebook, lie below v."""
    code = tl.zeros_like(v).to(tl.int32)
    for number in tl.static_range(15):
        threshold = (tl.load(book_ptr + number) + tl.load(book_ptr + number + 1)) * 0.5
        code += (v > threshold).to(tl.int32)
    return code


@triton.jit
def codebook_rows(
    x_ptr, book_ptr, out_ptr, scale_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows as codes of a codebook, two a byte, and a scale for each GROUP columns."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    blocks = tl.cdiv(columns, GROUP)
    pairs = tl.cdiv(columns, 2)
    PAIRS: tl.constexpr = BLOCK_N // 2
    for start in range(0, pairs, PAIRS):
        even, odd = load_pairs(x_ptr, rm, there, stride_xm, stride_xn, start, columns, PAIRS, WIDE_INDEX)
        scale = tl.maximum(largest_of_blocks(even, odd, BLOCK_M, PAIRS, GROUP), eps)
        first = start * 2 // GROUP
        store_block(scale_ptr, scale, rm, there, blocks, 1, first, blocks, BLOCK_N // GROUP, WIDE_INDEX)
        each = of_pairs(scale, BLOCK_M, PAIRS, GROUP)
        low = nearest_code(even / each, book_ptr)
        high = nearest_code(odd / each, book_ptr)
        _, second, _ = pair_columns(start, columns, True, PAIRS, WIDE_INDEX)
        high = tl.where((second < columns)[None, :], high, 0)
        store_block(out_ptr, low + 16 * high, rm, there, stride_om, stride_on, start, pairs, PAIRS, WIDE_INDEX)


@triton.jit
def codebook_back_rows(
    codes_ptr, scale_ptr, book_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows of codes of a codebook as numbers."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    PAIRS: tl.constexpr = BLOCK_N // 2
    for start in range(0, tl.cdiv(columns, 2), PAIRS):
        even, odd = load_codes(codes_ptr, rm, there, stride_xm, stride_xn, start, columns, PAIRS, WIDE_INDEX)
        pairs = tl.cdiv(columns, 2)
        scale = load_scales(scale_ptr, rm, there, start, pairs, GROUP // 2, PAIRS, WIDE_INDEX)
        even = tl.load(book_ptr + even) * scale
        odd = tl.load(book_ptr + odd) * scale
        store_pairs(out_ptr, even, odd, rm, there, stride_om, stride_on, start, columns, PAIRS, WIDE_INDEX)
