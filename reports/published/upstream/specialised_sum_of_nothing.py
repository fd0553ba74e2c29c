"""A persistent product with warp_specialize on the loop over tiles and K = 0: the second tile is not zero on Blackwell.

Triton 3.7.1, 3.8.0 and 3.9.0. Needs torch and triton. Without a GPU it compiles for sm_100, and prints which slots of
the accumulator are cleared; on a GPU of compute capability 10.x it runs.
"""

import re

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

M, N, BM, BN, BK = 512, 128, 128, 128, 64


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, lda, ldb, ldc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, max(K, 1)], [lda, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, max(K, 1)], [ldb, 1], [BN, BK])
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM), tl.num_programs(0), warp_specialize=True):
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a_desc.load([tile * BM, k * BK]), b_desc.load([0, k * BK]).T, acc)
        rows, columns = tile * BM + tl.arange(0, BM), tl.arange(0, BN)
        tl.store(c_ptr + rows[:, None] * ldc + columns[None, :], acc)


def compiled():
    """The TTGIR for sm_100."""
    names = ["a_ptr", "b_ptr", "c_ptr", "M", "N", "K", "lda", "ldb", "ldc"]
    types = ["*bf16", "*bf16", "*fp32", *["i32"] * 6]
    constants = {"BM": BM, "BN": BN, "BK": BK}
    source = ASTSource(
        product,
        dict(zip(names, types, strict=True)) | dict.fromkeys(constants, "constexpr"),
        {(len(names) + i,): value for i, value in enumerate(constants.values())},
        {(i,): [["tt.divisibility", 16]] for i in (0, 1, 2, 6, 7, 8)},
    )
    options = {"num_warps": 4, "num_stages": 3}
    return triton.compile(source, target=GPUTarget("cuda", 100, 32), options=options).asm["ttgir"]


def main():
    print("triton", triton.__version__)
    ttgir = compiled()
    slots = re.search(r"(%\w+) = ttng\.tmem_alloc .*memdesc<(\d+)x128x128xf32", ttgir)
    cleared = re.findall(
        rf"(%\w+) = ttg\.memdesc_index {slots[1]}\[(%\w+)\]", ttgir.partition("ttg.warp_specialize")[0]
    )
    stores = [index for name, index in cleared if re.search(rf"tmem_store %\w+, {name},", ttgir)]
    print(f"specialised: {'ttg.warp_specialize' in ttgir}; slots: {slots[2]}; cleared before the loops: {stores}")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 10:
        print("no Blackwell here: not run")
        return
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    a, b = (torch.zeros(rows, BK, dtype=torch.bfloat16, device="cuda") for rows in (M, N))
    ones, c = torch.ones_like(a), torch.full((M, N), 7.0, device="cuda")
    product[(1,)](ones, torch.ones_like(b), c, M, N, BK, BK, BK, N, BM, BN, BK, num_warps=4)  # leaves sums behind
    product[(1,)](a, b, c, M, N, 0, BK, BK, N, BM, BN, BK, num_warps=4)
    wrong = (c != 0).any(dim=1).nonzero().flatten().tolist()
    print(f"K = 0: {len(wrong)} of {M} rows are not zero, the first is {wrong[:1]}")


if __name__ == "__main__":
    main()
