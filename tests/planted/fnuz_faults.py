"""Faults of products whose operands are e4m3fnuz or e5m2fnuz: what is read of their codes, and what they are multiplied
as."""

from __future__ import annotations

from dataclasses import replace

from conformance import targets
from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import scaled_mm
from conformance.heuristics.configs import FlexConfig
from tests.planted.cases import SMALL_FP8, TILES, Case, fault, grouped

_E4M3 = Case("scaled_mm", scaled_mm(40, 56, 88, "e4m3fnuz"), SMALL_FP8, target="gfx942")
_E5M2 = Case("scaled_mm", scaled_mm(40, 56, 88, "e5m2fnuz"), SMALL_FP8, target="gfx942")
_ATTENTION = Case(
    "attention_fp8",
    Attention("attention", 1, 2, 40, 71, 32, dtype="e4m3fnuz", value_dim=24, scaled=True),
    FlexConfig(32, 32, 1, 4),
    target="gfx942",
)
_LOADED = "            b = tl.load(b_tile, mask=b_mask & inside[:, None], other=0.0)\n"


def _as(kind: str) -> str:
    """Both operands are taken for numbers of another format."""
    return f"{_LOADED}            a, b = a.to({kind}, bitcast=True), b.to({kind}, bitcast=True)\n"


_BITS = "a.to(tl.uint8, bitcast=True)"
#: No wheel of some releases compiles for gfx942, and no plan is made for it.
_ABSENT = "gfx942" not in {target.id for target in targets.compile_targets()}
_FAULTS = grouped(
    "fp8 of CDNA3",
    # half the bias's step in each operand: every product is four times too large, and 0x80 is -0
    fault("fnuz_bias_of_e4m3", _E4M3, TILES, _LOADED, _as("tl.float8e4nv")),
    fault("fnuz_bias_of_e5m2", _E5M2, TILES, _LOADED, _as("tl.float8e5")),
    # only NaN has this code
    fault(
        "fnuz_nan_is_zero",
        _E4M3,
        TILES,
        _LOADED,
        f"{_LOADED}            a = tl.where({_BITS} == 0x80, 0, {_BITS}).to(a_ptr.dtype.element_ty, bitcast=True)\n",
    ),
    fault(
        "fnuz_largest_is_nan",
        _E5M2,
        TILES,
        _LOADED,
        f"{_LOADED}            a = tl.where({_BITS} == 0x7F, 0x80, {_BITS}).to(a_ptr.dtype.element_ty, bitcast=True)\n",
    ),
    fault(
        "fnuz_weights_in_e5m2fnuz",
        _ATTENTION,
        "device/attention_tiles.py",
        "acc = tl.dot(p.to(v.dtype), v, acc, ",
        "acc = tl.dot(p.to(tl.float8e5b16).to(tl.float32).to(v.dtype), v, acc, ",
    ),
)
FNUZ_FORMATS = tuple(replace(fault, defect=_ABSENT) for fault in _FAULTS)
