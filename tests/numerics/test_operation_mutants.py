"""Correct kernels of every product-like operation pass in emulated arithmetic, and wrong ones are caught.

Each fault is one change of the emulated kernel; the fill that is there for the fault must catch it.
"""

import functools

import pytest
import torch
from gemm_emulation import FP8_PROMOTED, HOPPER, EmulatedProduct, caught_by

from conformance.families.gemm.problem import (
    Bias,
    Fusion,
    baddbmm,
    bmm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm_plus_mm,
    scaled_mm,
)
from conformance.numerics.contract import FMA, INT32, Contract
from conformance.numerics.rounding import round_to
from conformance.problems import Layout

EXACT = {"transparent", "wide-A", "wide-B"}
ONE = {"transparent"}
RANDN = {"randn"}

PLUS = (mm_plus_mm(40, 56, 33, "bf16"), Contract("bf16", HOPPER))
BMM = (bmm(24, 20, 33, "fp16", batch=9), Contract("fp16", HOPPER))
SHARED = (bmm(24, 20, 33, "fp16", batch=4, layout_b=Layout(batch="zero")), Contract("fp16", HOPPER))
BADDBMM = (baddbmm(24, 20, 33, "bf16", batch=4), Contract("bf16", HOPPER))
BADDBMM_MATRIX = (baddbmm(24, 20, 33, "fp16", batch=4, bias=Bias("bmn")), Contract("fp16", HOPPER))
INT = (int_mm(40, 56, 1200), Contract("int32", INT32))
SIGNED = (mixed_mm(40, 56, 88, "fp16"), Contract("fp16", HOPPER))
UNSIGNED = (mixed_mm(40, 56, 88, "bf16", b_dtype="uint8"), Contract("bf16", HOPPER))
LINES = (scaled_mm(40, 56, 400, scaling="1x128/1x128"), Contract("bf16", FP8_PROMOTED))
BLOCKS_B = (scaled_mm(40, 300, 400, scaling="1x128/128x128", out_dtype="fp32"), Contract("fp32", FP8_PROMOTED))
BLOCKS_A = (scaled_mm(300, 40, 260, scaling="128x128/1x128", bias=Bias()), Contract("bf16", FP8_PROMOTED))


def fused(*epilogue, prologue=None, stored=None, dtype="fp16", out="fp16"):
    bias = Bias() if "bias" in epilogue else None
    problem = fused_mm(40, 56, 33, dtype, fusion=Fusion(prologue, stored, epilogue), bias=bias, out_dtype=out)
    return problem, Contract(out, HOPPER)


RELU = fused("bias", "relu", "residual")
DROPOUT = fused("relu", "dropout", "residual")
GELU = fused("bias", "gelu", out="fp32")
GATHER = fused(prologue="gather")
CAST = fused("relu", prologue="cast", stored="fp32", dtype="bf16")
SCALE = fused(prologue="scale")

CASES = (
    *(PLUS, BMM, SHARED, BADDBMM, BADDBMM_MATRIX, INT, SIGNED, UNSIGNED, LINES, BLOCKS_B, BLOCKS_A),
    *(RELU, DROPOUT, GELU, GATHER, CAST, SCALE),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].id)
def test_correct_kernels_pass(case):
    assert caught_by(*case, EmulatedProduct(*case)) == set()


def changed(**new):
    """A kernel that reads some operands otherwise: name -> function of all inputs."""

    def make(case):
        return lambda inputs: EmulatedProduct(*case)(
            {**inputs, **{name: change(inputs) for name, change in new.items()}}
        )

    return make


def overridden(**parts):
    """A kernel with other parts: name -> function like the method."""

    def make(case):
        kernel = EmulatedProduct(*case)
        for name, part in parts.items():
            setattr(kernel, name, functools.partial(part, kernel))
        return kernel

    return make


def as_type(name, dtype):
    return lambda inputs: inputs[name].view(dtype)


def rolled(name, axis, by=1):
    return lambda inputs: inputs[name].roll(by, axis)


def fp32_sum(kernel, a, b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], 32):
        total = total + (a[:, k : k + 32].double() @ b[k : k + 32].double()).float()
    return total.double()


def saturating_sum(kernel, a, b):
    return (a.double() @ b.double()).clamp(-(2.0**15), 2.0**15 - 1)


def scaled_at_the_end(kernel, inputs):
    scale_a, scale_b = EmulatedProduct.scales(kernel, inputs, 0)
    return (inputs["a"].double() @ inputs["b"].double()).float() * scale_a * scale_b


def truncated_cast(kernel, inputs):
    return (inputs["a"].view(torch.int32) & -65536).view(torch.float32)


def neighbour(kernel, inputs, index):
    """Scales of the next k-block (of the previous at the end)."""
    last = inputs["scale_a"].shape[1] - 1
    return EmulatedProduct.scales(kernel, inputs, index + 1 if index < last else index - 1)


def scale_a_of_neighbour(kernel, inputs, index):
    return neighbour(kernel, inputs, index)[0], EmulatedProduct.scales(kernel, inputs, index)[1]


def scale_b_of_neighbour(kernel, inputs, index):
    return EmulatedProduct.scales(kernel, inputs, index)[0], neighbour(kernel, inputs, index)[1]


def tanh_gelu(kernel, inputs, value):
    return torch.nn.functional.gelu(value, approximate="tanh")


