"""The products beyond mm, addmm and scaled mm: numbers in the interpreter, refusals, grids and what is launched."""

from dataclasses import replace

import pytest

from conformance import codegen_checks as codegen
from conformance import targets
from conformance.families.gemm.problem import (
    BLOCK_SCALINGS,
    Bias,
    Fusion,
    addmm,
    baddbmm,
    bmm,
    dual_mm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm,
    mm_plus_mm,
    mm_with_sums,
    scaled_mm,
)
from conformance.filecheck import filecheck
from conformance.heuristics.configs import ChainedConfig, Config
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.kernels.refusal_rules import objection
from conformance.numerics.contract import FMA64, INT32
from conformance.problems import Layout
from conformance.records import ReasonCode
from tests.kernels import interpreter_runs

SMALL, SMALL_8BIT = Config(32, 32, 16, 2, 4), Config(32, 32, 32, 2, 4)
LARGE = Config(64, 64, 32, 2, 4)
PAIRS, THREES = ChainedConfig(32, 32, 16, 2, 4), ChainedConfig(32, 32, 16, 2, 4, chain=3)
LARGE_PAIRS = ChainedConfig(64, 64, 32, 2, 4)
HOPPER, AMPERE, BLACKWELL = (targets.find(name) for name in ("sm_90", "sm_80", "sm_100"))
FP64 = HOPPER.capability("fp64").available
COLUMN, STATIC = Layout("col"), Variant(static=True)
SUMMED = mm(64, 64, 64, "bf16", out_dtype="fp32")


def _fused(prologue, *epilogue, stored=None, **fields):
    bias = Bias(fields.pop("bias", "n")) if "bias" in epilogue else None
    return fused_mm(40, 24, 24, fusion=Fusion(prologue, stored, epilogue), bias=bias, **fields)


