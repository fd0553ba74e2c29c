"""Faults planted in the products that Inductor writes with descriptors: each must be caught by the checks that the
fixture ``inductor`` runs."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import pytest

from conformance.problems import Layout
from conformance.targets import Target, find
from tests.inductor.planted_code import Fault, PlantedFaults, missed, suite_test

case = functools.partial(suite_test, "test_inductor_gemm")


def on_two_multiprocessors(inductor: Any, target: Target) -> None:
    """Four tiles at least for two programs, told as in the test of the carveout."""
    from conformance.families.gemm.problem import mm
    from conformance.inductor.source import spellings

    settings = {"triton.enable_persistent_tma_matmul": True}
    template = spellings.template("persistent TMA")
    left = 2
    carveout = (target.limits.multiprocessors or 0) - left
    problem = mm(168, 504, 88, "fp16")
    for run in inductor.pinned(problem, target, template, persistent=True, carveout=carveout, settings=settings):
        run.exactly(1, "NUM_SMS", rf"NUM_SMS : tl\.constexpr = {left}\b")


def plain(inductor: Any, target: Target) -> None:
    from conformance.families.gemm.problem import mm
    from conformance.inductor.source import spellings

    for _ in inductor.pinned(mm(40, 56, 88, "fp16"), target, spellings.template("mm"), descriptions="BLOCK_K=(64|128)"):
        pass


def warp_specialised(inductor: Any, target: Target) -> None:
    """Eight tiles for two programs on Blackwell; the target is another one than that of the other cases."""
    from conformance.families.gemm.problem import mm

    suite: Any = importlib.import_module("conformance.suites.test_inductor_gemm")
    target = find("sm_100")
    fields = {"dynamic": False, "store": False, "carveout": (target.limits.multiprocessors or 0) - 2}
    problem = mm(168, 504, 88, "fp16", layout_b=Layout("col"))
    suite.check_blackwell(inductor, target, problem, "mm", descriptions=suite.subtiled(2), **fields)


CASES = {
    "Blackwell": warp_specialised,
    "by descriptor": case("test_mm_persistent_tma", order=("row", "row"), dynamic=False, store=True),
    "by pointer": case("test_mm_persistent_tma", order=("row", "col"), dynamic=False, store=False),
    "longer rows": case("test_mm_persistent_tma_padded", order=("row", "row"), dynamic=False),
    "two SMs": on_two_multiprocessors,
    "plain": plain,
}

STORE = r"^( *)tma_descriptor0\.store\(\[xoffset, yoffset\], (.*)\)$"
BY_POINTER = r"\1tl.store(out_ptr0 + xindex * 248 + yindex, \2, xmask & ymask)"
WITH_STORE = ("source/descriptor stores", "codegen/requires/TMA_STORE")
POINTER_STORE = ("source/pointer stores", "codegen/forbids/POINTER_STORE")

STORE_POINTERS = r"^( *)tl\.store\(out_ptr0 \+ .*, acc, \w+\)$"
BY_DESCRIPTOR = (
    r"\1tma_descriptor0 = tl.make_tensor_descriptor(out_ptr0, shape=[168, 248], strides=[248, 1], "
    r"block_shape=[BLOCK_M, BLOCK_N])\n"
    r"\1tma_descriptor0.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(tl.float16))"
)

LOAD_A = r"tl\.load_tensor_descriptor\(\n *a_desc,\n.*\n *\)"
LOAD_A_BY_POINTER = (
    "tl.load(A + (rm + tl.arange(0, BLOCK_M))[:, None] * 88 + (rk + tl.arange(0, BLOCK_K))[None, :], "
    "mask=(rm + tl.arange(0, BLOCK_M) < M)[:, None] & (rk + tl.arange(0, BLOCK_K) < K)[None, :], other=0.0)"
)


A_ROWS, B_COLUMNS = "A_ROW_MAJOR : tl.constexpr = True", "B_ROW_MAJOR : tl.constexpr = False"
SMS = "NUM_SMS : tl.constexpr = {}"
UNASKED = ("source/descriptors", "source/descriptor stores", "source/pointer stores", "codegen/forbids/TMA_STORE")

FAULTS = (
    Fault("no store", "by descriptor", STORE, r"\1pass", (*WITH_STORE, "numerics")),
    Fault("store through pointers", "by descriptor", STORE, BY_POINTER, (*WITH_STORE, *POINTER_STORE)),
    Fault("descriptor store that was not asked for", "by pointer", STORE_POINTERS, BY_DESCRIPTOR, UNASKED),
    Fault("other columns", "by descriptor", r"\[xoffset, yoffset\]", "[xoffset, yoffset + 8]", ("numerics",)),
    Fault("A's layout flag", "by pointer", A_ROWS, A_ROWS.replace("True", "False"), ("memory", "numerics")),
    Fault("B's layout flag", "by pointer", B_COLUMNS, B_COLUMNS.replace("False", "True"), ("memory", "numerics")),
    Fault("packed stride of A", "longer rows", r"stride_am = 96$", "stride_am = 88", ("numerics",)),
    Fault("packed stride of B", "longer rows", r"stride_bk = 256$", "stride_bk = 248", ("numerics",)),
    Fault("A loaded through pointers", "by pointer", LOAD_A, LOAD_A_BY_POINTER, ("source/descriptor loads",)),
    Fault("NUM_SMS too large", "two SMs", SMS.format(2), SMS.format(3), ("source/NUM_SMS", "numerics")),
    Fault("NUM_SMS too small", "two SMs", SMS.format(2), SMS.format(1), ("source/NUM_SMS",)),
    Fault("grid of one program", "two SMs", ", 2, 1, 1, stream=", ", 1, 1, 1, stream=", ("grid", "numerics")),
    Fault("k's mask of A", "plain", r"(tl\.load\(A \+ .*), mask=a_mask, other=0\.0\)", r"\1)", ("numerics",)),
    Fault("last row of the store's mask", "plain", r"\(idx_m < M\)", "(idx_m < M - 1)", ("numerics",)),
    Fault("stride of A", "plain", r"idx_n \+ 88\*idx_m", "idx_n + 87*idx_m", ("numerics",)),
    Fault("first tile written", "Blackwell", r"start_pid - NUM_SMS$", "start_pid - NUM_SMS + 1", ("numerics",)),
    Fault("last tile left out", "Blackwell", r"start_pid, num_tiles, N", "start_pid, num_tiles - 1, N", ("numerics",)),
    Fault("last k left out", "Blackwell", r"range\(k_tiles\)", "range(k_tiles - 1)", ("numerics",)),
    Fault("sum begins with 1", "Blackwell", r"= tl\.zeros\((.*?), dtype", r"= tl.full(\1, 1.0, dtype", ("numerics",)),
    Fault("one column for both subtiles", "Blackwell", r"offs_cn \+ i \* .*$", "offs_cn", ("numerics",)),
    Fault("subtiles exchanged", "Blackwell", r"left_subtiles \+ right", "right_subtiles + left", ("numerics",)),
    Fault("columns' mask dropped", "Blackwell", r"(= _tmp_var2) & _tmp_var5$", r"\1", ("",)),
    Fault("B taken by rows", "Blackwell", B_COLUMNS, B_COLUMNS.replace("False", "True"), ("",)),
    Fault(
        "all warps alike",
        "Blackwell",
        r"(WARP_SPECIALIZE : tl\.constexpr =) True",
        r"\1 False",
        ("codegen/requires/WARP_SPECIALIZED",),
    ),
    Fault("other subtiles", "Blackwell", r"(EPILOGUE_SUBTILE : .* =) 2$", r"\1 4", ("ttir/stores",)),
    Fault("other warps than forced", "plain", r"^num_warps=\d+,$", "num_warps=1,", ("forced",)),
)


@pytest.mark.long(15)
class TestFaults(PlantedFaults):
    pass


def test_a_fault_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="changes nothing in the generated module"):
        FAULTS[0].edit("def call(args): ...")


def test_the_table_shows_what_was_missed() -> None:
    fault = FAULTS[0]
    assert missed([fault], {fault.name: [*WITH_STORE, "numerics/randn"]}) == ""
    assert "| no store | passes | lacks source/descriptor stores" in missed([fault], {fault.name: []})
