"""bf16 times mxfp4 by tl.dot_scaled on Hopper: wrong with Triton 3.6.0 where B is row-major. Needs torch and triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def product(
    a_ptr, b_ptr, scale_ptr, c_ptr, K, stride_bk, stride_bn, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr
):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    pairs, blocks = tl.arange(0, BK // 2), tl.arange(0, BK // 32)
    acc = tl.zeros((M, N), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + rm[:, None] * K + (k + rk)[None, :])
        b = tl.load(b_ptr + (k // 2 + pairs)[:, None] * stride_bk + rn[None, :] * stride_bn)
        scale = tl.load(scale_ptr + rn[:, None] * (K // 32) + (k // 32 + blocks)[None, :])
        acc = tl.dot_scaled(a, None, "bf16", b, scale, "e2m1", acc)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc)


def main():
    size_m, size_n, size_k, block_k = 128, 128, 512, 128
    torch.manual_seed(0)
    a = torch.randint(-8, 9, (size_m, size_k)).bfloat16().cuda()
    codes = torch.randint(0, 256, (size_n, size_k // 2), dtype=torch.uint8).cuda()  # the lower half is the even k
    scale = torch.randint(124, 131, (size_n, size_k // 32), dtype=torch.uint8).cuda()
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]).double().cuda()
    b = torch.stack([values[(codes & 15).long()], values[(codes >> 4).long()]], -1).flatten(1)
    b = b * torch.exp2(scale.double() - 127).repeat_interleave(32, 1)
    expected = a.double() @ b.T
    print("triton", triton.__version__, torch.cuda.get_device_name())
    for name, stored in (("column-major", codes.T), ("row-major", codes.T.contiguous())):
        c = torch.zeros(size_m, size_n, device="cuda")
        product[(1,)](a, stored, scale, c, size_k, *stored.stride(), size_m, size_n, block_k, num_stages=2)
        wrong = int((c.double() != expected).sum())
        print(f"B {name}: {wrong} of {c.numel()} elements are wrong")


if __name__ == "__main__":
    main()