CASES = [
    ("bmm", bmm(40, 24, 24, layout_a=Layout("col", batch="inner"), layout_b=Layout(batch="zero")), SMALL),
    ("bmm", bmm(24, 24, 24, "bf16", layout_b=Layout(batch="inner", step=2), layout_out=Layout(pad=3)), SMALL),
    ("bmm", bmm(24, 24, 0), SMALL),
    *[("baddbmm", baddbmm(24, 24, 24, batch=2, bias=Bias(kind)), SMALL) for kind in ("n", "m1", "mn", "b1n", "bmn")],
    ("baddbmm", baddbmm(24, 24, 24, batch=1, alpha=0.0, layout_out=COLUMN), SMALL),
    ("mm_plus_mm", mm_plus_mm(40, 24, 24, "fp32", precision="tf32", layout_a=COLUMN), SMALL),
    ("mm_plus_mm", mm_plus_mm(24, 24, 32, "bf16", layout_b=Layout(step=2)), SMALL, STATIC),
    ("mm_plus_mm", mm_plus_mm(24, 24, 0), SMALL),
    ("int_mm", int_mm(40, 24, 72, layout_b=Layout("col", offset=1)), SMALL_8BIT),
    ("int_mm", int_mm(24, 24, 64), SMALL_8BIT, STATIC),
    *[("mixed_mm", mixed_mm(24, 24, 24, a, b_dtype=b), SMALL) for a, b in (("fp16", "int8"), ("bf16", "uint8"))],
    *[("scaled_mm_blockwise", scaled_mm(136, 16, 136, scaling=s), Config(128, 16, 64, 2, 4)) for s in BLOCK_SCALINGS],
    ("scaled_mm_blockwise", scaled_mm(24, 136, 72, "e5m2", scaling="1x128/128x128"), Config(32, 128, 128, 2, 4)),
    ("scaled_mm_blockwise", scaled_mm(24, 24, 72, scaling="1x128/1x128", bias=Bias()), SMALL_8BIT),
    ("decompose_k_mm", mm(40, 24, 72, layout_out=COLUMN), SMALL, Variant(splits=3)),
    ("decompose_k_mm", mm(16, 8, 256, "bf16"), Config(32, 32, 128, 2, 4)),
    ("decompose_k_mm", mm(24, 24, 0), SMALL, Variant(splits=2)),
    ("mm_persistent", mm(72, 72, 24, layout_b=COLUMN, layout_out=Layout(pad=3)), SMALL, Variant(sms=2)),
    ("mm_persistent", mm(72, 40, 40, "fp32", precision="tf32"), SMALL, Variant(flatten=True, static=True, sms=3)),
    ("mm_persistent", mm(40, 40, 0, "bf16"), SMALL, Variant(flatten=True, sms=2)),
    ("mm_atomic_split_k", mm(40, 24, 72, out_dtype="fp32", layout_out=COLUMN), SMALL, Variant(splits=3)),
    ("mm_atomic_split_k", mm(24, 40, 64, "fp32", layout_out=Layout(pad=3)), SMALL, Variant(splits=4, static=True)),
    ("mm_atomic_split_k", mm(24, 24, 0, "bf16", out_dtype="fp32"), SMALL, Variant(splits=2)),
    *[("mm_fp64", mm(40, 24, 40, "fp64", layout_b=COLUMN, layout_out=Layout(pad=3)), SMALL)][: int(FP64)],
    *[("mm_fp64", mm(24, 24, 0, "fp64"), SMALL, STATIC)][: int(FP64)],
    ("contiguous_mm", mm(40, 72, 24, layout_b=COLUMN), Config(32, 64, 16, 2, 4)),
    ("contiguous_addmm", addmm(24, 24, 24, layout_b=Layout(pad=3, offset=1)), SMALL),
    ("contiguous_mm", mm(24, 24, 0, layout_b=COLUMN), SMALL),
    ("fused_mm", _fused(None), SMALL),
    ("fused_mm", _fused("cast", "bias", "gelu", "residual", "dropout", stored="fp32", bias="mn"), SMALL),
    ("fused_mm", _fused("cast", "relu", "bias", stored="int8", bias="m1"), SMALL),
    ("fused_mm", _fused("scale", "dropout", "residual", "bias", dtype="bf16"), SMALL, STATIC),
    ("fused_mm", _fused("gather", "residual", "relu", dtype="fp32"), SMALL),
    ("fused_mm", _fused("scatter", "residual", "bias", bias="mn"), SMALL),
    ("fused_mm", _fused("scale-k", "relu", dtype="bf16"), SMALL, STATIC),
    ("mm_reduce_split_k", mm(40, 40, 72, out_dtype="fp32", layout_out=Layout(pad=4)), SMALL, Variant(splits=3)),
    *[("mm_chained", mm(40, 24, k, "bf16"), PAIRS) for k in (0, 16, 17, 32, 33, 64)],
    *[("mm_chained", mm(40, 24, k, "bf16"), PAIRS, STATIC) for k in (16, 48, 64)],
    *[("mm_chained", mm(24, 40, k, "fp32", layout_a=COLUMN, layout_b=Layout(step=2)), THREES) for k in (16, 40, 97)],
    ("mm_chained", mm(24, 24, 96, "fp32", precision="tf32", layout_out=COLUMN), THREES, STATIC),
    ("mm_plus_mm_one_loop", mm_plus_mm(40, 24, 24, "fp32", precision="tf32", layout_a=COLUMN), SMALL),
    ("mm_plus_mm_one_loop", mm_plus_mm(24, 40, 16, "bf16", layout_b=Layout(step=2)), SMALL),
    ("mm_plus_mm_one_loop", mm_plus_mm(24, 24, 32, "bf16"), SMALL, STATIC),
    ("mm_plus_mm_one_loop", mm_plus_mm(24, 24, 0, "bf16"), SMALL),
    ("mm_fp16_acc", mm(40, 24, 40, layout_a=COLUMN), SMALL),
    ("mm_fp16_acc", mm(24, 40, 32, layout_b=Layout(step=2)), SMALL, STATIC),
    ("mm_fp16_acc", mm(24, 24, 0), SMALL),
    ("dual_mm", dual_mm(40, 24, 40, "bf16", layout_a=COLUMN), SMALL),
    ("dual_mm", dual_mm(24, 40, 24, "fp32", layout_b=Layout(step=2), layout_out=COLUMN), SMALL),
    ("dual_mm", dual_mm(24, 24, 32, "fp32", precision="tf32", out_dtype="fp16"), SMALL, STATIC),
    ("dual_mm", dual_mm(24, 24, 0), SMALL),
    ("mm_with_sums", mm_with_sums(40, 72, 40, "bf16", layout_a=COLUMN), SMALL),
    ("mm_with_sums", mm_with_sums(24, 40, 32, "fp32", layout_a=Layout(step=2)), SMALL, STATIC),
    ("mm_with_sums", mm_with_sums(40, 0, 24), SMALL),
    ("mm_with_sums", mm_with_sums(40, 24, 0), SMALL),
    ("mm_with_sums", mm_with_sums(0, 24, 24), SMALL),
    ("mm_scaled_k", _fused("scale-k", layout_a=COLUMN, layout_out=COLUMN), SMALL),
]  # fmt: skip