FAULTS = {
    "second product missing": (PLUS, changed(c=lambda i: torch.zeros_like(i["c"])), EXACT),
    "first product missing": (PLUS, changed(a=lambda i: torch.zeros_like(i["a"])), EXACT),
    "second product with A": (PLUS, changed(c=lambda i: i["a"]), EXACT),
    "second product with B": (PLUS, changed(d=lambda i: i["b"]), EXACT),
    "second product without its last k": (
        PLUS,
        changed(c=lambda i: torch.cat([i["c"][:, :-1], 0 * i["c"][:, :1]], 1)),
        ONE,
    ),
    "A of the previous matrix": (BMM, changed(a=rolled("a", 0)), EXACT),
    "B of the next matrix": (BMM, changed(b=rolled("b", 0, -1)), EXACT),
    "A and B of the previous matrix": (BMM, changed(a=rolled("a", 0), b=rolled("b", 0)), EXACT),
    "B of the first matrix for all": (BMM, changed(b=lambda i: i["b"][:1].expand_as(i["b"])), EXACT),
    "A of the first matrix for all": (SHARED, changed(a=lambda i: i["a"][:1].expand_as(i["a"])), EXACT),
    "bias of the first matrix for all": (BADDBMM, changed(bias=lambda i: i["bias"][:1].expand_as(i["bias"])), ONE),
    "bias of the next matrix": (BADDBMM_MATRIX, changed(bias=rolled("bias", 0)), ONE),
    "bias missing": (BADDBMM, changed(bias=lambda i: 0 * i["bias"]), ONE),
    "sums in fp32": (INT, overridden(dot=fp32_sum), {"wide-A"}),
    "sums saturate at 16 bits": (INT, overridden(dot=saturating_sum), {"transparent", "wide-A"}),
    "int8 A read as uint8": (INT, changed(a=as_type("a", torch.uint8)), {"transparent", "wide-A"}),
    "int8 B read as uint8": (SIGNED, changed(b=as_type("b", torch.uint8)), EXACT),
    "uint8 B read as int8": (UNSIGNED, changed(b=as_type("b", torch.int8)), EXACT),
    "B cut to 127": (UNSIGNED, changed(b=lambda i: i["b"].clamp(max=127)), EXACT),
    "-128 becomes -127": (SIGNED, changed(b=lambda i: i["b"].clamp(min=-127)), {"wide-B"}),
    "B through e4m3": (SIGNED, changed(b=lambda i: round_to(i["b"].double(), "e4m3").double()), EXACT),
    "scale of A of the neighbouring k-block": (LINES, overridden(scales=scale_a_of_neighbour), EXACT),
    "scale of B of the neighbouring k-block": (LINES, overridden(scales=scale_b_of_neighbour), EXACT),
    "scale of B's block of the neighbouring k-block": (BLOCKS_B, overridden(scales=scale_b_of_neighbour), EXACT),
    "scale of A's block of the neighbouring k-block": (BLOCKS_A, overridden(scales=scale_a_of_neighbour), EXACT),
    "scale of the neighbouring columns": (BLOCKS_B, changed(scale_b=rolled("scale_b", 1)), EXACT),
    "scale of the neighbouring rows": (BLOCKS_A, changed(scale_a=rolled("scale_a", 0)), EXACT),
    "scale of the neighbouring row": (LINES, changed(scale_a=rolled("scale_a", 0)), EXACT),
    "scaled once, at the end": (LINES, overridden(scaled=scaled_at_the_end), EXACT),
    "scales in bf16": (LINES, changed(scale_a=lambda i: i["scale_a"].bfloat16().float()), {"wide-scales"}),
    "relu missing": (RELU, overridden(steps=lambda k: ("bias", "residual")), EXACT),
    "residual before relu": (RELU, overridden(steps=lambda k: ("bias", "residual", "relu")), EXACT),
    "relu before bias": (RELU, overridden(steps=lambda k: ("relu", "bias", "residual")), ONE),
    "residual missing": (RELU, overridden(steps=lambda k: ("bias", "relu")), ONE),
    "dropout does not double": (DROPOUT, overridden(dropout=lambda k, i, v: v * (i["mask"] != 0)), EXACT),
    "dropout doubles only": (DROPOUT, overridden(dropout=lambda k, i, v: v * 2), EXACT),
    "mask inverted": (DROPOUT, changed(mask=lambda i: 1 - i["mask"]), EXACT),
    "mask of the next column": (DROPOUT, changed(mask=rolled("mask", 1)), EXACT),
    "gelu by tanh": (GELU, overridden(gelu=tanh_gelu), RANDN),
    "relu for gelu": (GELU, overridden(gelu=lambda k, i, v: v.relu()), RANDN),
    "bias after gelu": (GELU, overridden(steps=lambda k: ("gelu", "bias")), RANDN),
    "rows not gathered": (GATHER, changed(rows=lambda i: torch.arange(40)), EXACT),
    "rows of the next index": (GATHER, changed(rows=lambda i: (i["rows"] + 1) % len(i["a"])), EXACT),
    "cast towards zero": (CAST, overridden(prologue=truncated_cast), RANDN),
    "no cast": (CAST, overridden(prologue=lambda k, i: i["a"]), RANDN),
    "row scale missing": (SCALE, changed(row_scale=lambda i: torch.ones_like(i["row_scale"])), EXACT),
    "row scale of the next row": (SCALE, changed(row_scale=rolled("row_scale", 0)), EXACT),
    "row scale in fp16": (SCALE, changed(row_scale=lambda i: i["row_scale"].half().float()), RANDN),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_caught(name):
    case, make, expected = FAULTS[name]
    for seed in (0, 1):
        assert caught_by(*case, make(case), seed) >= expected


def test_a_batch_index_that_wraps_at_16_bits_is_caught():
    case = bmm(2, 2, 4, "fp16", batch=65700), Contract("fp16", FMA)

    def kernel(wrap):
        def run(inputs):
            index = torch.arange(65700) % wrap
            return (inputs["a"][index].double() @ inputs["b"][index].double()).half()

        return run

    assert "transparent" not in caught_by(*case, kernel(65700))
    assert caught_by(*case, kernel(65536)) >= EXACT
