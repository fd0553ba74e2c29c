"""tl.dot and tl.sum of one loaded tile on Hopper: the next tile overwrites it while wgmma reads it.

Triton 3.4.0 to 3.9.0. Needs torch and triton; without a Hopper GPU it only compiles, and prints the buffers.
"""

import re

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def product_and_sums(a_ptr, b_ptr, c_ptr, sums_ptr, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a_ptrs = a_ptr + (tl.program_id(0) * BM + rm[:, None]) * K + rk[None, :]
    b_ptrs = b_ptr + rn[None, :] * K + rk[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    sums = tl.zeros((BM,), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs + k)
        b = tl.load(b_ptrs + k)
        acc = tl.dot(a, b, acc)
        sums += tl.sum(a.to(tl.float32), 1)
    tl.store(c_ptr + (tl.program_id(0) * BM + rm[:, None]) * BN + rn[None, :], acc)
    tl.store(sums_ptr + tl.program_id(0) * BM + rm, sums)


BM, BN, BK, K = 64, 256, 64, 4096


def show_buffers():
    """Print how many tiles of A and B the pipelined loop holds, and how many wgmma it leaves running."""
    types = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "sums_ptr": "*fp32", "K": "i32"}
    constants = {"BM": BM, "BN": BN, "BK": BK}
    source = ASTSource(
        product_and_sums,
        types | dict.fromkeys(constants, "constexpr"),
        {(len(types) + i,): value for i, value in enumerate(constants.values())},
        {(i,): [["tt.divisibility", 16]] for i in range(len(types))},
    )
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    text = code.asm["ttgir"]
    for name, shape in (("A", f"{BM}x{BK}"), ("B", f"{BK}x{BN}")):
        slots = re.search(rf"local_alloc.*memdesc<(\d)x{shape}xbf16", text)
        print(f"tiles of {name} in shared memory:", slots.group(1) if slots else "?")
    print("wgmma left running by the waits:", re.findall(r"warp_group_dot_wait.*pendings = (\d)", text))


def main():
    print("triton", triton.__version__)
    show_buffers()
    if not torch.cuda.is_available():
        return
    programs = 4 * torch.cuda.get_device_properties(0).multi_processor_count
    torch.manual_seed(0)
    a = torch.randint(-4, 5, (programs * BM, K), device="cuda").bfloat16()
    b = torch.randint(-4, 5, (BN, K), device="cuda").bfloat16()
    expected = a.double() @ b.double().T  # exact: integers below 2^24
    for launch in range(5):
        c = torch.zeros(programs * BM, BN, device="cuda")
        sums = torch.zeros(programs * BM, device="cuda")
        product_and_sums[(programs,)](a, b, c, sums, K, BM, BN, BK, num_warps=4, num_stages=2)
        wrong, wrong_sums = int((c.double() != expected).sum()), int((sums.double() != a.double().sum(1)).sum())
        print(f"launch {launch}: {wrong} of {c.numel()} elements of the product are wrong, {wrong_sums} sums")


if __name__ == "__main__":
    main()
