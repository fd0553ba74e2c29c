"""Scaled products by both of torch's functions, and checks of fast accumulation, of the choices for a short K and of
refusals.

``a`` is M x K by rows and ``b`` K x N by columns, both of fp8 unless a function says more. With operands of fp64 each
function is its own reference: ATen has no scaled product of them.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor

from conformance.codegen_checks import TCGEN05, WGMMA
from conformance.families.gemm.problem import SCALE_BLOCK
from conformance.inductor.compile.program import Generated
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.problems import DTYPES
from conformance.records import Verdict

#: MX format -> dtypes of the operands and of their scales, and how many values share a scale.
MX_FORMATS = {
    "mxfp8": ("float8_e4m3fn", "float8_e8m0fnu", 32),
    "mxfp4": ("float4_e2m1fn_x2", "float8_e8m0fnu", 32),
    "nvfp4": ("float4_e2m1fn_x2", "float8_e4m3fn", 16),
}


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: str,
    fast: bool = False,
) -> Tensor:
    """By torch._scaled_mm, which reads from the scales' shapes what they are."""
    if a.dtype == torch.float64:
        result = (a * spread(scale_a, a)) @ (b * spread(scale_b, b))
        return result if bias is None else result + bias
    return torch._scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=DTYPES[out_dtype], use_fast_accum=fast)


def scaled_mm_by_recipes(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, recipes: tuple[str, str], out_dtype: str
) -> Tensor:
    """By torch.nn.functional.scaled_mm, which is told what the scales are.

    It takes B's scales of columns as 1 x N or N x 1. Scales of 1x128 blocks are M x K / 128 and N x K / 128. Those of
    128x128 blocks are K / 128 x M / 128 and K / 128 x N / 128. There K / 128 is rounded up to a multiple of four.
    """
    if a.dtype == torch.float64:
        blocks = -(-a.shape[1] // SCALE_BLOCK)
        rows = scale_a[:blocks].T if recipes[0] == "BlockWise128x128" else scale_a
        if recipes[1] == "BlockWise128x128":
            columns = scale_b[:blocks]
        else:
            columns = scale_b.T if recipes[1] == "BlockWise1x128" else scale_b.reshape(1, -1)
        return scaled_mm(a, b, rows, columns, out_dtype=out_dtype)
    functional = torch.nn.functional
    kind_a, kind_b = (getattr(functional.ScalingType, recipe) for recipe in recipes)
    return functional.scaled_mm(a, b, scale_a, kind_a, scale_b, kind_b, output_dtype=DTYPES[out_dtype])


def spread(scale: Tensor, matrix: Tensor) -> Tensor:
    """Returns one scale for each element of ``matrix``. ``scale`` has one element, or in each dimension one for all,
    for each or for each block of 128."""
    if scale.numel() == 1:
        return scale.reshape(())
    for dimension, extent in enumerate(matrix.shape):
        count = scale.shape[dimension]
        if count not in (1, extent):
            scale = scale.repeat_interleave(SCALE_BLOCK, dimension).narrow(dimension, 0, extent)
    return scale


def mx_scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, form: str, by_recipes: bool) -> Tensor:
    """Returns the product of two operands of one of :data:`MX_FORMATS`, ``b`` as N x K. All four tensors are bytes."""
    values, scales, block = MX_FORMATS[form]
    a, b = a.view(getattr(torch, values)), b.view(getattr(torch, values)).t()
    scale_a, scale_b = scale_a.view(getattr(torch, scales)), scale_b.view(getattr(torch, scales))
    if not by_recipes:
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
    functional = torch.nn.functional
    kind = getattr(functional.ScalingType, f"BlockWise1x{block}")
    order = functional.SwizzleType.SWIZZLE_32_4_4
    return functional.scaled_mm(
        a, b, scale_a, kind, scale_b, kind, swizzle_a=order, swizzle_b=order, output_dtype=torch.bfloat16
    )


def mx_scales(lines: int, k: int, form: str) -> int:
    """Returns the number of scales of an operand with ``lines`` rows or columns and ``k`` values: in tiles of
    128 x 4."""
    block = MX_FORMATS[form][2]
    return math.ceil(lines / 128) * 128 * math.ceil(k / block / 4) * 4


