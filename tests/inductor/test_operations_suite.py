"""Faults planted in generated code: each must be caught by the checks of the suite about operations."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from conformance.inductor.compile.deviceless_worker import generate
from conformance.inductor.compile.program import Decision, Generated, Program, Scheduled, program_of
from conformance.inductor.topics import operations
from conformance.records import Status
from conformance.targets import Target
from tests.execution.sample_kernels import pool
from tests.inductor.planted_code import Fault, PlantedFaults, failed, suite_test
from tests.inductor.sample_programs import SM90, generated, task

case = functools.partial(suite_test, "test_inductor_operations")


def joined(inductor: Any, target: Target) -> None:
    """The case without the program that it asks how torch joins: that one is not to be edited."""
    suite = importlib.import_module("conformance.suites.test_inductor_operations")
    with mock.patch.object(suite, "written_in_place", return_value=True):
        suite.test_cat_max_autotune(inductor, target, graph="cat_mm_and_sum", choice="triton")


CASES = {
    "epilogue": case("test_epilogue_fusion", epilogue="all", dynamic=False, dtype="fp32"),
    "epilogue_exact": case("test_epilogue_fusion", epilogue="bias-relu", dynamic=True, dtype="fp16"),
    "dynamic": case("test_dynamic_sizes", operation="mm"),
    "uneven": case("test_non_contiguous_input", operation="mm"),
    "sum_of_products": case("test_mm_plus_mm", space="DEFAULT"),
    "integers": case("test_int_mm"),
    "batch": case("test_baddbmm", space="DEFAULT"),
    "conv2d": case("test_conv2d", order="channels-last", space="DEFAULT"),
    "conv3d": case("test_conv3d", space="DEFAULT"),
    "joined": joined,
    "mutation": case("test_mutation_rename", size=3),
    "conv joined": case("test_conv_cat", space="DEFAULT"),
    "conv as product": case("test_conv1x1", space="DEFAULT"),
    "dropout": case("test_matmul_dropout", p=0.1, fallback=False),
    "dropout_of_aten": case("test_matmul_dropout", p=0.5, fallback=True),
    "with_a_number": case("test_jit_fusion_matches_aot_fusion", build="jit"),
}

STORE = r"^( *)(tl\.store\(.*)$"
LAUNCH = r"^( *)(triton_tem_\w+\.run\(.*)$"
TWICE = r"\1\2\n\1\2"
ANEW = r"\1acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACC_TYPE)\n\1for k2 in"
RELU = r"triton_helpers\.maximum\(\w+, (\w+)\)"
SEED = r"tl\.load\(in_ptr\d \+ load_seed_offset\)"
JOIN = r"^( *)(triton_poi_fused_\w*cat_\w+\.run\(.*)$"
#: A call of ATen's in a branch that is not taken: the source shows it, the numbers do not.
EXTERN_CONVOLUTION = r"\1args.clear()\n\1if args:\n\1    extern_kernels.convolution(*args)"

FAULTS = (
    Fault("no store", "epilogue", STORE, r"\1pass", ("one store", "numerics")),
    Fault("two stores", "epilogue", STORE, TWICE, ("one store",)),
    Fault("two launches", "epilogue", LAUNCH, TWICE, ("one launch",)),
    Fault("bias by rows", "epilogue", r"broadcast_to\(idx_n, ", "broadcast_to(idx_m, ", ("numerics",)),
    Fault("bias loaded twice", "epilogue_exact", r"^( *)(tmp\d+ = tl\.load\(in_ptr2 .*)$", TWICE, ("epilogue loads",)),
    Fault("bias by rows, exact", "epilogue_exact", r"broadcast_to\(idx_n, ", "broadcast_to(idx_m, ", ("numerics",)),
    Fault("factor of dropout", "epilogue", r"\[1\], 2\.0, tl\.float32", "[1], 1.5, tl.float32", ("numerics",)),
    Fault("no relu", "epilogue", RELU, r"\1", ("epilogue relu", "numerics")),
    Fault("no relu, exact", "epilogue_exact", RELU, r"\1", ("numerics", "epilogue relu")),
    Fault("rows fixed", "dynamic", r"^( +)M = ks\d$", r"\1M = 40", ("source/M is an argument", "numerics")),
    Fault("packed columns", "uneven", r"192\*", "145*", ("numerics",)),
    Fault("strides not asserted", "uneven", r"^( *)assert_size_stride\(.*$", r"\1pass", ("source/strides",)),
    Fault("second product left out", "sum_of_products", r"^( *)acc \+= tl\.dot\(c, d.*$", r"\1pass", ("numerics",)),
    Fault("second product anew", "sum_of_products", r"^( *)for k2 in", ANEW, ("numerics",)),
    Fault("D stays", "sum_of_products", r"^( *)D \+= .*$", r"\1pass", ("numerics",)),
    Fault("k's mask of C", "sum_of_products", r"\[None, :\] < k2", "[None, :] < K1", ("numerics",)),
    Fault("A of the first product", "batch", r" \+ idx_q_clamped\*stride_aq", "", ("numerics",)),
    Fault("bias of the first product", "batch", r"idx_n \+ 40\*idx_q, ", "idx_n, ", ("numerics",)),
    Fault("k's mask of B", "batch", r"tl\.load\(B, mask.*$", "tl.load(B)", ("numerics",)),
    Fault("rows past the product", "batch", r"\(idx_m < M\) & ", "", ("memory",)),
    Fault("one product launched", "batch", r", (\d), 2, 1, stream=", r", \1, 1, 1, stream=", ("grid", "numerics")),
    Fault("padding dropped", "conv2d", r"i - PADDING_H \+", "i +", ("numerics",)),
    Fault("taps exchanged", "conv2d", r"\(i \* stride_wh\)", "(i * stride_ww)", ("numerics",)),
    Fault("left edge of x", "conv2d", r"^ *& \(idx_x_w >= 0\).*$", "", ("numerics",)),
    Fault("x of the first of the batch", "conv2d", r"idx_n \* stride_xn", "idx_n * 0", ("numerics",)),
    Fault("more than the batch", "conv2d", r"mask = \(\n *\(idx_n < BATCH", "mask = ((idx_n < 9", ("memory",)),
    Fault("depth of the filter", "conv3d", r"\(d \* stride_wd\)", "(0 * stride_wd)", ("numerics",)),
    Fault("depth by the rows' stride", "conv3d", r"idx_x_d \* stride_xd", "idx_x_d * stride_xh", ("numerics",)),
    Fault("last tap left out", "conv3d", r"W \* BLOCK_K_COUNT\):", "W * BLOCK_K_COUNT - 1):", ("numerics",)),
    Fault("depths exchanged", "conv3d", r"20\*idx_d", "20*(2 - idx_d)", ("numerics",)),
    Fault("fp32 sums", "integers", r"(ACC_TYPE : tl\.constexpr = )tl\.int32", r"\1tl.float32", ("source/accumulator",)),
    Fault("other part in place of the product", "joined", r"\(40, 1\), 1600\)", "(40, 1), 0)", ("numerics",)),
    Fault("joined twice", "joined", r"^( *)(triton_poi_\w+\.run\(.*)$", TWICE, ("launches",)),
    Fault("product twice", "joined", LAUNCH, TWICE, ("one product",)),
    Fault("diagonal not written", "mutation", r"^( *)triton_poi_fused_copy_\w+\.run\(.*$", r"\1pass", ("numerics",)),
    Fault("1 added to all", "mutation", r"\(4\*x0\), tmp2", "(x0), tmp2", ("numerics",)),
    Fault("product twice by ATen", "mutation", r"^( *)(extern_kernels\.mm\(.*)$", TWICE, ("one extern product",)),
    Fault("wrong addend", "conv joined", r"\[1\], 1\.0, tl\.float32", "[1], 2.0, tl.float32", ("numerics",)),
    Fault("joined by two kernels", "conv joined", JOIN, TWICE, ("pointwise kernels join",)),
    Fault("by ATen", "conv as product", r"^( *)args\.clear\(\)$", EXTERN_CONVOLUTION, ("no extern kernel",)),
    Fault("next random number", "dropout", r"tl\.rand\((\w+), \((\w+)\)", r"tl.rand(\1, (\2 + 1)", ("numerics",)),
    Fault("factor left out", "dropout", r"1\.1111111\d*", "1.0", ("numerics",)),
    Fault("one seed for all", "dropout", SEED, "tl.full([], 5, tl.int64)", ("numerics", "seeded")),
    Fault("probability", "dropout_of_aten", r"(native_dropout\.default\(buf0, )0\.5", r"\g<1>0.25", ("numerics",)),
    Fault("another number", "with_a_number", r"= arg\d_1\.item\(\)", "= 2", ("numerics",)),
)


@pytest.mark.long(25)
class TestFaults(PlantedFaults):
    pass


# --- how many kernels join --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forced", [False, True])
def test_the_number_of_launches_follows_from_how_parts_are_joined(forced: bool) -> None:
    """``forced`` is what older releases do: one kernel joins the parts."""
    suite = importlib.import_module("conformance.suites.test_inductor_operations")
    operands = [suite.dense("x", 40, 40), suite.dense("y", 40, 40)]
    settings = {**suite.PINNED_SETTINGS, "force_pointwise_cat": forced}
    shared, product = (
        generated(program_of(f"{suite.GRAPHS}:{graph}", operands, settings, pick=0))
        for graph in ("cat_of_shared", "cat_mm_and_sum")
    )
    in_place = operations.written_in_place(shared)
    assert in_place is not forced
    check = functools.partial(operations.cat_launches, product, "cat_mm_and_sum", "triton")
    assert failed(check(in_place=in_place)) == []
    assert failed(check(in_place=not in_place)) == ["launches"]


# --- what the scheduler waits for ------------------------------------------------------------------------------------

RENAMES = {"buf0": "buf1", "buf2": "buf4"}
WRITE = Scheduled("SchedulerNode", "ComputedBuffer", ("buf1",), ("buf0",), ("buf0",))
PRODUCT = Scheduled("SchedulerNode", "MultiTemplateBuffer", ("buf2",), (), ("buf1",))
EXTERN = dataclasses.replace(PRODUCT, kind="ExternKernelSchedulerNode", operation="ExternKernelOut")
SECOND = Scheduled("SchedulerNode", "ComputedBuffer", ("buf4",), ("buf2",), ("buf2", "buf3"))
FUSED = Scheduled("FusedSchedulerNode", "NoneType", ("buf3", "buf4"), ("buf2",), ("buf2",))
STALE = ("buf0",)
stale = functools.partial(dataclasses.replace, unmet=STALE)


def noted(before: Any = (WRITE, PRODUCT, SECOND), after: Any = (WRITE, EXTERN, FUSED), renames: Any = RENAMES) -> Any:
    return [("before fusion", renames, before), ("after fusion", renames, after)]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        (noted(), []),
        ([], ["stages", "products"]),
        (noted()[:1], ["stages"]),
        (noted(before=(WRITE, EXTERN, SECOND)), ["products"]),
        (noted(before=(PRODUCT, SECOND)), ["writes"]),
        (noted(before=(WRITE, PRODUCT)), ["writes"]),
        (noted(before=(WRITE, stale(PRODUCT), SECOND)), ["before fusion/product"]),
        (noted(before=(WRITE, PRODUCT, stale(SECOND))), ["before fusion/second write"]),
        (noted(after=(WRITE, stale(EXTERN), FUSED)), ["after fusion/product"]),
        (noted(after=(WRITE, dataclasses.replace(EXTERN, unmet=("buf0", "buf1")), FUSED)), ["after fusion/product"]),
        (noted(after=(WRITE, PRODUCT, FUSED)), ["after fusion/product"]),
        (noted(after=(WRITE, EXTERN, stale(FUSED))), ["after fusion/second write"]),
        (noted(renames={"buf0": "buf1"}), ["before fusion/renames", "after fusion/renames"]),
    ],
)
def test_what_nodes_wait_for(notes: Any, expected: list[str]) -> None:
    assert failed(operations.check_renames(notes)) == expected


def generate_with_old_names(program: Program, target: Target) -> Generated:
    """In a compile process: Inductor forgets what was written in place when it replaces a buffer of several templates
    by ATen's kernel."""
    from torch._inductor.scheduler import Scheduler

    scheduler: Any = Scheduler
    replace = scheduler._replace_node

    def forgetful(self: Any, *arguments: Any) -> None:
        with mock.patch.object(self, "mutation_real_name", {}):
            replace(self, *arguments)

    with mock.patch.object(scheduler, "_replace_node", forgetful):
        return generate(program, target)