def _name(case):
    name, problem, config, *variant = case
    return "/".join(filter(None, (name, problem.id, config.id, *(v.id for v in variant))))


@pytest.fixture(scope="module")
def all_complaints():
    """The complaints about each case; one child process computes them all."""
    return dict(zip(map(_name, CASES), interpreter_runs.run(CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_numbers(all_complaints, case):
    assert all_complaints[_name(case)] == []


def test_a_wrong_number_is_seen():
    assert all("1 wrong" in complaints[0] for complaints in interpreter_runs.run(CASES[1:2] + CASES[-1:], spoil=True))


def _plan(name, problem, config=LARGE, target=HOPPER, **variant):
    return catalogue.get(name).plan(problem, config, target, Variant(**variant))


def test_grids():
    assert _plan("bmm", bmm(100, 70, 64, batch=65_536)).grid == (4 * 65_536,)
    assert _plan("bmm", bmm(100, 70, 64, batch=0)).grid == (0,)
    assert _plan("decompose_k_mm", mm(100, 70, 64), splits=2).grid == (4, 2)
    assert _plan("mm_persistent", mm(100, 70, 64), sms=3).grid == (3,)
    assert _plan("mm_persistent", mm(100, 70, 64)).grid == (4,), "never more programs than tiles"
    assert _plan("mm_atomic_split_k", mm(100, 70, 64, out_dtype="fp32"), splits=2).grid == (4, 2)
    assert _plan("decompose_k_mm", mm(64, 64, 4096)).grid == (1, 2), "the fewest parts whose size is a power of two"


@pytest.mark.parametrize(
    ("name", "problem", "config", "target", "variant", "code", "subject"),
    [
        ("bmm", mm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.OPERATION, "mm"),
        ("bmm", bmm(64, 64, 64), LARGE, HOPPER, {"tma_store": True}, ReasonCode.CONFIG, "variant"),
        ("mm_plus_mm", mm_plus_mm(64, 64, 32), LARGE, HOPPER, {}, ReasonCode.CONFIG, "BLOCK_K"),
        ("int_mm", int_mm(64, 64, 64), SMALL, HOPPER, {}, ReasonCode.CONFIG, "block size"),
        ("mixed_mm", mixed_mm(64, 64, 64, "fp32"), LARGE, HOPPER, {}, ReasonCode.DTYPE, "a"),
        ("mixed_mm", mixed_mm(64, 64, 64), Config(256, 256, 128, 3, 8), HOPPER, {}, ReasonCode.SHARED_MEMORY, None),
        ("scaled_mm_blockwise", scaled_mm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.SCALE, "scaling"),
        ("scaled_mm", scaled_mm(64, 64, 64, scaling=BLOCK_SCALINGS[0]), LARGE, HOPPER, {}, ReasonCode.SCALE, "scaling"),
        (
            "scaled_mm_blockwise",
            scaled_mm(64, 64, 64, scaling=BLOCK_SCALINGS[0]),
            Config(16, 16, 256, 1, 4),
            HOPPER,
            {},
            ReasonCode.CONFIG,
            "BLOCK_K",
        ),
        (
            "scaled_mm_blockwise",
            scaled_mm(64, 64, 64, scaling=BLOCK_SCALINGS[0]),
            LARGE,
            AMPERE,
            {},
            ReasonCode.DTYPE,
            "e4m3",
        ),
        ("decompose_k_mm", mm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.CONFIG, "splits"),
        ("decompose_k_mm", mm(64, 64, 64), LARGE, HOPPER, {"splits": 3}, ReasonCode.CONFIG, "splits"),
        ("decompose_k_mm", mm(64, 64, 64), LARGE, HOPPER, {"splits": 1}, ReasonCode.CONFIG, "splits"),
        ("contiguous_mm", mm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.LAYOUT, "b"),
        ("mm_persistent", mm(64, 64, 64), LARGE, HOPPER, {"epilogue_subtile": 2}, ReasonCode.CONFIG, "variant"),
        ("mm_persistent", addmm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.OPERATION, "addmm"),
        ("mm_atomic_split_k", mm(64, 64, 64, "bf16"), LARGE, HOPPER, {"splits": 2}, ReasonCode.DTYPE, "out"),
        ("mm_atomic_split_k", SUMMED, LARGE, HOPPER, {}, ReasonCode.CONFIG, "splits"),
        ("mm_atomic_split_k", SUMMED, LARGE, HOPPER, {"splits": 3}, ReasonCode.CONFIG, "splits"),
        ("mm_reduce_split_k", mm(64, 64, 64, "bf16"), LARGE, HOPPER, {"splits": 2}, ReasonCode.DTYPE, "out"),
        (
            "mm_reduce_split_k",
            mm(64, 64, 64, out_dtype="fp32", layout_out=COLUMN),
            LARGE,
            HOPPER,
            {"splits": 2},
            ReasonCode.LAYOUT,
            "out",
        ),
        (
            "mm_reduce_split_k",
            mm(64, 62, 64, out_dtype="fp32", layout_out=Layout(pad=2)),
            LARGE,
            HOPPER,
            {"splits": 2},
            ReasonCode.ALIGNMENT_EXTENT,
            "out",
        ),
        ("mm_scatter", _fused("scatter"), SMALL, HOPPER, {}, ReasonCode.CAPABILITY, "descriptor-scatter"),
        (
            "mm_scatter",
            _fused("scatter"),
            SMALL,
            targets.find("sm_120"),
            {},
            ReasonCode.CAPABILITY,
            "descriptor-scatter",
        ),
        ("mm_scatter", _fused("gather"), SMALL, BLACKWELL, {}, ReasonCode.OPERATION, "fusion"),
        ("mm_scatter", _fused("scatter", layout_out=COLUMN), SMALL, BLACKWELL, {}, ReasonCode.LAYOUT, "out"),
        ("mm_scaled_k", _fused("scale-k", "relu"), SMALL, HOPPER, {}, ReasonCode.OPERATION, "fusion"),
        ("mm_scaled_k", _fused("scale-k", layout_a=Layout(pad=3)), SMALL, HOPPER, {}, ReasonCode.ALIGNMENT_PITCH, "a"),
        ("mm_fp64", mm(64, 64, 64, "fp32"), SMALL, HOPPER, {}, ReasonCode.DTYPE, "out"),
        ("mm_fp64", mm(64, 64, 64, "fp64", out_dtype="fp32"), SMALL, HOPPER, {}, ReasonCode.DTYPE, "out"),
        ("mm_fp64", mm(64, 64, 64, "fp32", out_dtype="fp64"), SMALL, HOPPER, {}, ReasonCode.DTYPE, "a"),
        ("fused_mm", _fused("cast", stored="e4m3"), LARGE, AMPERE, {}, ReasonCode.DTYPE, "a"),
        ("fused_mm", _fused("cast", stored="fp64"), LARGE, HOPPER, {}, ReasonCode.DTYPE, "a"),
        ("mm_chained", mm(64, 64, 64, "bf16"), LARGE, HOPPER, {}, ReasonCode.CONFIG, "chain"),
        ("mm_chained", mm(64, 64, 64, "fp16"), LARGE_PAIRS, HOPPER, {}, ReasonCode.DTYPE, "a"),
        ("mm_chained", mm_plus_mm(64, 64, 64, "bf16"), LARGE_PAIRS, HOPPER, {}, ReasonCode.OPERATION, "mm_plus_mm"),
        (
            "mm_chained",
            mm(64, 64, 64, "fp32"),
            ChainedConfig(128, 128, 64, 2, 4),
            HOPPER,
            {},
            ReasonCode.SHARED_MEMORY,
            None,
        ),
        ("mm_plus_mm_one_loop", mm(64, 64, 64, "bf16"), LARGE, HOPPER, {}, ReasonCode.OPERATION, "mm"),
        ("mm_fp16_acc", mm(64, 64, 64, "bf16"), LARGE, HOPPER, {}, ReasonCode.DTYPE, "out"),
        ("mm_fp16_acc", mm(64, 64, 64, "bf16", out_dtype="fp16"), LARGE, HOPPER, {}, ReasonCode.DTYPE, "a"),
        ("mm_fp16_acc", mm(64, 64, 64, out_dtype="fp32"), LARGE, HOPPER, {}, ReasonCode.DTYPE, "out"),
        ("mm_with_sums", mm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.OPERATION, "mm"),
        ("dual_mm", mm(64, 64, 64), LARGE, HOPPER, {}, ReasonCode.OPERATION, "mm"),
        ("dual_mm", dual_mm(64, 64, 64, "e4m3"), LARGE, HOPPER, {}, ReasonCode.DTYPE, "a"),
        (
            "dual_mm",
            dual_mm(64, 64, 64, "fp32"),
            Config(128, 128, 64, 3, 4),
            HOPPER,
            {},
            ReasonCode.SHARED_MEMORY,
            None,
        ),
    ],
)
def test_typed_reason(name, problem, config, target, variant, code, subject):
    with pytest.raises(NotApplicable) as refused:
        _plan(name, problem, config, target, **variant)
    reason = refused.value.reason
    assert (reason.code, reason.subject) == (code, subject or config.id), str(reason)
    if code != ReasonCode.SHARED_MEMORY:  # an estimate, which only who chooses among plans asks for
        kernel = catalogue.get(name)
        assert objection(kernel, kernel.draft(problem, config, target, Variant(**variant)), reason) is None


def test_launches_that_belong_to_the_main_one():
    split = _plan("decompose_k_mm", mm(100, 70, 4096), splits=4)
    launch = catalogue.meta_launch(split, HOPPER)
    assert [step.function.fn.__name__ for step in launch.steps] == ["gemm_split_k", "sum_parts"]
    assert launch.arguments["c_ptr"].shape == (4, 100, 70)
    assert launch.arguments["c_ptr"] is launch.after[0].arguments["parts_ptr"]
    added = catalogue.meta_launch(_plan("mm_atomic_split_k", SUMMED, splits=2), HOPPER)
    assert [step.function.fn.__name__ for step in added.steps] == ["zero_matrix", "gemm_atomic_split_k"]
    assert added.steps[0].arguments["c_ptr"] is added.arguments["c_ptr"]
    copied = catalogue.meta_launch(_plan("contiguous_mm", mm(64, 70, 90, layout_b=COLUMN)), HOPPER)
    assert [step.function.fn.__name__ for step in copied.steps] == ["copy_matrix", "gemm_pointer"]
    assert (copied.arguments["stride_bk"], copied.arguments["stride_bn"]) == (70, 1)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("bmm", bmm(0, 64, 64)),
        ("bmm", bmm(64, 64, 64, batch=0)),
        ("decompose_k_mm", mm(64, 0, 4096)),
        ("contiguous_mm", mm(0, 64, 64, layout_b=COLUMN)),
        ("fused_mm", fused_mm(64, 0, 64)),
        ("mm_persistent", mm(64, 0, 64)),
        ("mm_atomic_split_k", mm(64, 0, 4096, out_dtype="fp32")),
    ],
)
def test_nothing_is_launched_for_an_empty_result(name, problem):
    variant = {"splits": 2} if name in ("decompose_k_mm", "mm_atomic_split_k") else {}
    launch = catalogue.meta_launch(_plan(name, problem, **variant), HOPPER)
    assert all(step.empty for step in launch.steps)


def test_the_loops_are_flattened_as_asked_and_the_tile_of_c_then_has_memory_of_its_own():
    kernel, problem = catalogue.get("mm_persistent"), mm(100, 70, 64, out_dtype="fp32")
    nested, flat = (_plan("mm_persistent", problem, flatten=flatten) for flatten in (False, True))
    assert [catalogue.meta_launch(plan, HOPPER).arguments["FLATTEN"] for plan in (nested, flat)] == [False, True]
    assert kernel.shared_memory(flat) - kernel.shared_memory(nested) == LARGE.block_m * LARGE.block_n * 4


def test_a_kernel_has_a_table_or_configs_of_its_own():
    for table, configs in ((None, ()), ("mm", (SMALL,))):
        with pytest.raises(ValueError, match="give one of both"):
            PointerGemm("mine", "mm", table, configs=configs)


def test_offsets_are_wide_where_an_operand_spans_2_to_the_31():
    near = mm_plus_mm(64, 64, 64, layout_a=Layout(pad=2**24))
    far = mm_plus_mm(64, 64, 64, layout_a=Layout(pad=2**26))
    for problem, wide in ((near, False), (far, True)):
        launch = catalogue.meta_launch(_plan("mm_plus_mm", problem), HOPPER)
        assert launch.arguments["WIDE_INDEX"] is wide


def test_contracts():
    integer = _plan("int_mm", int_mm(64, 64, 64))
    assert catalogue.get("int_mm").contract(integer, "device").accumulator == INT32
    blocks = _plan("scaled_mm_blockwise", scaled_mm(64, 64, 64, scaling=BLOCK_SCALINGS[0], fast_accum=True))
    assert catalogue.get("scaled_mm_blockwise").contract(blocks, "device").accumulator.promote == 32


@pytest.mark.skipif(not FP64, reason=HOPPER.capability("fp64").why)
def test_fp64_is_summed_in_fp64_and_assumed_of_devices():
    kernel, plan = catalogue.get("mm_fp64"), _plan("mm_fp64", mm(64, 64, 64, "fp64"), SMALL)
    device, interpreted = (kernel.contract(plan, executor) for executor in ("device", "interpreter"))
    assert (interpreted.accumulator, device.accumulator) == (FMA64, replace(FMA64, assumed=True))
    assert FMA64.exact_bits == 53
    assert kernel.order(plan) is None
    units = [kernel.features(_plan("mm_fp64", plan.problem, SMALL, target)).required for target in (AMPERE, BLACKWELL)]
    assert [codegen.MMA in unit for unit in units] == [True, False]
    largest = {fill.name: float(fill.inputs["a"].abs().max()) for fill in fills(plan.problem, device)}
    assert largest["wide-A"] > 2.0**52


def test_atomic_sums_are_promised_no_order_on_a_device_and_no_subnormals():
    kernel, plan = catalogue.get("mm_atomic_split_k"), _plan("mm_atomic_split_k", SUMMED, splits=2)
    device, interpreted = (kernel.contract(plan, executor) for executor in ("device", "interpreter"))
    assert (device.deterministic, device.flushes_subnormals, device.stores_once) == (False, True, False)
    assert (interpreted.deterministic, interpreted.flushes_subnormals, interpreted.stores_once) == (True, False, False)
    assert kernel.order(plan) is None
    features = kernel.features(plan)
    assert codegen.ATOMIC_ADD in features.required
    assert codegen.POINTER_STORE in features.forbidden


@pytest.mark.parametrize(
    ("vendor", "line", "there"),
    [
        ("nvidia", "atom.global.gpu.relaxed.add.f32 %r1, [ %rd1 + 0 ], %r2;", True),
        ("nvidia", "red.global.gpu.relaxed.add.v4.f32 [ %rd1 + 0 ], {%r1, %r2, %r3, %r4};", True),
        ("nvidia", "atom.global.gpu.relaxed.add.u32 %r1, [ %rd1 + 0 ], %r2;", False),
        ("nvidia", "add.f32 %r1, %r2, %r3;", False),
        ("nvidia", "st.global.v4.b32 [ %rd1 + 0 ], {%r1, %r2, %r3, %r4};", False),
        ("amd", "buffer_atomic_add_f32 v1, v2, s[0:3], 0 offen", True),
        ("amd", "global_atomic_add_f32 v1, v2, s[0:1]", True),
        ("amd", "buffer_atomic_add v1, v2, s[0:3], 0 offen", False),
        ("amd", "buffer_store_dwordx4 v[0:3], v4, s[0:3], 0 offen", False),
    ],
)
def test_what_an_atomic_addition_is_known_by(vendor, line, there):
    machine, ttir = codegen.ATOMIC_ADD.evidence[vendor]
    assert filecheck(machine.directive, codegen.code(machine.stage, line)).passed == there
    rmw = "%7 = tt.atomic_rmw {}, relaxed, gpu, %4, %5, %6 : (tensor<16x!tt.ptr<f32>>) -> tensor<16xf32>"
    assert [filecheck(ttir.directive, rmw.format(name)).passed for name in ("fadd", "exch")] == [True, False]


@pytest.mark.parametrize(
    ("name", "problem", "variant", "target", "moved", "elsewhere"),
    [
        ("mm_reduce_split_k", SUMMED, {"splits": 2}, HOPPER, codegen.TILE_ADD, codegen.ATOMIC_ADD),
        ("mm_scatter", _fused("scatter"), {}, BLACKWELL, codegen.ROW_SCATTER, codegen.POINTER_STORE),
        ("mm_scaled_k", _fused("scale-k"), {}, HOPPER, codegen.VECTOR_LOAD, codegen.POINTER_LOAD),
    ],
)
def test_what_a_copy_unit_does_pointers_do_where_there_is_none(name, problem, variant, target, moved, elsewhere):
    kernel = catalogue.get(name)
    with_unit, without = (kernel.features(_plan(name, problem, LARGE, on, **variant)) for on in (target, AMPERE))
    assert moved in with_unit.required
    assert elsewhere not in with_unit.required
    assert elsewhere in without.required
    assert moved not in without.required


@pytest.mark.parametrize(
    ("feature", "line"),
    [
        (codegen.TILE_ADD, "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd1, {%r1}], [%r3];"),
        (codegen.ROW_SCATTER, "cp.async.bulk.tensor.2d.tile::scatter4.global.shared::cta.bulk_group [%rd1], [%r2];"),
        (codegen.VECTOR_LOAD, "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1];"),
    ],
)  # fmt: skip
def test_what_moves_by_descriptors_are_known_by(feature, line):
    machine = feature.evidence["nvidia"][0]
    others = [
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1, %r2}], [%r3];",
        "st.global.b32 [%rd1];",
    ]
    shown = [filecheck(machine.directive, codegen.code(machine.stage, text)).passed for text in (line, *others)]
    assert shown == [True, False, False]


def test_matrix_units():
    units = {codegen.MMA, codegen.WGMMA, codegen.TCGEN05}
    for target, unit in ((AMPERE, {codegen.MMA}), (HOPPER, {codegen.WGMMA}), (BLACKWELL, set())):
        features = catalogue.get("int_mm").features(_plan("int_mm", int_mm(64, 64, 64), target=target))
        assert features.required & units == unit
