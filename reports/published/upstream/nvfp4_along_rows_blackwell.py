"""tl.dot_scaled of nvfp4 operands that are packed along M and N fails an assertion for sm_100 in tiles of 128 rows.

Triton 3.6.0 to 3.8.0. Needs torch and triton, but no GPU: each product is compiled in a process of its own.
"""

import subprocess
import sys

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BM, BN, BK = 128, 128, 128


@triton.jit
def product(
    a_ptr, b_ptr, sa_ptr, sb_ptr, c_ptr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ALONG_K: tl.constexpr
):
    rows_a: tl.constexpr = BM if ALONG_K else BM // 2
    columns_a: tl.constexpr = BK // 2 if ALONG_K else BK
    rows_b: tl.constexpr = BK // 2 if ALONG_K else BK
    columns_b: tl.constexpr = BN if ALONG_K else BN // 2
    a = tl.load(a_ptr + tl.arange(0, rows_a)[:, None] * columns_a + tl.arange(0, columns_a)[None, :])
    b = tl.load(b_ptr + tl.arange(0, rows_b)[:, None] * columns_b + tl.arange(0, columns_b)[None, :])
    blocks = tl.arange(0, BK // 16)[None, :]
    sa = tl.load(sa_ptr + tl.arange(0, BM)[:, None] * (BK // 16) + blocks)
    sb = tl.load(sb_ptr + tl.arange(0, BN)[:, None] * (BK // 16) + blocks)
    c = tl.dot_scaled(a, sa, "e2m1", b, sb, "e2m1", lhs_k_pack=ALONG_K, rhs_k_pack=ALONG_K)
    tl.store(c_ptr + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], c)


def compile_product(along_k):
    """Compile the product for sm_100, and print which instruction multiplies."""
    pointers = {"a_ptr": "*u8", "b_ptr": "*u8", "sa_ptr": "*fp8e4nv", "sb_ptr": "*fp8e4nv", "c_ptr": "*fp32"}
    constants = {"BM": BM, "BN": BN, "BK": BK, "ALONG_K": along_k}
    source = ASTSource(
        product,
        pointers | dict.fromkeys(constants, "constexpr"),
        {(len(pointers) + i,): value for i, value in enumerate(constants.values())},
        {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))},
    )
    code = triton.compile(source, target=GPUTarget("cuda", 100, 32), options={"num_warps": 4})
    print("compiled, with scales" if "kind::mxf4nvf4" in code.asm["ptx"] else "compiled, converted")


def main():
    print("triton", triton.__version__)
    for packed in ("k", "m and n"):
        done = subprocess.run([sys.executable, __file__, packed], check=False, capture_output=True, text=True)
        told = [line for line in (done.stdout + done.stderr).splitlines() if "Assertion" in line or "compiled" in line]
        print(f"packed along {packed}: exit status {done.returncode}, {told[0][-90:] if told else 'nothing was said'}")


if __name__ == "__main__":
    if sys.argv[1:]:
        compile_product(sys.argv[1] == "k")
    else:
        main()
