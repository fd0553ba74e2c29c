"""Every typed reason of the GEMM kernels, and what they accept."""

import dataclasses

import pytest

from conformance import targets
from conformance.families.gemm.problem import Bias, Gemm, addmm, mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels import carveout, catalogue
from conformance.kernels.kernel import NoApplicableKernel, NotApplicable, Variant
from conformance.problems import Layout
from conformance.records import ReasonCode

SMALL = Config(64, 64, 32, 2, 4)
HOPPER, AMPERE, AMD = (targets.find(name) for name in ("sm_90", "sm_80", "gfx942"))


def refusal(name, problem, config=SMALL, target=HOPPER, **variant):
    try:
        catalogue.get(name).plan(problem, config, target, Variant(**variant))
    except NotApplicable as error:
        return error.reason
    return None


@pytest.mark.parametrize(
    ("name", "problem", "config", "target", "variant", "code", "subject"),
    [
        ("mm", addmm(64, 64, 64), SMALL, HOPPER, {}, ReasonCode.OPERATION, "addmm"),
        ("mm", mm(64, 64, 64, "e4m3"), SMALL, HOPPER, {}, ReasonCode.DTYPE, "a"),
        ("mm", mm(64, 64, 64, "bf16", b_dtype="fp16"), SMALL, HOPPER, {}, ReasonCode.DTYPE, "b"),
        ("scaled_mm", scaled_mm(64, 64, 64), SMALL, AMPERE, {}, ReasonCode.DTYPE, "e4m3"),
        ("scaled_mm", scaled_mm(64, 64, 64, layout_b=Layout()), SMALL, HOPPER, {}, ReasonCode.LAYOUT, "b"),
        ("scaled_mm", scaled_mm(64, 64, 64, layout_a=Layout("col")), SMALL, HOPPER, {}, ReasonCode.LAYOUT, "a"),
        ("scaled_mm", scaled_mm(64, 64, 64), Config(64, 64, 16, 2, 4), HOPPER, {}, ReasonCode.CONFIG, "block size"),
        ("mm", mm(64, 64, 64), Config(8, 64, 32, 2, 4), HOPPER, {}, ReasonCode.CONFIG, "block size"),
        ("mm", mm(64, 64, 64), SMALL, HOPPER, {"tma_store": True}, ReasonCode.CONFIG, "variant"),
        ("addmm", addmm(64, 64, 64, "fp32", precision="tf32x3"), SMALL, HOPPER, {}, ReasonCode.PRECISION, "tf32x3"),
        ("mm", mm(64, 64, 64, "fp32", precision="tf32x3"), SMALL, AMD, {}, ReasonCode.PRECISION, "tf32x3"),
        ("mm_persistent_tma", mm(64, 64, 64), SMALL, AMPERE, {}, ReasonCode.CAPABILITY, "tma"),
        ("mm_persistent_tma", mm(64, 64, 60), SMALL, HOPPER, {}, ReasonCode.ALIGNMENT_PITCH, "a"),
        ("mm_persistent_tma", mm(64, 60, 64), SMALL, HOPPER, {}, ReasonCode.ALIGNMENT_PITCH, "b"),
        (
            "mm_persistent_tma",
            mm(64, 64, 64, layout_a=Layout(offset=4)),
            SMALL,
            HOPPER,
            {},
            ReasonCode.ALIGNMENT_BASE,
            "a",
        ),
        ("mm_persistent_tma", mm(64, 64, 64, layout_a=Layout(step=2)), SMALL, HOPPER, {}, ReasonCode.LAYOUT, "a"),
    ],
)
def test_typed_reason(name, problem, config, target, variant, code, subject):
    reason = refusal(name, problem, config, target, **variant)
    assert reason is not None
    assert (reason.code, reason.subject) == (code, subject), str(reason)
    assert len(reason.detail) > 20


def test_shared_memory_counts_every_stage():
    reason = refusal("mm", mm(64, 64, 64, "fp32"), Config(128, 128, 64, 5, 8))
    assert reason.code is ReasonCode.SHARED_MEMORY
    assert str((128 + 128) * 64 * 4 * 5) in reason.detail
    assert refusal("mm", mm(64, 64, 64, "bf16"), Config(128, 128, 64, 5, 8)) is None