def generate_without_renames(program: Program, target: Target) -> Generated:
    """In a compile process: no node is told that a buffer has another name since it was written in place."""
    from torch._inductor.scheduler import BaseSchedulerNode

    with mock.patch.object(BaseSchedulerNode, "update_mutated_names", return_value=None):
        return generate(program, target)


@pytest.mark.parametrize(
    ("faulty", "expected"),
    [
        (generate_with_old_names, ["after fusion/product"]),
        (generate_without_renames, ["before fusion/product", "after fusion/product"]),
    ],
)
def test_inductor_that_takes_the_old_name(faulty: Callable[..., Generated], expected: list[str]) -> None:
    suite = importlib.import_module("conformance.suites.test_inductor_operations")
    operands = [*(suite.dense(name, 3, 3) for name in "xyz"), suite.dense("other", 3)]
    settings = {**suite.PINNED_SETTINGS, **suite.BOTH, suite.EXTERN_IN_THE_END: True}
    graph = f"{suite.GRAPHS}:mm_after_diagonal_write"
    program = program_of(graph, operands, settings, decision=Decision.SCHEDULE_IS_NOTED)
    result = pool().submit(task(faulty.__name__, program, SM90, __name__)).result()
    assert result.status is Status.PASS, result.error
    assert set(expected) <= set(failed(operations.check_renames(result.value.notes)))
