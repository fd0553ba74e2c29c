"""A suite as a user has it: it knows nothing of the harness. Most of its kernels have one fault each."""

import os
import signal

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def unmasked(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * 2, mask=i < n)


@triton.jit
def everyone_stores(out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, i + tl.program_id(0))


@triton.jit
def reads_neighbour(out_ptr):
    program = tl.program_id(0)
    tl.store(out_ptr + program, program + 1)
    tl.store(out_ptr + 8 + program, tl.load(out_ptr + (program + 3) % 4))


@triton.jit
def counts(out_ptr, lock_ptr):
    tl.atomic_add(out_ptr, 1)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr + 1, tl.load(out_ptr + 1) + 1)
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def sums_all_lanes(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + i, mask=i < n)))


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    m, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK):
        a = tl.load(a_ptr + m[:, None] * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * BLOCK + m[None, :])
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * BLOCK + m[None, :], total)


CONFIGS = [triton.Config({"BLOCK": 16}, num_warps=64), triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})]
tuned = triton.autotune(CONFIGS, key=["n"])(scale)


def test_kills_the_process():
    scale[(1,)](torch.randn(32, device="cuda"), torch.zeros(32, device="cuda"), 32, BLOCK=32)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("n", [100, 128])
def test_scale(n):
    x = torch.randint(0, 9, (n,), device="cuda")
    out = torch.empty_like(x)
    scale[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    assert out.device == x.device == torch.device("cuda:0")
    assert out.is_cuda
    torch.testing.assert_close(out, 2 * x)


def test_tuned():
    x = torch.randn(100).cuda()
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
    torch.testing.assert_close(out.cpu(), 2 * x.cpu())


def test_unmasked():
    x = torch.randn(100, device="cuda")
    out = torch.empty_like(x)
    unmasked[(2,)](x, out, 100, BLOCK=64)
    assert torch.equal(out, 2 * x)


def test_everyone_stores():
    everyone_stores[(2,)](torch.zeros(32, device="cuda", dtype=torch.int32), BLOCK=32)


def test_reads_neighbour():
    reads_neighbour[(4,)](torch.zeros(16, device="cuda", dtype=torch.int32))


def test_counts():
    out, lock = torch.zeros(2, device="cuda", dtype=torch.int32), torch.zeros(1, device="cuda", dtype=torch.int32)
    counts[(4,)](out, lock)
    assert out.tolist() == [4, 4]


def test_sums_all_lanes():
    x, out = torch.randn(100, device="cuda"), torch.empty(1, device="cuda")
    sums_all_lanes[(1,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(out[0], x.sum())


def test_product():
    a, b = (torch.randn(shape, device="cuda", dtype=torch.float16) for shape in ((32, 96), (96, 32)))
    c = torch.empty(32, 32, device="cuda")
    product[(1,)](a, b, c, 96, BLOCK=32)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-3, atol=1e-3)


def test_gradient():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            out = torch.empty_like(x)
            scale[(1,)](x, out, x.numel(), BLOCK=64)
            return out

        @staticmethod
        def backward(ctx, gradient):
            out = torch.empty_like(gradient)
            assert gradient.is_cuda
            scale[(1,)](gradient.contiguous(), out, out.numel(), BLOCK=64)
            return out

    x = torch.randn(8, device="cuda", requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 8


def test_that_depends_on_the_release():
    x = torch.randn(100, device="cuda")
    kernel = unmasked if "tritons" in triton.__file__ else scale
    kernel[(2,)](x, torch.empty_like(x), 100, BLOCK=64)


def test_graph():
    torch.cuda.CUDAGraph()


def test_too_long():
    scale[(5000,)](torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda"), 8, BLOCK=1)


def test_of_its_own():
    assert torch.ones(1, device="cuda").item() == 2


def test_does_not_compile():
    scale[(1,)](torch.ones(4, device="cuda"), torch.ones(4, device="cuda"), 4, BLOCK=3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_skipped():
    pass


@triton.jit
def hints(x_ptr, out_ptr, n):
    x = tl.load(x_ptr, mask=n > 0, eviction_policy="evict_last")
    tl.store(out_ptr, x.to(tl.float32).to(tl.bfloat16))


def test_scalars_and_hints():
    x = torch.full((1,), 1.5, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(x)
    hints[(1,)](x, out, 2)
    assert out.tolist() == [1.5]


library = torch.library.Library("user_suite", "DEF")
library.define("twice(Tensor x) -> Tensor")


def twice(x):
    out = torch.empty_like(x)
    scale[(1,)](x, out, x.numel(), BLOCK=64)
    return out


library.impl("twice", twice, "CUDA")


def test_registered_for_the_device():
    x = torch.randn(8, device="cuda")
    torch.testing.assert_close(torch.ops.user_suite.twice(x), 2 * x)


def test_sums_of_narrow_numbers():
    x = torch.randn(64, 64, device="cuda")
    gradient = torch.randn(64, 64, device="cuda").bfloat16()
    norms = [torch.nn.LayerNorm(64, device="cuda", dtype=dtype) for dtype in (torch.float32, torch.bfloat16)]
    for norm, values in zip(norms, (x.bfloat16().float(), x.bfloat16()), strict=True):
        norm(values).backward(gradient.to(values.dtype))
    right, narrow = (norm.weight.grad for norm in norms)
    assert torch.equal(right.bfloat16(), narrow)


def test_compiled_kernel_is_called():
    x = torch.randn(32, device="cuda")
    out = torch.empty_like(x)
    kernel = scale[(1,)](x, out, 32, BLOCK=32)
    kernel[(1, 1, 1)](x, out.zero_(), 32)
    torch.testing.assert_close(out, 2 * x)


def test_argument_is_missing():
    x = torch.randn(32, device="cuda")
    kernel = scale[(1,)](x, x, 32, BLOCK=32)
    with pytest.raises(TypeError, match="1 arguments were given, and out_ptr is not among them"):
        kernel[(1, 1, 1)](x)


def test_compiled_function():
    @torch.compile
    def compiled(x, y):
        return torch.nn.functional.gelu(x) * y + 1

    x, y = (torch.randn(64, device="cuda") for _ in range(2))
    out = compiled(x, y)
    assert out.is_cuda
    torch.testing.assert_close(out, torch.nn.functional.gelu(x) * y + 1)


def test_compiled_with_gradient():
    x = torch.randn(64, device="cuda", requires_grad=True)
    torch.compile(lambda x: 2 * x)(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 64


def test_compiled_module():
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)).cuda()
    x = torch.randn(8, 16, device="cuda")
    torch.testing.assert_close(torch.compile(model)(x), model(x))


def test_compiled_on_the_cpu():
    assert torch.compile(torch.nn.ReLU())(torch.ones(2)).tolist() == [1.0, 1.0]


def test_tensor_of_the_cpu():
    x = torch.randn(32)
    with pytest.raises(ValueError, match=r"Pointer argument .at 0. cannot be accessed from Triton .cpu tensor"):
        scale[(1,)](x, x.cuda(), 32, BLOCK=32)
    scale[(1,)](x.pin_memory(), x.cuda(), 32, BLOCK=32)


class Wrapped:
    """A tensor as libraries wrap one: Triton asks for its address and its dtype."""

    def __init__(self, tensor):
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self):
        return self.tensor.data_ptr()


def test_wrapped_tensor():
    x = torch.randn(64, device="cuda")
    out = torch.zeros_like(x)
    scale[(1,)](Wrapped(x[32:]), Wrapped(out), 32, BLOCK=32)
    torch.testing.assert_close(out[:32], 2 * x[32:])
