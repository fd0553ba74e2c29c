"""Small kernels over which the interpreter is proved before it is used."""
# numbers have the methods of tensors here
# mypy: disable-error-code="attr-defined"

import triton
import triton.language as tl


@triton.jit
def constants(x, y, out, SIZE: tl.constexpr):
    """x * 2.5 + full(0.2), each step in the format of the operands."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at) * 2.5 + tl.full([SIZE], 0.2, x.dtype.element_ty))


@triton.jit
def comparisons(x, y, out, SIZE: tl.constexpr):
    """Returns x > y as a number, plus twice x == y."""
    at = tl.arange(0, SIZE)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a > b)
    tl.store(out + at, tl.load(out + at) + tl.where(a == b, 2.0, 0.0).to(x.dtype.element_ty))


@triton.jit
def larger_numbers(x, y, out, SIZE: tl.constexpr):
    """The larger of x and y; of NaN and a number the number."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.maximum(tl.load(x + at), tl.load(y + at)))


@triton.jit
def smaller_or_nan(x, y, out, SIZE: tl.constexpr):
    """The smaller of x and y; NaN if one is NaN."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.minimum(tl.load(x + at), tl.load(y + at), propagate_nan=tl.PropagateNan.ALL))


@triton.jit
def clamped(x, y, out, SIZE: tl.constexpr):
    """x between -1 and 1."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.clamp(tl.load(x + at).to(tl.float32), -1.0, 1.0).to(x.dtype.element_ty))


@triton.jit
def fused_products(x, y, out, SIZE: tl.constexpr):
    """x * y + x, rounded once."""
    at = tl.arange(0, SIZE)
    a = tl.load(x + at)
    tl.store(out + at, tl.fma(a, tl.load(y + at), a))


@triton.jit
def sums(x, y, out, SIZE: tl.constexpr):
    """In each element the sum of all of y."""
    at = tl.arange(0, SIZE)
    tl.store(out + at, tl.load(x + at) * 0 + tl.sum(tl.load(y + at), 0))


@triton.jit
def atomic_sums(x, y, out, SIZE: tl.constexpr):
    """In the first element the sum of all of y, added one after the other; ``out`` is zero before."""
    tl.atomic_add(out + tl.arange(0, SIZE) * 0, tl.load(y + tl.arange(0, SIZE)))


@triton.jit
def added_tiles(x, y, out, SIZE: tl.constexpr):
    """In rows of 16 elements: y, two rows down and four elements to the right, twice, in 14 rows of 12 elements."""
    desc = tl.make_tensor_descriptor(out, [14, 12], [16, 1], [SIZE // 16, 16])
    tile = tl.reshape(tl.load(y + tl.arange(0, SIZE)), (SIZE // 16, 16))
    desc.atomic_add([2, 4], tile)
    desc.atomic_add([2, 4], tile)


@triton.jit
def truncated(x, y, out, SIZE: tl.constexpr):
    """x in fp32 plus a little, rounded towards zero."""
    at = tl.arange(0, SIZE)
    wide = tl.load(x + at).to(tl.float32)
    tl.store(out + at, (wide * 1.00390625).to(out.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def tensor_numbers(x, y, out, scale, wide: tl.int64, SIZE: tl.constexpr):
    """Numbers that are tensors: indices, arguments, a tuple's elements, min and max, a product of 32 bits."""
    least, half = 7, 0.5
    for i in range(1, 3):
        tl.store(out + i, i.to(tl.float32) / 4)
        tl.store(out + 3, (i * 2000000000).to(tl.int64) / 1000000)
    for i in tl.range(least, 0, -3):
        tl.store(out + 4, i.to(tl.int64))
    for i in range(wide - 2, wide):
        tl.store(out + 5, i * 2000000000 / 1000000)
    for i in tl.static_range(2):
        tl.store(out + 6 + tl.arange(0, i + 1), half.to(tl.float32))
    tl.store(out + 8, min(least, SIZE).to(tl.float32) + max(SIZE, least, 3).to(tl.float32))
    tl.store(out + 9, (scale.to(tl.float32) == scale) & (scale * 3 != scale))