#: The least K of an fp8 instruction of tcgen05, and the least row of a descriptor's box, in elements of one byte.
LEAST_K = 32
#: Torch 2.6 has pointer choices at K = 16 of fewer rows than this; later ones have none.
ROWS_AT_16 = 64


def check_fast(run: Any, *, fast: bool) -> None:
    """The kernel was told how to sum. Where wgmma sums, code without fast accumulation adds each block of k to the sum
    by an instruction of its own; the product must have no bias, which is added, too."""
    run.exactly(1, "fast accumulation", rf"USE_FAST_ACCUM : tl\.constexpr = {fast}\b")
    if run.target.capability("wgmma").available:
        run.filecheck("promotion", f"CHECK{'-NOT' if fast else ''}: arith.addf", where="ttgir")


def check_unit(run: Any) -> None:
    """The code uses the target's instruction for whole warpgroups; for tiles of at least 64 rows and four warps."""
    for capability, feature in (("wgmma", WGMMA), ("tcgen05", TCGEN05)):
        if run.target.capability(capability).available:
            run.code(requires=[feature])


def check_block_scales(run: Any, scaling: str) -> None:
    """The main loop reads each operand's scales as blocks of the kind that ``scaling`` says, A's kind first."""
    kinds = scaling.split("/")
    for operand, kind in zip("ab", kinds, strict=True):
        function = {"1x128": "blockwise1xTILESIZE_scaling", "128x128": "blockwise128x128_scaling"}[kind]
        run.exactly(1, f"scales of {operand}", rf"^ +scale_{operand}_block = {function}\(")


def check_offered(generated: Generated, k: int, *, tcgen05: bool) -> list[Verdict]:
    """The choices for a product of ``k``. From :data:`LEAST_K` on there are some by pointers and by descriptors, whose
    BLOCK_K is at least that. Below there is none by descriptors, none at all for ``tcgen05``, and by pointers at most
    some of few rows."""
    lowerings = [lowering.name for lowering in generated.lowerings]
    descriptors, pointers = ([c for c in generated.offered if ("tma" in c.name) is by] for by in (True, False))
    verdicts = [Verdict("lowerings", lowerings == ["scaled_mm"], f"{lowerings}")]
    if k < LEAST_K:
        rows = sorted({choice.numbers["BLOCK_M"] for choice in pointers})
        few = all(count < ROWS_AT_16 for count in rows) and not (tcgen05 and rows)
        names = ", ".join(choice.name for choice in descriptors)
        return [
            *verdicts,
            Verdict("no descriptors", not descriptors, names),
            Verdict("few rows", few, f"BLOCK_M {rows} by pointers{', none for tcgen05' if tcgen05 else ''}"),
        ]
    for name, choices in (("descriptors", descriptors), ("pointers", pointers)):
        blocks = sorted({choice.numbers["BLOCK_K"] for choice in choices})
        text = f"{len(choices)} choices with BLOCK_K {blocks}, {LEAST_K} required"
        verdicts.append(Verdict(name, bool(choices) and blocks[0] >= LEAST_K, text))
    return verdicts


def check_refused(generated: Generated, *, types: str = "", message: str = "") -> list[Verdict]:
    """The compilation failed, with an exception ``types`` among its causes and ``message`` in its text."""
    failure = generated.failure
    text = str(failure)[:600] if failure else "it was compiled"
    verdicts = [Verdict("raised", failure is not None and (not types or types in failure.types), text)]
    if message:
        named = failure is not None and message in failure.message
        verdicts.append(Verdict("message", named, f"{message!r} required: {text}"))
    return verdicts


def check_called(generated: Generated) -> list[Verdict]:
    """ATen's scaled product is the one choice, and called once with the operands in their order."""
    kinds = [choice.kind for choice in generated.offered]
    module = generated.modules[-1] if generated.modules else ""
    call = r"_scaled_mm(?:_v2)?(?:\.default)?\("
    arguments = r".*\b".join(f"arg{number}_1" for number in range(4))
    return [
        Verdict("offered", set(kinds) <= {"extern"}, f"{kinds}"),
        in_source("source/call", exactly(1, call), _without_comments(module), "module"),
        in_source("source/operands", f"CHECK: {{{{{call}.*{arguments}}}}}", _without_comments(module), "module"),
    ]


def _without_comments(module: str) -> str:
    return re.sub(r"^\s*#.*$", "", module, flags=re.MULTILINE)
