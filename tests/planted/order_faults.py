"""Faults that change the order or the rounding of sums and nothing else: no bound sees them, the unit's bits do."""

from conformance.families.gemm.problem import mm, scaled_mm
from conformance.heuristics.configs import Config
from tests.planted.cases import TILES, Case, Edit, Fault

_DOT = "acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE)"
_ADVANCE = "\n        a_tile += step * stride_ak\n        b_tile += step * stride_bk"
_LOOP = "    for k in range(0, tl.cdiv(K, BLOCK_K)):\n        if EVEN_K:\n            a = tl.load(a_tile,"
_BLOCK = "    rk = tl.arange(0, BLOCK_K)\n    step"
_START = "    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n"
_ZEROS = f"{_START}    for k in range(0, tl.cdiv(K, BLOCK_K)):\n        if EVEN_K"
_MORE_DOT = _DOT.replace("acc =", "more =").replace("b, acc", "b, more")

#: Several blocks of k, of which the last is ragged; results keep every bit of the sum.
HALF = Case("mm", mm(200, 176, 528, "bf16", out_dtype="fp32"), Config(128, 64, 64, 3, 4))
SMALL_TILE = Case("mm", mm(200, 176, 528, "fp16", out_dtype="fp32"), Config(32, 64, 64, 3, 4))
TF32 = Case("mm", mm(200, 176, 528, "fp32", precision="tf32"), Config(64, 64, 32, 3, 4))
FP8 = Case("scaled_mm", scaled_mm(200, 176, 528, "e4m3", out_dtype="fp32"), Config(128, 64, 128, 3, 4))

_BACKWARDS = (
    Edit(
        TILES,
        _LOOP,
        "    for number in range(0, tl.cdiv(K, BLOCK_K)):\n"
        "        k = tl.cdiv(K, BLOCK_K) - 1 - number\n"
        "        a_tile = a_ptr + rm[:, None] * stride_am + (k * BLOCK_K + rk)[None, :] * stride_ak\n"
        "        b_tile = b_ptr + (k * BLOCK_K + rk)[:, None] * stride_bk + rn[None, :] * stride_bn\n"
        "        if EVEN_K:\n            a = tl.load(a_tile,",
    ),
    Edit(TILES, _DOT + _ADVANCE, _DOT),
)
_HALVES = Edit(
    TILES, _BLOCK, _BLOCK.replace("tl.arange(0, BLOCK_K)", "(tl.arange(0, BLOCK_K) + BLOCK_K // 2) % BLOCK_K")
)
_TWO_SUMS = (
    Edit(TILES, _ZEROS, _START.replace("acc", "more") + _ZEROS),
    Edit(
        TILES,
        f"{_DOT}{_ADVANCE}\n    return acc",
        f"if k % 2 == 0:\n            {_DOT}\n        else:\n            {_MORE_DOT}{_ADVANCE}\n    return acc + more",
    ),
)
_BACKWARDS_CAUSE = "k is summed from the last block to the first"
_TWO_SUMS_CAUSE = "the blocks of k go to 2 sums in turn, which are added"

FAULTS = (
    *(Fault(f"backwards_{name}", _BACKWARDS, case, _BACKWARDS_CAUSE)
      for name, case in (("half", HALF), ("small_tile", SMALL_TILE), ("tf32", TF32))),
    Fault("halves", _HALVES, HALF, "the halves of each block of k are exchanged"),
    Fault("halves_fp8", _HALVES, FP8, "the halves of each block of k are exchanged"),
    Fault("two_sums_half", _TWO_SUMS, HALF, _TWO_SUMS_CAUSE),
    Fault("two_sums_tf32", _TWO_SUMS, TF32, _TWO_SUMS_CAUSE),
    Fault(
        "promoted_sooner",
        Edit(TILES, _DOT + _ADVANCE, _DOT.replace("PROMOTE", "32") + _ADVANCE),
        FP8,
        "the unit's sum is added to an fp32 sum after 32 k, not after 128 k",
    ),
    Fault(
        "scales_multiplied_first",
        Edit(TILES, "acc * scale_a[:, None] * scale_b[None, :]", "acc * (scale_a[:, None] * scale_b[None, :])"),
        FP8,
    ),
)  # fmt: skip
