"""Small kernels, each of a part of Triton's language."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def later_larger(a, at_a, b, at_b):
    second = b >= a
    return tl.where(second, b, a), tl.where(second, at_b, at_a)


@triton.jit
def decayed(sum_a, decay_a, sum_b, decay_b):
    return sum_a * decay_b + sum_b, decay_a * decay_b


@triton.jit(noinline=True)
def shifted(x, by):
    if by > 2:
        return x + by
    return x - by


@triton.jit
def scans(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, tl.cumsum(x, 1))
    tl.store(out_ptr + R * C + at, tl.cumsum(x, 0, reverse=True))
    columns = tl.broadcast_to(tl.arange(0, C)[None, :], (R, C))
    largest, where = tl.associative_scan((x, columns), 1, later_larger)
    tl.store(out_ptr + 2 * R * C + at, largest)
    tl.store(out_ptr + 3 * R * C + at, where.to(tl.float32))
    sums, _ = tl.associative_scan((x, tl.full((R, C), 0.5, tl.float32)), 1, decayed)
    tl.store(out_ptr + 4 * R * C + at, sums)


@triton.jit
def selections(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    at = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    x = tl.load(x_ptr + at)
    back = tl.broadcast_to(C - 1 - tl.arange(0, C)[None, :], (R, C))
    tl.store(out_ptr + at, tl.gather(x, back, 1))
    tl.store(out_ptr + R * C + at, tl.sort(x, 1))
    tl.store(out_ptr + 2 * R * C + at, tl.flip(x, 1))
    tl.store(out_ptr + 3 * R * C + at, tl.clamp(x, -1.0, 1.0))
    tl.store(out_ptr + 4 * R * C + at, tl.broadcast_to(tl.argmax(x, 1)[:, None].to(tl.float32), (R, C)))


@triton.jit
def counts(x_ptr, out_ptr, N: tl.constexpr, BINS: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(out_ptr + tl.arange(0, BINS), tl.histogram(x, BINS))
    tl.store(out_ptr + BINS + tl.arange(0, BINS), tl.histogram(x, BINS, mask=x != 3))
    both = tl.cat(x, x + 1, can_reorder=True)
    tl.atomic_add(out_ptr + 2 * BINS + both, tl.full((2 * N,), 1, tl.int32))


@triton.jit
def integers(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, x // 3)
    tl.store(out_ptr + N + at, x % 3)
    tl.store(out_ptr + 2 * N + at, tl.umulhi(x.to(tl.uint32, bitcast=True), 0x9E3779B9).to(tl.int32, bitcast=True))
    tl.store(out_ptr + 3 * N + at, tl.cdiv(x, 5))
    tl.store(out_ptr + 4 * N + at, (x.to(tl.float32) * 1.5).to(tl.uint32).to(tl.int32, bitcast=True), mask=x >= 0)
    tl.store(out_ptr + 5 * N + at, tl.xor_sum(x, 0) + tl.zeros((N,), tl.int32))
    tl.store(out_ptr + 6 * N + at, x + shifted(tl.load(x_ptr), 3))
    state = tl.randint(7, at)
    tl.store(out_ptr + 7 * N + at, state)


@triton.jit
def casts(x_ptr, near_ptr, zero_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(near_ptr + at, x.to(tl.bfloat16))
    tl.store(zero_ptr + at, x.to(tl.bfloat16, fp_downcast_rounding="rtz"))


@triton.jit
def addresses(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    address = (x_ptr + at).to(tl.int64)
    x = tl.load((address + 0).to(tl.pointer_type(tl.float32)))
    tl.device_assert(x < 1e30)
    tl.store(out_ptr + at, tl.math.fma(x, x, x))
    tl.store(out_ptr + N + at, tl.math.erf(x))
    tl.store(out_ptr + 2 * N + at, tl.fdiv(x, 3.0))
    tl.store(out_ptr + 3 * N + at, tl.sigmoid(x))
    tl.store(out_ptr + 4 * N + at, tl.softmax(x))
    left, right = tl.split(tl.reshape(x, (N // 2, 2)))
    half = tl.arange(0, N // 2)
    tl.store(out_ptr + 5 * N + half, left)
    tl.store(out_ptr + 5 * N + N // 2 + half, right)
    tl.store(out_ptr + 6 * N + at, tl.interleave(left, right))


@triton.jit
def atomics(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.atomic_max(out_ptr, tl.max(x, 0))
    tl.atomic_min(out_ptr + 1, tl.min(x, 0))
    tl.atomic_or(out_ptr + 2, 5)
    tl.atomic_and(out_ptr + 3, 6)
    tl.atomic_xor(out_ptr + 4, 3)
    tl.atomic_xchg(out_ptr + 5, 9)
    old = tl.atomic_cas(out_ptr + 6, 0, 4)
    tl.store(out_ptr + 7, old)
    count = 0
    while count < tl.load(x_ptr):
        count += 2
    tl.store(out_ptr + 8, count)
    for turn in tl.range(0, 3):
        if turn == 1:
            tl.atomic_add(out_ptr + 9, turn)


@triton.jit
def libraries(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(out_ptr + at, libdevice.tanh(x))
    tl.store(out_ptr + N + at, libdevice.pow(tl.abs(x), 1.5))
    tl.store(out_ptr + 2 * N + at, libdevice.trunc(x))
    tl.store(out_ptr + 3 * N + at, libdevice.log1p(tl.abs(x)))
    tl.store(out_ptr + 4 * N + at, libdevice.round(x))


@triton.jit
def stepwise(x):
    if x < 0:
        return -x * 2
    return x + 1


@triton.jit
def elements(x_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.map_elementwise(stepwise, tl.load(x_ptr + at)))


@triton.jit
def transposed_tiles(x_ptr, out_ptr, R: tl.constexpr, C: tl.constexpr):
    """Reads a tensor by one descriptor and writes it transposed by another, in tiles past its end."""
    given = tl.make_tensor_descriptor(x_ptr, [R, C], [C, 1], [8, 16])
    result = tl.make_tensor_descriptor(out_ptr, [C, R], [R, 1], [16, 8])
    for row in range(0, R, 8):
        for column in range(0, C, 16):
            result.store([column, row], given.load([row, column]).T)
