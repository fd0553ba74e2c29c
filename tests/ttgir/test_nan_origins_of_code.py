"""NaN that compiled code makes is traced to the line where it begins, with the kind of operation."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from conformance.kernels.launch import Launch
from conformance.ttgir.executor import TtgirExecutor
from tests.execution import nan_kernels as kernels

#: Ways whose NaN an executor of TTGIR has, too: it gives 0 to lanes without a value, and constants have no line.
ELEMENTS = (
    "operand", "zero times inf", "inf times zero", "zero by zero", "inf by inf", "inf minus inf", "square root",
    "reciprocal root", "logarithm", "sine", "fused", "fused sum", "softmax", "sum", "running sum", "bf16", "fp8",
    "moved", "chosen", "not stored", "stored before", "atomic", "called",
)  # fmt: skip
TILES = ("zero times inf", "inf minus inf", "second operand")
WAYS = [("elements", way) for way in ELEMENTS] + [("tiles", way) for way in TILES]


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_the_line_and_the_kind_are_named(name: str, way: str) -> None:
    function = getattr(kernels, name)
    text = compiled(function, way)
    x, y, out = kernels.inputs(name)
    work = torch.full((kernels.SIZE,), torch.nan)
    arguments = {"x": x, "out": out, "WAY": tl.constexpr(way)}
    arguments |= {"work": work, "n": 20} if name == "elements" else {"y": y, "k": 9}
    executor = TtgirExecutor({name: text})
    with executor.tracing_nan({"x": x, "y": y, "out": out}, ["out"], None) as tracing:
        executor.run(Launch(function, (1,), arguments))
    numbers = [tracing.of_output("out", tuple(element)) for element in out.isnan().nonzero().tolist()]
    kind, words = {"elements": kernels.ELEMENTS, "tiles": kernels.TILES}[name][way]
    sentences = tracing.origins.words(numbers)
    assert {tracing.origins.origin(number).kind for number in numbers} == {kind}
    assert len(sentences) == 1
    assert (
        f"begins at nan_kernels.py:{kernels.line_of(function, way)}: {words.partition(' in ')[0][:9]}" in sentences[0]
    )


def compiled(function, way: str) -> str:
    """Returns the TTGIR of a kernel for sm_90."""
    types = dict.fromkeys(function.arg_names, "*fp32") | {"WAY": "constexpr"}
    types |= {name: "i32" for name in ("n", "k") if name in types}
    return triton.compile(ASTSource(function, types, {"WAY": way}), target=GPUTarget("cuda", 90, 32)).asm["ttgir"]


def test_code_that_is_traced_computes_the_same_and_leaves_no_trace() -> None:
    way, (x, _, out) = "softmax", kernels.inputs("elements")
    executor = TtgirExecutor({"elements": compiled(kernels.elements, way)})
    arguments = {"x": x, "out": out, "work": x, "n": 20, "WAY": tl.constexpr(way)}
    launch = Launch(kernels.elements, (1,), arguments)
    executor.run(launch)
    before = out.clone()
    with executor.tracing_nan({"x": x, "out": out}, ["out"], None) as tracing:
        executor.run(launch)
    assert tracing.origins.count
    assert torch.equal(out.isnan(), before.isnan())
    count = tracing.origins.count
    executor.run(launch)
    assert tracing.origins.count == count


def test_shared_memory_that_nothing_wrote_is_an_origin() -> None:
    text = """
module attributes {"ttg.num-warps" = 4 : i32, ttg.target = "cuda:90"} {
  tt.func public @kernel(%out: !tt.ptr<f32>) {
    %at = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #b>
    %tile = ttg.local_alloc : () -> !ttg.memdesc<32xf32, #shared, #smem, mutable> loc("mm.py":7:1)
    %value = ttg.local_load %tile : !ttg.memdesc<32xf32, #shared, #smem, mutable> -> tensor<32xf32, #b> loc("mm.py":9:1)
    %p = tt.splat %out : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>, #b>
    %q = tt.addptr %p, %at : tensor<32x!tt.ptr<f32>, #b>, tensor<32xi32, #b>
    tt.store %q, %value : tensor<32x!tt.ptr<f32>, #b>
    tt.return
  }
}
"""
    out = torch.zeros(32)
    executor = TtgirExecutor({"copied": text})
    with executor.tracing_nan({"out": out}, ["out"], None) as tracing:
        executor.run(Launch(copied, (1,), {"out": out}))
    assert tracing.origins.words([tracing.of_output("out", (3,))]) == [
        "NaN begins at mm.py:9: %tile (mm.py:7) is read where nothing was written [1 elements]"
    ]


@triton.jit
def copied(out):
    tl.store(out, 0.0)
