"""mm_stream_k: programs multiply equal shares of all blocks of K; who ends a tile adds the others' parts of it."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, store_pointers, swizzle


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
