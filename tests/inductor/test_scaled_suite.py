"""Faults of scaled products that Inductor generates: each must be caught by the checks of the suite about them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import BLOCK_SCALINGS, Bias, Gemm, scaled_mm
from conformance.inductor.compile.program import Choice, Failure, Generated, Lowering
from conformance.inductor.topics import scaled
from conformance.problems import DTYPES
from conformance.records import Verdict
from tests.inductor.planted_code import Fault, PlantedFaults, failed, suite_test

case = functools.partial(suite_test, "test_inductor_scaled")

CASES = {
    "pointers": case("test_pointers", scaling="row", fast=False),
    "one scale": case("test_pointers", scaling="tensor", fast=False),
    "fast": case("test_pointers", scaling="row", fast=True),
    "bias": case("test_bias", scaling="row", bias="bf16", out="fp32"),
    "descriptors": case("test_descriptors", scaling="row", fast=False, store=False),
    "fast descriptors": case("test_descriptors", scaling="tensor", fast=True, store=False),
    "blocks": case("test_block_scales", scaling="1x128/128x128", tile=(128, 128, 128)),
    "output": case("test_dtypes", dtypes=("e4m3", "e4m3", "fp32"), by="pointers"),
    "recipe": case("test_recipes", recipe="row", by="descriptors"),
}

FAST = "USE_FAST_ACCUM : tl.constexpr = {}"
FASTER, PROMOTED = r"acc = tl.dot(a, b, acc, ", r"acc += tl.dot(a, b, "
FLAG, PROMOTION = ("source/fast accumulation",), ("ttgir/promotion",)
BOTH_SCALES = r"a_scales\[:, None\] \* b_scales\[None, :\]"
NEIGHBOUR = r"(ptrs = scale \+ .* \+ )col_offs_scale\[None, :\]"
SQUARE = r"blockwise128x128_scaling\(([^)]*)(bn_blocks,[^)]*)MIN_BLOCK_TILE_BN,\s*MIN_BLOCK_TILE_BK,"
LINES = r"blockwise1xTILESIZE_scaling(\1N, \2MIN_BLOCK_TILE_BK, TILE_SIZE_B,"

FAULTS = (
    Fault("scale of A dropped", "pointers", r"tmp2 = tmp0 \* tmp1$", "tmp2 = tmp1", ("numerics",)),
    Fault("scales of rows by columns", "pointers", r"(in_ptr2 .*\()idx_m", r"\1idx_n", ("numerics",)),
    Fault("fast accumulation unasked", "pointers", r"acc \+= tl\.dot\(a, b, ", FASTER, PROMOTION),
    Fault("told of fast accumulation", "pointers", FAST.format("False"), FAST.format("True"), FLAG),
    Fault("scale of B dropped", "one scale", r"tmp4 = tmp1 \* tmp3$", "tmp4 = tmp1", ("numerics",)),
    Fault("fast accumulation not passed", "fast", r"acc = tl\.dot\(a, b, acc, ", PROMOTED, PROMOTION),
    Fault("bias left out", "bias", r"tmp5 = tmp4 \+ tmp2$", "tmp5 = tmp4", ("numerics",)),
    Fault("bias scaled", "bias", r"acc \* tmp3\n( *)tmp5 = .*$", r"(acc + tmp2) * tmp3\n\1tmp5 = tmp4", ("numerics",)),
    Fault("bias of rows", "bias", r"(in_ptr4 .*\()idx_n", r"\1idx_m", ("numerics",)),
    Fault("scales of rows dropped", "descriptors", BOTH_SCALES, "b_scales[None, :]", ("numerics",)),
    Fault("scale of the next row", "descriptors", r"\(offs_cm \*", "((offs_cm + 1) *", ("numerics",)),
    Fault("always fast", "descriptors", FAST.format("False"), FAST.format("True"), (*FLAG, *PROMOTION)),
    Fault("never fast", "fast descriptors", FAST.format("True"), FAST.format("False"), (*FLAG, *PROMOTION)),
    Fault(
        "sums of fp32 products",
        "descriptors",
        r"tl\.dot\(a, b\.T\)",
        'tl.dot(a.to(tl.float32), b.T.to(tl.float32), input_precision="ieee")',
        ("codegen/requires/WGMMA",),
    ),
    Fault("scale of the next block", "blocks", NEIGHBOUR, r"\1(col_offs_scale[None, :] + 1) % k_blocks", ("numerics",)),
    Fault("scales of one row", "blocks", r"row_offs_scale = pid \* BLOCK_lhs", "row_offs_scale = 0", ("numerics",)),
    Fault("pitch of the scales", "blocks", r"\* k_blocks \+", "* (k_blocks - 1) +", ("numerics",)),
    Fault("square blocks as lines", "blocks", SQUARE, LINES, ("source/scales of b", "numerics")),
    Fault("scales of A's blocks dropped", "blocks", r"a \* scale_a_block", "a.to(tl.float32)", ("numerics",)),
    Fault("narrow sum", "output", r"(ACC_TYPE : .* = )tl\.float32", r"\1tl.float16", ("source/accumulator",)),
    Fault("scales of columns dropped", "recipe", BOTH_SCALES, "a_scales[:, None]", ("numerics",)),
)


@pytest.mark.long(22)
class TestFaults(PlantedFaults):
    pass


# --- what is offered and refused --------------------------------------------------------------------------------------


def choice(name: str, rows: int = 16, k: int = 32) -> Choice:
    return Choice(name, f"BLOCK_K={k}, BLOCK_M={rows}, BLOCK_N=32, num_stages=1, num_warps=4", "triton")


def offering(*choices: Choice, lowering: str = "scaled_mm", **fields: Any) -> Generated:
    return Generated(lowerings=(Lowering(lowering, choices, choices, len(choices)),), **fields)


POINTERS, DESCRIPTORS = "triton_mm_0", "triton_scaled_mm_device_tma_epilogue_scaling_1"
NARROW = offering(choice(POINTERS, k=16), choice(DESCRIPTORS, k=16))
ATEN = Choice("_scaled_mm", "", "extern")
CALL = "extern_kernels._scaled_mm(arg0_1, {}, out=buf0)\n# extern_kernels._scaled_mm(arg0_1)"
IN_ORDER, EXCHANGED = CALL.format("arg1_1, arg2_1, arg3_1"), CALL.format("arg1_1, arg3_1, arg2_1")


def refused(message: str, *types: str) -> Generated:
    return Generated(failure=Failure(("InductorError", *types), message))


@pytest.mark.parametrize(
    ("expected", "check"),
    [
        ([], lambda: scaled.check_offered(offering(), 16, tcgen05=True)),
        ([], lambda: scaled.check_offered(offering(choice(POINTERS, 32)), 16, tcgen05=False)),
        (["few rows"], lambda: scaled.check_offered(offering(choice(POINTERS, 64)), 16, tcgen05=False)),
        (["few rows"], lambda: scaled.check_offered(offering(choice(POINTERS, 32)), 16, tcgen05=True)),
        (["no descriptors"], lambda: scaled.check_offered(offering(choice(DESCRIPTORS)), 16, tcgen05=False)),
        (["lowerings"], lambda: scaled.check_offered(Generated(), 16, tcgen05=False)),
        (["lowerings"], lambda: scaled.check_offered(offering(lowering="mm"), 16, tcgen05=False)),
        ([], lambda: scaled.check_offered(offering(choice(POINTERS), choice(DESCRIPTORS)), 32, tcgen05=True)),
        (["descriptors"], lambda: scaled.check_offered(offering(choice(POINTERS)), 32, tcgen05=True)),
        (["pointers"], lambda: scaled.check_offered(offering(choice(DESCRIPTORS)), 48, tcgen05=True)),
        (
            ["descriptors", "pointers"],
            lambda: scaled.check_offered(NARROW, 32, tcgen05=False),
        ),
        ([], lambda: scaled.check_refused(refused("mat2 must be col_major"), message="col_major")),
        ([], lambda: scaled.check_refused(refused("", "AssertionError"), types="AssertionError")),
        (["raised"], lambda: scaled.check_refused(refused("", "TypeError"), types="AssertionError")),
        (["message"], lambda: scaled.check_refused(refused("self must be row_major"), message="col_major")),
        (["raised"], lambda: scaled.check_refused(Generated())),
        (["raised", "message"], lambda: scaled.check_refused(Generated(), message="col_major")),
        ([], lambda: scaled.check_called(offering(ATEN, modules=(IN_ORDER,)))),
        (["source/operands"], lambda: scaled.check_called(offering(ATEN, modules=(EXCHANGED,)))),
        (["source/call"], lambda: scaled.check_called(offering(ATEN, modules=(f"{IN_ORDER}\n{IN_ORDER}",)))),
        (["offered"], lambda: scaled.check_called(offering(ATEN, choice(POINTERS), modules=(IN_ORDER,)))),
        (["source/call", "source/operands"], lambda: scaled.check_called(offering(ATEN))),
    ],
)
def test_fault_of_what_is_offered_or_refused(expected: list[str], check: Callable[[], list[Verdict]]) -> None:
    assert failed(check()) == expected


# --- the graphs' own reference ----------------------------------------------------------------------------------------


def inputs_of(problem: Gemm) -> dict[str, Tensor]:
    """Different values for every operand."""
    generator = torch.Generator().manual_seed(3)
    return {one.name: torch.rand(one.shape, generator=generator).to(DTYPES[one.dtype]) for one in problem.operands}


@pytest.mark.parametrize("scaling", ["tensor", "row", *BLOCK_SCALINGS])
@pytest.mark.parametrize("bias", [None, Bias("n", "bf16")])
def test_the_reference_of_a_graph(scaling: str, bias: Bias | None) -> None:
    problem = scaled_mm(160, 272, 320, scaling=scaling, bias=bias)
    inputs = inputs_of(problem)
    result = scaled.scaled_mm(*(value.double() for value in inputs.values()), out_dtype="fp32")
    assert torch.allclose(result, gemm.value(problem, inputs), rtol=1e-12, atol=0)


def padded(scale: Tensor) -> Tensor:
    """The scales of 128x128 blocks with K first, in whole groups of four."""
    return torch.nn.functional.pad(scale, (0, 0, 0, -scale.shape[0] % 4), value=99.0)


@pytest.mark.parametrize("scaling", BLOCK_SCALINGS)
def test_the_reference_by_recipes(scaling: str) -> None:
    problem = scaled_mm(160, 272, 320, scaling=scaling)
    inputs = inputs_of(problem)
    a, b, scale_a, scale_b = (value.double() for value in inputs.values())
    first, second = scaling.split("/")
    scale_a = padded(scale_a.T) if first == "128x128" else scale_a
    scale_b = padded(scale_b) if second == "128x128" else scale_b.T
    recipes = (f"BlockWise{first}", f"BlockWise{second}")
    result = scaled.scaled_mm_by_recipes(a, b, scale_a, scale_b, recipes=recipes, out_dtype="fp32")
    assert torch.allclose(result, gemm.value(problem, inputs), rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(1, 272), (272, 1)])
def test_the_reference_of_scales_of_columns(shape: tuple[int, int]) -> None:
    problem = scaled_mm(160, 272, 320, scaling="row")
    inputs = inputs_of(problem)
    a, b, scale_a, scale_b = (value.double() for value in inputs.values())
    recipes = ("RowWise", "RowWise")
    result = scaled.scaled_mm_by_recipes(a, b, scale_a, scale_b.reshape(shape), recipes=recipes, out_dtype="fp32")
    assert torch.allclose(result, gemm.value(problem, inputs), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("lines", "k", "form", "count"), [(256, 640, "mxfp8", 5120), (130, 100, "nvfp4", 2048)])
def test_mx_scales_fill_whole_tiles(lines: int, k: int, form: str, count: int) -> None:
    assert scaled.mx_scales(lines, k, form) == count
