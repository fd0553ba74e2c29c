"""Faults of fp8 attention: scales, and the formats to which probabilities and outputs are rounded."""

from __future__ import annotations

from conformance.families.attention.problem import Attention, Mask
from conformance.heuristics.configs import FlexConfig, SpecialisedFlexConfig
from tests.planted.cases import Case, fault, grouped

TILES, FORWARD = "device/attention_tiles.py", "device/attention_forward.py"


def _case(dtype: str = "e4m3", **fields: object) -> Case:
    sizes = {"queries": 40, "keys": 71, "head_dim": 32, "value_dim": 24, **fields}
    problem = Attention("attention", 1, 2, dtype=dtype, scaled=True, **sizes)  # type: ignore[arg-type]
    return Case("attention_fp8", problem, FlexConfig(32, 32, 1, 4), target="sm_90")


def _described(**fields: object) -> Case:
    padded = {"value_dim": 32, "pad": 16, "padded": "qkvo", **fields}
    problem = Attention("attention", 1, 2, 40, 71, 32, dtype="e4m3", scaled=True, **padded)  # type: ignore[arg-type]
    config = SpecialisedFlexConfig(64, 32, 2, 4, merged=True)
    return Case("attention_fp8_descriptors", problem, config, target="sm_100")


_FULL, _CAUSAL = _case(), _case(mask=Mask("causal"))
_SCALES = "scale = scale * (tl.load(q_scale_ptr) * tl.load(k_scale_ptr))"
_CAST = "acc = tl.dot(p.to(v.dtype), v, acc, "

ATTENTION_FP8 = grouped(
    "attention of fp8 operands",
    fault("fp8_no_query_scale", _FULL, FORWARD, _SCALES, "scale = scale * tl.load(k_scale_ptr)"),
    fault("fp8_no_key_scale", _FULL, FORWARD, _SCALES, "scale = scale * tl.load(q_scale_ptr)"),
    fault("fp8_no_value_scale", _FULL, FORWARD, "acc = acc * tl.load(v_scale_ptr)", "acc = acc * 1.0"),
    fault("fp8_weights_in_e5m2", _CAUSAL, TILES, _CAST, "acc = tl.dot(p.to(tl.float8e5).to(v.dtype), v, acc, "),
    fault(
        "fp8_weights_cut", _FULL, TILES, _CAST, "acc = tl.dot(tl.where(p < 1.0, p * 0.9375, p).to(v.dtype), v, acc, "
    ),
    fault(
        "fp8_output_in_fp8",
        _FULL,
        TILES,
        "tl.store(tile, values.to(base.dtype.element_ty), mask=inside)",
        "tl.store(tile, values.to(tl.float8e4nv).to(base.dtype.element_ty), mask=inside)",
    ),
    fault(
        "fp8_scores_in_e5m2",
        _FULL,
        TILES,
        "    if not RAW:\n        scores = modified",
        "    scores = scores.to(tl.float8e5).to(tl.float32)\n    if not RAW:\n        scores = modified",
    ),
    fault(
        "fp8_sum_of_fp8",
        _CAUSAL,
        TILES,
        "total * shrink + tl.sum(p, 1)",
        "total * shrink + tl.sum(p.to(k.dtype).to(tl.float32), 1)",
    ),
    fault("fp8_described_no_key_scale", _described(), FORWARD, _SCALES, "scale = scale * tl.load(q_scale_ptr)"),
    fault("fp8_described_key_pitch", _described(), FORWARD, "[stride_kn, 1]", "[HEAD_DIM, 1]"),
)