def test_split_operands_need_memory_for_their_parts_and_have_no_known_bits():
    kernel, sizes = catalogue.get("mm"), (64, 64, 64, "fp32")
    plain, split = (kernel.plan(mm(*sizes, precision=name), SMALL, HOPPER) for name in ("tf32", "tf32x3"))
    assert kernel.shared_memory(split) - kernel.shared_memory(plain) == 2 * (64 + 64) * 32 * 4
    assert (kernel.order(plain) is None, kernel.order(split) is None) == (False, True)
    for executor in ("device", "interpreter"):
        assert kernel.contract(split, executor).operand == "tf32x3"
    if HOPPER.capability("bf16x3").available:
        narrow = kernel.plan(mm(*sizes, precision="bf16x3"), SMALL, HOPPER)
        steps = [kernel.contract(plan, "device").accumulator.chunk for plan in (plain, split, narrow)]
        assert steps == [steps[0], steps[0], 2 * steps[0]], (
            "a step adds twice as many products of operands half as wide"
        )


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"N": 60, "layout_b": Layout(pad=4), "layout_out": Layout(pad=4)}, ReasonCode.ALIGNMENT_EXTENT),
        ({"layout_out": Layout(offset=1)}, ReasonCode.ALIGNMENT_BASE),
        ({"layout_out": Layout(pad=1)}, ReasonCode.ALIGNMENT_PITCH),
        ({"layout_out": Layout("col")}, ReasonCode.LAYOUT),
    ],
)
def test_descriptor_store_watches_the_output(fields, code):
    problem = dataclasses.replace(mm(64, 64, 64), **fields)
    assert refusal("mm_persistent_tma", problem) is None, "the pointer store takes it"
    reason = refusal("mm_persistent_tma", problem, tma_store=True)
    assert (reason.code, reason.subject) == (code, "out")


def test_single_row_needs_no_aligned_pitch():
    assert refusal("mm_persistent_tma", mm(1, 64, 63, layout_b=Layout("row"))) is None
    assert refusal("mm_persistent_tma", mm(2, 64, 63)).code is ReasonCode.ALIGNMENT_PITCH


def test_no_applicable_kernel_carries_each_reason():
    with pytest.raises(NoApplicableKernel) as caught:
        catalogue.select(mm(64, 64, 60), HOPPER, Variant(tma_store=True))
    assert caught.value.reasons.keys() == catalogue.catalogue().keys()
    assert caught.value.reasons["mm_persistent_tma"].code is ReasonCode.ALIGNMENT_PITCH
    assert caught.value.reasons["mm"].code is ReasonCode.CONFIG
    assert "60" not in str(caught.value.reasons["addmm"])
    assert "mm_persistent_tma: alignment-pitch (a): rows of a are 120 bytes apart" in str(caught.value)


def test_select_offers_every_kernel_that_applies():
    names = [plan.kernel for plan in catalogue.select(mm(64, 64, 64), HOPPER)]
    assert names == [
        "mm",
        "mm_persistent_tma",
        "mm_persistent",
        "mm_fp16_acc",
        "mm_specialised",
        "mm_stream_k",
    ]


def test_unknown_kernel_names_those_that_exist():
    with pytest.raises(KeyError, match="mm_persistent_tma"):
        catalogue.get("nn")


def test_persistent_grid_leaves_the_carveout_and_never_exceeds_the_tiles():
    kernel = catalogue.get("mm_persistent_tma")
    large, small = mm(4096, 4096, 64), mm(64, 128, 64)
    before = carveout.current()
    with carveout.reserved(27):
        assert kernel.plan(large, SMALL, HOPPER).grid == (132 - 27,)
        assert kernel.plan(small, SMALL, HOPPER).grid == (2,)
        assert kernel.plan(large, SMALL, HOPPER, Variant(sms=20)).grid == (1,)
    assert carveout.current() == before
    assert kernel.plan(large, SMALL, HOPPER).grid == (132,)


def test_negative_carveout_is_refused():
    with pytest.raises(ValueError, match="negative"), carveout.reserved(-1):
        pass


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Gemm("nmm", 1, 1, 1), "unknown"),
        (lambda: mm(-1, 1, 1), ">= 0"),
        (lambda: mm(1, 1, 1, "int4"), "int4"),
        (lambda: Gemm("addmm", 1, 1, 1), "needs a bias"),
        (lambda: mm(1, 1, 1, bias=Bias()), "takes no bias"),
        (lambda: mm(1, 1, 1, alpha=2.0), "alpha"),
        (lambda: scaled_mm(1, 1, 1, scaling=None), "scaling"),
        (lambda: Layout("diagonal"), "order"),
        (lambda: Layout(pad=-1), "pad"),
        (lambda: Bias("x"), "bias kind"),
    ],
)
def test_problems_that_make_no_sense(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_problem_ids_tell_problems_apart():
    problems = [
        mm(8, 8, 8, "bf16"),
        mm(8, 8, 8, "fp32"),
        mm(8, 8, 8, "fp32", precision="tf32"),
        mm(8, 8, 8, "bf16", out_dtype="fp32"),
        mm(8, 8, 8, "bf16", layout_a=Layout(pad=8)),
        mm(8, 8, 8, "bf16", layout_a=Layout(offset=8)),
        mm(8, 8, 8, "bf16", layout_a=Layout(step=2)),
        addmm(8, 8, 8, "bf16"),
        addmm(8, 8, 8, "bf16", beta=2.0),
        addmm(8, 8, 8, "bf16", bias=Bias("m1")),
        scaled_mm(8, 8, 8),
        scaled_mm(8, 8, 8, fast_accum=True),
        scaled_mm(8, 8, 8, scaling="tensor"),
        scaled_mm(8, 8, 8, b_dtype="e5m2"),
    ]
    assert len({problem.id for problem in problems}) == len(problems)
