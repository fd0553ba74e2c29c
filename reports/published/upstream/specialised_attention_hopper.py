"""Attention on Hopper whose loop over keys is warp-specialised, in tiles of 128 queries: half of the rows are wrong.

Seen on a device with Triton 3.6.0, and in the code of 3.6.0 to 3.9.0. Needs torch and triton; without a Hopper GPU it
only compiles, and prints which rows the groups of consumers begin with.
"""

import re

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

BM, BN, D = 128, 64, 64


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, queries, keys, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    q = tl.make_tensor_descriptor(q_ptr, [queries, D], [D, 1], [BM, D]).load([tl.program_id(0) * BM, 0])
    k_rows = tl.make_tensor_descriptor(k_ptr, [keys, D], [D, 1], [BN, D])
    v_rows = tl.make_tensor_descriptor(v_ptr, [keys, D], [D, 1], [BN, D])
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    acc = tl.zeros((BM, D), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    largest = tl.full((BM,), float("-inf"), tl.float32)
    for start in tl.range(0, keys, BN, warp_specialize=True):
        columns = start + tl.arange(0, BN)
        scores = tl.dot(q, k_rows.load([start, 0]).T)
        # each query sees at least the first key
        scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
        larger = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp2(scores - larger[:, None])
        shrink = tl.exp2(largest - larger)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(tl.bfloat16), v_rows.load([start, 0]), acc * shrink[:, None])
        largest = larger
    place = out_ptr + rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(place, acc / total[:, None], mask=rows[:, None] < queries)


def show_rows():
    """Print, for each group of consumers, where the range of its rows begins and what is added to it."""
    types = {"q_ptr": "*bf16", "k_ptr": "*bf16", "v_ptr": "*bf16", "out_ptr": "*fp32", "queries": "i32", "keys": "i32"}
    constants = {"BM": BM, "BN": BN, "D": D}
    source = ASTSource(
        attention,
        types | dict.fromkeys(constants, "constexpr"),
        {(len(types) + i,): value for i, value in enumerate(constants.values())},
        {(i,): [["tt.divisibility", 16]] for i in range(len(types))},
    )
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    for partition in re.split(r"\n    partition\d", code.asm["ttgir"])[1:]:
        rows = re.search(r"(%\w+) = tt\.make_range .*?end = (\d+).*?start = (\d+).*?dim = 1", partition)
        added = rows and re.search(rf"arith\.addi (%\w+), {rows[1]}\b", partition)
        base = added and re.search(rf"{added[1]} = tt\.splat (%\w+)", partition)
        offset = base and re.search(rf"{base[1]} = arith\..*", partition)
        if rows:
            print(f"rows {rows[3]} to {rows[2]}, added to", offset[0].split(" {")[0] if offset else base and base[1])


def main():
    print("triton", triton.__version__)
    show_rows()
    if not torch.cuda.is_available():
        return
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    torch.manual_seed(0)
    length = 512
    q, k, v = (torch.randint(-2, 3, (length, D), device="cuda").bfloat16() for _ in range(3))
    out = torch.full((length, D), float("nan"), device="cuda")
    attention[(length // BM,)](q, k, v, out, length, length, BM, BN, D, num_warps=4, num_stages=2)
    seen = torch.ones(length, length, device="cuda").tril().bool()
    scores = (q.double() @ k.double().T).masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores * 0.6931471805599453, 1)  # the kernel has powers of two
    error = (out.double() - weights @ v.double()).abs().nan_to_num(float("inf")).amax(1)
    wrong = (error > 0.1).nonzero().flatten().tolist()
    print(f"{len(wrong)} of {length} rows are wrong, {int(out.isnan().any(1).sum())} not written")


if __name__ == "__main__":
    main()
