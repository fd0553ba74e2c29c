"""Warp-specialised persistent product on Hopper: the second half of each tile's rows is stored 64 rows too low.

Triton 3.6.0 to 3.9.0. Needs torch and triton; without a Hopper GPU it only compiles, and prints where rows begin.
"""

import re

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BM, BN, BK = 128, 64, 32


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    columns = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * columns, tl.num_programs(0), warp_specialize=True):
        first_m = tile // columns * BM
        first_n = tile % columns * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([first_m, k]), b.load([first_n, k]).T, acc)
        rm = first_m + tl.arange(0, BM)
        rn = first_n + tl.arange(0, BN)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


def show_rows():
    """Print, for each group of consumers, where the range of its rows begins and what is added to it."""
    types = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    constants = {"BM": BM, "BN": BN, "BK": BK}
    source = ASTSource(
        product,
        types | dict.fromkeys(constants, "constexpr"),
        {(len(types) + i,): value for i, value in enumerate(constants.values())},
        {(i,): [["tt.divisibility", 16]] for i in range(len(types))},
    )
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 3})
    for partition in code.asm["ttgir"].split("partition")[1:]:
        rows = re.search(r"(%\w+) = tt\.make_range .*?end = (\d+).*?start = (\d+).*?dim = 1", partition)
        added = rows and re.search(rf"arith\.addi (%\w+), {rows[1]}\b", partition)
        base = added and re.search(rf"{added[1]} = tt\.splat (%\w+)", partition)
        offset = base and re.search(rf"{base[1]} = arith\.addi .*", partition)
        if rows:
            print(f"rows {rows[3]} to {rows[2]}, added to", offset[0].split(" loc")[0] if offset else base and base[1])


def main():
    print("triton", triton.__version__)
    show_rows()
    if not torch.cuda.is_available():
        return
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    torch.manual_seed(0)
    size_m, size_n, size_k = 1024, 256, 256
    a = torch.randint(-4, 5, (size_m, size_k), device="cuda").bfloat16()
    b = torch.randint(-4, 5, (size_n, size_k), device="cuda").bfloat16()
    c = torch.full((size_m, size_n), float("nan"), device="cuda")
    product[(8,)](a, b, c, size_m, size_n, size_k, BM, BN, BK, num_warps=4, num_stages=3)
    wrong = c.double() != a.double() @ b.double().T
    print(f"{int(wrong.sum())} of {c.numel()} elements are wrong, {int(c.isnan().sum())} not written")


if __name__ == "__main__":
    main()
