"""The TTGIR of each part of Triton's language runs, and gives what that part says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from conformance import targets
from conformance.kernels.launch import Launch
from conformance.ttgir.arithmetic import UnknownOperation, towards_zero
from conformance.ttgir.executor import TtgirExecutor
from conformance.ttgir.regions import MAKERS
from conformance.ttgir.text import Operation
from tests.ttgir import language_kernels as kernels

N, R, C, BINS = 128, 16, 32, 16
FLOATS = torch.randn(R, C, generator=torch.Generator().manual_seed(1))
INTEGERS = torch.randint(-1000, 1000, (N,), generator=torch.Generator().manual_seed(2), dtype=torch.int32)
SMALL = torch.randint(0, BINS - 1, (N,), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
MOVER = {"gfx1250": GPUTarget("hip", "gfx1250", 32)}  # it copies by descriptors, in other words
POINTERS = {torch.float32: "*fp32", torch.int32: "*i32", torch.bfloat16: "*bf16"}


def run(function, tensors, constants, target):
    """Compiles ``function`` for ``target`` and runs it over copies of ``tensors``, which it returns."""
    if target not in {one.id for one in targets.compile_targets()}:
        pytest.skip(f"the installed Triton cannot compile for {target}")
    signature = {name: POINTERS[tensor.dtype] for name, tensor in tensors.items()}
    names = dict.fromkeys(function.arg_names, "constexpr") | signature
    text = triton.compile(ASTSource(function, names, constants), target=(TARGETS | MOVER)[target]).asm["ttgir"]
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    arguments = copies | {name: tl.constexpr(value) for name, value in constants.items()}
    TtgirExecutor({function.fn.__name__: text}).run(Launch(function, (1,), arguments))
    return copies


def scanned(x):
    sums, decayed = torch.zeros(R), []
    for column in x.T:
        sums = sums * 0.5 + column
        decayed.append(sums)
    largest = x.cummax(1)
    return [x.cumsum(1), x.flip(0).cumsum(0).flip(0), largest.values, largest.indices, torch.stack(decayed, 1)]


def selected(x):
    return [x.flip(1), x.sort(1).values, x.flip(1), x.clamp(-1, 1), x.argmax(1, keepdim=True).expand(R, C)]


def addressed(x):
    x = x.reshape(-1)[:N]
    pairs = x.reshape(-1, 2)
    return [x * x + x, torch.erf(x), x / 3, torch.sigmoid(x), torch.softmax(x, 0), pairs.T.reshape(-1), x]


def by_library(x):
    x = x.reshape(-1)[:N]
    away = torch.copysign(torch.floor(x.abs() + 0.5), x)
    return [torch.tanh(x), x.abs().pow(1.5), x.trunc(), torch.log1p(x.abs()), away]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "constants", "size", "expected"),
    [
        ("scans", {"R": R, "C": C}, 5 * R * C, scanned),
        ("selections", {"R": R, "C": C}, 5 * R * C, selected),
        ("addresses", {"N": N}, 7 * N, addressed),
        ("libraries", {"N": N}, 5 * N, by_library),
    ],
)
def test_floats(name, constants, size, expected, target):
    given = {"x_ptr": FLOATS, "out_ptr": torch.full((size,), torch.nan)}
    out = run(getattr(kernels, name), given, constants, target)["out_ptr"]
    right = torch.cat([part.reshape(-1).float() for part in expected(FLOATS)])
    torch.testing.assert_close(out, right, atol=1e-5, rtol=1e-5)


def counted():
    return torch.bincount(SMALL, minlength=BINS), torch.bincount(SMALL + 1, minlength=BINS)


@pytest.mark.parametrize("target", TARGETS)
def test_counts(target):
    given = {"x_ptr": SMALL, "out_ptr": torch.zeros(3 * BINS, dtype=torch.int32)}
    plain, masked, both = run(kernels.counts, given, {"N": N, "BINS": BINS}, target)["out_ptr"].reshape(3, -1)
    first, second = counted()
    assert plain.tolist() == first.tolist()
    assert masked.tolist() == [count * (index != 3) for index, count in enumerate(first.tolist())]
    assert both.tolist() == (first + second).tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_integers(target):
    given = {"x_ptr": INTEGERS, "out_ptr": torch.zeros(8 * N, dtype=torch.int32)}
    out = run(kernels.integers, given, {"N": N}, target)["out_ptr"].reshape(8, N)
    x = INTEGERS
    assert out[0].tolist() == torch.div(x, 3, rounding_mode="trunc").tolist()
    assert out[1].tolist() == torch.fmod(x, 3).tolist()
    high = [((value & 0xFFFFFFFF) * 0x9E3779B9 >> 32) for value in x.tolist()]
    assert out[2].numpy().view(np.uint32).tolist() == high
    assert out[3].tolist() == torch.div(x + 4, 5, rounding_mode="trunc").tolist()
    assert out[4].tolist() == [int(value * 1.5) if value >= 0 else 0 for value in x.tolist()]
    assert set(out[5].tolist()) == {int(np.bitwise_xor.reduce(x.numpy()))}
    assert out[6].tolist() == (x + (x[0] + 3 if 3 > 2 else x[0] - 3)).tolist()
    assert len(set(out[7].tolist())) > N // 2


@pytest.mark.parametrize("target", TARGETS)
def test_casts(target):
    x = FLOATS.reshape(-1)[:N]
    given = {"x_ptr": x, **{name: torch.zeros(N, dtype=torch.bfloat16) for name in ("near_ptr", "zero_ptr")}}
    out = run(kernels.casts, given, {"N": N}, target)
    assert torch.equal(out["near_ptr"], x.bfloat16())
    assert torch.equal(out["zero_ptr"], (x.view(torch.int32) & -65536).view(torch.float32).bfloat16())


def test_rounding_towards_zero_at_the_ends():
    values = np.array([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, 3.4e38, 1.0], np.float32)
    assert towards_zero(values, "bf16").tolist() == [0, 0, 0, 0, np.inf, -np.inf, float.fromhex("0x1.fep127"), 1]


@pytest.mark.parametrize("target", TARGETS)
def test_atomics_and_loops(target):
    given = {"x_ptr": INTEGERS.abs(), "out_ptr": torch.tensor([0, 9999, 2, 12, 6, 1, 0, 7, 0, 0], dtype=torch.int32)}
    x = given["x_ptr"]
    out = run(kernels.atomics, given, {"N": N}, target)["out_ptr"].tolist()
    assert out == [int(x.max()), int(x.min()), 7, 4, 5, 9, 4, 0, -(-int(x[0]) // 2) * 2, 1]


@pytest.mark.skipif(not hasattr(tl, "map_elementwise"), reason="the installed Triton has no tl.map_elementwise")
def test_a_function_of_each_element():
    given = {"x_ptr": INTEGERS, "out_ptr": torch.zeros(N, dtype=torch.int32)}
    out = run(kernels.elements, given, {"N": N}, "sm_90")["out_ptr"]
    assert out.tolist() == [-2 * value if value < 0 else value + 1 for value in INTEGERS.tolist()]


@pytest.mark.parametrize("kind", [np.int32, np.int64])
@pytest.mark.parametrize(("name", "signed"), [("arith.mului_extended", False), ("arith.mulsi_extended", True)])
def test_both_halves_of_a_product(kind, name, signed):
    bits = 8 * np.dtype(kind).itemsize
    words = f"%a, %b : i{bits}"
    _, compute = MAKERS[name](Operation(name, ["%low", "%high"], words, ""))
    a, b = kind(-7), kind(3 << bits - 4)
    low, high = compute(a, b)
    whole = int(a) * int(b) if signed else (int(a) % 2**bits) * (int(b) % 2**bits)
    assert int(low) % 2**bits == whole % 2**bits
    assert int(high) % 2**bits == (whole >> bits) % 2**bits


def test_a_function_of_a_library_that_is_not_known_is_named():
    words = '%0 {libname = "", libpath = "", pure = true, symbol = "__nv_j0f"} : (tensor<4xf32>) -> tensor<4xf32>'
    with pytest.raises(UnknownOperation, match="__nv_j0f"):
        MAKERS["tt.extern_elementwise"](Operation("tt.extern_elementwise", ["%1"], words, ""))


@pytest.mark.skipif(not hasattr(tl, "make_tensor_descriptor"), reason="the installed Triton has no such descriptors")
@pytest.mark.parametrize("target", [*TARGETS, *MOVER])
def test_tiles_by_descriptors(target):
    x = torch.randn(20, 40, generator=torch.Generator().manual_seed(4))
    given = {"x_ptr": x, "out_ptr": torch.full((40, 20), torch.nan)}
    out = run(kernels.transposed_tiles, given, {"R": 20, "C": 40}, target)["out_ptr"]
    assert torch.equal(out, x.T)
