"""Products whose K is split among programs: summed by a second launch, by atomic additions, or by who ends a tile."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, store_pointers, swizzle


@triton.jit
def gemm_split_k(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[s] = A[:, s * K : (s + 1) * K] @ B[s * K : (s + 1) * K] in fp32, where K is that of one part; grid (tiles of C,
    parts)."""
    part = tl.program_id(1).to(tl.int64)
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = part * K
    acc = dot_pointers(
        a_ptr + first_k * stride_ak, b_ptr + first_k * stride_bk, rm, rn, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
    )  # fmt: skip
    store_pointers(acc, c_ptr + part * stride_cs, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def sum_parts(
    parts_ptr, c_ptr, splits, M, N, stride_parts_s, stride_parts_m, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = parts[0] + parts[1] + ... in this order, summed in fp32; grid (tiles,)."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rm = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    tile = parts_ptr + rm[:, None] * stride_parts_m + rn[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _part in range(splits):
        acc += tl.load(tile, mask=inside)
        tile += stride_parts_s
    target = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def zero_matrix(
    c_ptr, M, N, stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr
):
    """C[M,N] = +0; grid (tiles,)."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rm = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    zeros = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
    tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn, zeros, mask=inside)


@triton.jit
def gemm_atomic_split_k(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
):  # fmt: skip
    """C += A[:, s * K : (s + 1) * K] @ B[s * K : (s + 1) * K] for part s of K, in fp32 and in any order. K is that of
    one part; grid (tiles of C, parts). BY_DESCRIPTOR adds whole tiles to a row-major C."""
    part = tl.program_id(1).to(tl.int64)
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = part * K
    acc = dot_pointers(
        a_ptr + first_k * stride_ak, b_ptr + first_k * stride_bk, rm, rn, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
    )  # fmt: skip
    # No program reads the output before the launch has ended, so that no program has to see another's sum.
    if BY_DESCRIPTOR:  # by its whole name: Triton 3.3 looks for each name of tl, also in code that it leaves out
        c_desc = triton.language.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
        c_desc.atomic_add([tile_m * BLOCK_M, tile_n * BLOCK_N], acc)
    else:
        if WIDE_INDEX:
            rm = rm.to(tl.int64)
            rn = rn.to(tl.int64)
        inside = (rm < M)[:, None] & (rn < N)[None, :]
        tl.atomic_add(c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn, acc, mask=inside, sem="relaxed")


@triton.jit
def program_of(block, share, longer):
    """The program that multiplies a block, where each has ``share`` of them and the first ``longer`` one more."""
    in_longer = longer * (share + 1)
    return tl.where(block < in_longer, block // (share + 1), longer + (block - in_longer) // share)


@triton.jit
def gemm_stream_k(
    a_ptr, b_ptr, c_ptr, parts_ptr, ready_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N]; grid (min(SMs, blocks of K of all tiles),).

    The blocks of K of all tiles are numbered, those of one tile together. Each program multiplies consecutive ones, as
    many as every other or one more. A tile that it does not end is its last. It leaves its sum in its part of ``parts``
    (programs, BLOCK_M, BLOCK_N), and then sets its element of ``ready``, which is 0 before. The program that ends the
    tile adds the parts in the order of k. It waits for lower programs only, so that no two wait for each other. K == 0
    gives zeros.
    """
    program = tl.program_id(0)
    depth = tl.maximum(tl.cdiv(K, BLOCK_K), 1)
    blocks = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N) * depth
    share = blocks // tl.num_programs(0)
    longer = blocks % tl.num_programs(0)
    begin = program * share + tl.minimum(program, longer)
    end = begin + share + (program < longer).to(tl.int32)
    place = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for tile in range(begin // depth, tl.cdiv(end, depth)):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        first = tl.maximum(begin - tile * depth, 0)
        last = tl.minimum(end - tile * depth, depth)
        first_k = first.to(tl.int64) * BLOCK_K
        k = tl.minimum(K, last * BLOCK_K) - first * BLOCK_K
        acc = dot_pointers(
            a_ptr + first_k * stride_ak, b_ptr + first_k * stride_bk, rm, rn, M, N, k,
            stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
        )  # fmt: skip
        if last < depth:
            tl.store(parts_ptr + program.to(tl.int64) * (BLOCK_M * BLOCK_N) + place, acc)
            tl.debug_barrier()  # the part is whole before one thread says so
            tl.atomic_xchg(ready_ptr + program, 1, sem="release")
        else:
            if first > 0:
                total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                others = program_of(tile * depth, share, longer)
                part = parts_ptr + others.to(tl.int64) * (BLOCK_M * BLOCK_N) + place
                for other in range(others, program):
                    while tl.atomic_cas(ready_ptr + other, 1, 1, sem="acquire") == 0:
                        pass
                    tl.debug_barrier()
                    total += tl.load(part)
                    part += BLOCK_M * BLOCK_N
                acc += total
            store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
