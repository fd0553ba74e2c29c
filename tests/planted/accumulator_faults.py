"""Faults of the kernels with an accumulator of their own kind: chained, in fp16."""

from __future__ import annotations

from conformance.heuristics.configs import ChainedConfig
from conformance.problems import Layout, mm, mm_plus_mm
from tests.planted.cases import SMALL, Case, fault, grouped

CHAINS, LOADS, NARROW = "device/chained_mm.py", "device/load_tiles.py", "device/fp16_acc_mm.py"

PADDED = Layout("row", pad=8)
PADDING = {"layout_a": PADDED, "layout_b": PADDED, "layout_out": PADDED}

#: Three turns, of which the last has a ragged second k-block.
CHAINED = Case("mm_chained", mm(40, 24, 88, "bf16", **PADDING), ChainedConfig(32, 32, 16, 2, 4))
#: The last turn has two k-blocks of three.
CHAINED_3 = Case("mm_chained", mm(40, 24, 80, "bf16", **PADDING), ChainedConfig(32, 32, 16, 2, 4, chain=3))
ONE_LOOP = Case("mm_plus_mm_one_loop", mm_plus_mm(40, 24, 40, "bf16", **PADDING), SMALL)
FP16 = Case("mm_fp16_acc", mm(40, 24, 40, **PADDING), SMALL)

_LINK = "            acc = tl.dot(a, b, acc, input_precision=PRECISION)"
_SECOND = "tl.dot(c, d, acc, input_precision=PRECISION)"
_FP16 = "tl.dot(a, b, acc, out_dtype=tl.float16)"

_CHAINED = (
    fault("chained_ktail", CHAINED, LOADS, "if not EVEN_K:", "if False:"),
    fault("chained_same_block", CHAINED, CHAINS, "turn * CHAIN + link", "turn * CHAIN"),
    fault("chained_turns", CHAINED_3, CHAINS, "tl.cdiv(K, CHAIN * BLOCK_K)", "K // (CHAIN * BLOCK_K)"),
    fault(
        "chained_first_link_lost",
        CHAINED,
        CHAINS,
        _LINK,
        "            acc = tl.dot(a, b, before if link else acc, input_precision=PRECISION)\n"
        "            if link == 0:\n"
        "                before = acc - tl.dot(a, b, input_precision=PRECISION)",
    ),
    fault(
        "chained_rounded",
        CHAINED,
        CHAINS,
        _LINK,
        _LINK.replace("acc, input", "acc.to(tl.bfloat16).to(tl.float32), input"),
    ),
    fault("one_loop_ktail", ONE_LOOP, LOADS, "if not EVEN_K:", "if False:"),
    fault("one_loop_dropped", ONE_LOOP, CHAINS, _SECOND, "tl.dot(c, d, tl.zeros_like(acc), input_precision=PRECISION)"),
    fault("one_loop_twice", ONE_LOOP, CHAINS, _SECOND, _SECOND.replace("c, d", "a, b")),
    fault("one_loop_crossed", ONE_LOOP, CHAINS, _SECOND, _SECOND.replace("c, d", "c, b")),
    fault(
        "one_loop_rounded", ONE_LOOP, CHAINS, _SECOND, _SECOND.replace("acc,", "acc.to(tl.bfloat16).to(tl.float32),")
    ),
)

_NARROW = (
    fault("fp16_acc_ktail", FP16, LOADS, "if not EVEN_K:", "if False:"),
    fault("fp16_acc_last_block", FP16, NARROW, _FP16, "tl.dot(a, b, out_dtype=tl.float16)"),
    fault("fp16_acc_block_k", FP16, NARROW, "k * BLOCK_K, M", "k * (BLOCK_K - 1), M"),
    fault("fp16_acc_rounded", FP16, NARROW, _FP16, f"{_FP16}.to(tl.bfloat16).to(tl.float16)"),
    fault(
        "fp16_acc_fp8", FP16, NARROW, _FP16, "tl.dot(a.to(tl.float8e5).to(tl.float16), b, acc, out_dtype=tl.float16)"
    ),
)

ACCUMULATORS = grouped("accumulators", *_CHAINED, *_NARROW)
