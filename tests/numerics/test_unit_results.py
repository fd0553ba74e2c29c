"""The outputs that a tensor core allows, against sums that are written out here operation by operation."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from conformance import targets
from conformance.families.conv.problem import Conv
from conformance.families.gemm.problem import Bias, Fusion, Gemm, addmm, baddbmm, bmm, int_mm, mm, mm_plus_mm, scaled_mm
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.unit_verdict import knows_unit, operand_name, unit_results
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.heuristics.configs import Config
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.kernels.kernel import Variant
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import FORMATS, round_to
from conformance.numerics.sum_order import SumOrder, Unit
from tests.numerics.scalar_tensor_core import scalar_sum
from tests.numerics.test_tensor_core import fp32, fractions

UNIT, NARROW = Unit(16, 25, 23), Unit(32, 13, 13)
WGMMA = SumOrder("wgmma")
HOPPER = targets.find("sm_90")


def inputs_of(problem, name="randn"):
    operand = "tf32" if problem.precision == "tf32" else "exact"
    (fill,) = fills(problem, Contract(problem.output_dtype, Accumulator(), operand), 3, (name,))
    return dict(fill.inputs)


def dot(row, column, unit=UNIT, form="bf16", total=0.0):
    return float(
        scalar_sum(fractions(row), fractions(column), unit, FORMATS[form].emin, fractions(torch.tensor([total]))[0])
    )


def sums(a, b, **more):
    """fp32 sums of every row of A and every column of B."""
    return np.array([[dot(row, column, **more) for column in b.double().t()] for row in a.double()], dtype=np.float32)


def is_allowed(problem, order, inputs, expected, unit=UNIT):
    """Returns True if every element of ``expected`` is among the results, which are as many as ``expected``."""
    values = [value.numpy() for value in unit_results(problem, order, unit, inputs)]
    for one in expected:
        assert np.any([value == one for value in values], axis=0).all()
    return len(values) == len(expected) and all(
        np.any([value == one for one in expected], axis=0).all() for value in values
    )


def array(inputs, name):
    return inputs[name].float().numpy()


def test_a_product():
    problem = mm(5, 4, 40, "bf16", out_dtype="fp32")
    inputs = inputs_of(problem)
    assert is_allowed(problem, WGMMA, inputs, [sums(inputs["a"], inputs["b"])])


def test_parts_of_k_are_added_in_order():
    problem = mm(5, 4, 60, "bf16", out_dtype="fp32")
    inputs = inputs_of(problem)
    a, b = inputs["a"], inputs["b"]
    parts = [sums(a[:, k : k + 20], b[k : k + 20]) for k in (0, 20, 40)]
    assert is_allowed(problem, SumOrder("wgmma", splits=3), inputs, [(parts[0] + parts[1]) + parts[2]])


def test_two_products_in_one_sum_begin_with_steps_of_their_own():
    problem = mm_plus_mm(4, 3, 24, "bf16", out_dtype="fp32")
    inputs = inputs_of(problem)
    expected = np.zeros((4, 3), np.float32)
    for m, n in itertools.product(range(4), range(3)):
        first = dot(inputs["a"][m].double(), inputs["b"][:, n].double())
        expected[m, n] = dot(inputs["c"][m].double(), inputs["d"][:, n].double(), total=first)
    assert is_allowed(problem, WGMMA, inputs, [expected])


def test_alpha_and_beta_may_be_fused_with_either_product():
    problem = addmm(4, 5, 20, "bf16", out_dtype="fp32", alpha=0.3, beta=0.7)
    inputs = inputs_of(problem)
    total, bias = sums(inputs["a"], inputs["b"]), array(inputs, "bias")
    alpha, beta = np.float32(0.3), np.float32(0.7)
    expected = [
        total * alpha + bias * beta,
        fused(total, alpha, bias * beta),
        fused(bias, beta, total * alpha),
    ]
    assert is_allowed(problem, WGMMA, inputs, expected)
    assert not np.array_equal(expected[0], expected[1])


def fused(x, y, z):
    x, y, z = np.broadcast_arrays(x, y, z)
    flat = (fp32(fractions(torch.tensor([a]))[0] * fractions(torch.tensor([b]))[0] + fractions(torch.tensor([c]))[0])
            for a, b, c in zip(x.flat, y.flat, z.flat, strict=True))  # fmt: skip
    return np.array(list(flat), np.float32).reshape(x.shape)


def test_a_bias_that_beta_ignores_is_not_read():
    problem = addmm(4, 5, 20, "bf16", out_dtype="fp32", alpha=0.3, beta=0.0)
    inputs = inputs_of(problem)
    assert is_allowed(problem, WGMMA, inputs, [sums(inputs["a"], inputs["b"]) * np.float32(0.3)])


@pytest.mark.parametrize("scaling", ["tensor", "row"])
def test_scales_come_one_after_the_other_and_promotion_starts_sums_anew(scaling):
    problem = scaled_mm(4, 5, 160, "e4m3", out_dtype="fp32", scaling=scaling, bias=Bias("n", "fp32"))
    inputs = inputs_of(problem)
    a, b = inputs["a"].double(), inputs["b"].double()
    parts = [sums(a[:, k : k + 64], b[k : k + 64], unit=NARROW, form="e4m3") for k in (0, 64, 128)]
    scaled = ((parts[0] + parts[1]) + parts[2]) * array(inputs, "scale_a")
    second, bias = array(inputs, "scale_b"), array(inputs, "bias")
    expected = [scaled * second + bias, fused(scaled, second, bias)]
    assert is_allowed(problem, SumOrder("wgmma", 64), inputs, expected, NARROW)


def test_each_partial_sum_of_a_block_has_its_scales():
    problem = scaled_mm(3, 4, 200, "e4m3", out_dtype="fp32", scaling="1x128/128x128")
    inputs = inputs_of(problem)
    a, b, scale_a, scale_b = (
        inputs["a"].double(),
        inputs["b"].double(),
        array(inputs, "scale_a"),
        array(inputs, "scale_b"),
    )
    apart = together = np.zeros((3, 4), np.float32)
    for k in range(0, 200, 64):
        partial = sums(a[:, k : k + 64], b[k : k + 64], unit=NARROW, form="e4m3")
        scaled, second = partial * scale_a[:, k // 128, None], scale_b[k // 128, 0]
        apart = apart + scaled * second
        together = fused(scaled, second, together)
    assert is_allowed(problem, SumOrder("wgmma", 64), inputs, [apart, together], NARROW)


def test_a_batch_and_its_bias():
    problem = baddbmm(3, 4, 20, "bf16", out_dtype="fp32", batch=2, alpha=1.0, beta=1.0)
    inputs = inputs_of(problem)
    totals = np.stack([sums(inputs["a"][z], inputs["b"][z]) for z in range(2)])
    assert is_allowed(problem, WGMMA, inputs, [totals + array(inputs, "bias")])


@pytest.mark.parametrize(("kind", "sizes"), [("2d-3d", (5, 0, 3)), ("2d-2d", (20, 0, 33)), ("3d-2d", (2, 3))])
def test_groups(kind, sizes):
    extents = {"M": 4, "N": 3, "K": 40}
    ragged = {"2d-3d": "M", "2d-2d": "K", "3d-2d": "N"}[kind]
    problem = GroupedGemm(kind, sizes, **{**extents, ragged: None}, dtype="bf16", out_dtype="fp32")
    inputs = inputs_of(problem)
    a, b = inputs["a"], inputs["b"]
    expected, begin = [], 0
    for group, size in enumerate(sizes):
        part = slice(begin, begin + size)
        begin += size
        one_a = a[part] if kind == "2d-3d" else a[group] if kind == "3d-2d" else a[:, part]
        one_b = b[group] if kind == "2d-3d" else b[:, part] if kind == "3d-2d" else b[part]
        m, n, _ = problem.group_extents(group)
        expected.append(sums(one_a, one_b).reshape(m, n))
    joined = np.stack(expected) if kind == "2d-2d" else np.concatenate(expected, 0 if kind == "2d-3d" else 1)
    assert is_allowed(problem, WGMMA, inputs, [joined])


def test_a_convolution_takes_its_taps_in_order_and_its_channels_within_a_tap():
    problem = Conv("conv2d", 1, 40, (3, 4), 6, (2, 2), (1, 2), (1, 0), 2, "bf16", "fp32", bias=True)
    inputs = inputs_of(problem)
    x = torch.nn.functional.pad(inputs["x"].double(), (0, 0, 1, 1))
    w, bias = inputs["w"].double(), array(inputs, "bias")
    rows, columns = problem.out_size
    expected = np.zeros(problem.output.shape, np.float32)
    for o, i, j in itertools.product(range(6), range(rows), range(columns)):
        total, group = 0.0, slice(o // 3 * 20, o // 3 * 20 + 20)
        for kh, kw in itertools.product(range(2), range(2)):
            total = dot(x[0, group, i + kh, 2 * j + kw], w[o, :, kh, kw], total=total)
        expected[0, o, i, j] = np.float32(total) + bias[o]
    assert is_allowed(problem, WGMMA, inputs, [expected])


def test_a_gradient_for_weights_takes_the_positions_of_all_images_in_order():
    forward = Conv("conv2d", 3, 4, (4, 5), 6, (2, 2), (1, 2), (1, 0), 2, "bf16", "fp32")
    problem = WeightGradient(forward)
    inputs = inputs_of(problem)
    x = torch.nn.functional.pad(inputs["x"].double(), (0, 0, 1, 1))
    grad_out = inputs["grad_out"].double()
    rows, columns = forward.out_size
    assert problem.positions > 20, "a step of the unit does not hold all"
    expected = np.zeros(problem.output.shape, np.float32)
    for o, c, kh, kw in itertools.product(range(6), range(2), range(2), range(2)):
        seen = x[:, o // 3 * 2 + c, kh : kh + rows, kw : kw + 2 * columns : 2]
        expected[o, c, kh, kw] = dot(grad_out[:, o].flatten(), seen.flatten())
    assert is_allowed(problem, WGMMA, inputs, [expected])


def test_a_unit_may_begin_at_the_bias_where_the_loop_has_one_step():
    problem = Conv("conv2d", 1, 12, (2, 3), 4, (1, 1), (1, 1), (0, 0), 1, "bf16", "fp32", bias=True)
    inputs = inputs_of(problem)
    bias = array(inputs, "bias")
    pixels, w = inputs["x"].double()[0].flatten(1), inputs["w"].double().flatten(1)
    after = np.array([[np.float32(dot(p, w[o])) + bias[o] for p in pixels.t()] for o in range(4)], np.float32)
    first = np.array([[dot(p, w[o], total=float(bias[o])) for p in pixels.t()] for o in range(4)], np.float32)
    expected = [value.reshape(problem.output.shape) for value in (after, first)]
    assert is_allowed(problem, SumOrder("wgmma", begins_at_addend=True), inputs, expected)
    assert is_allowed(problem, WGMMA, inputs, expected[:1])


@pytest.mark.parametrize("one_step", [False, True])
def test_fused_steps_after_the_sum(one_step):
    fusion = Fusion("scale", None, ("bias", "relu", "residual", "dropout"))
    problem = Gemm("fused_mm", 4, 5, 20, "bf16", out_dtype="fp32", fusion=fusion, bias=Bias("n"))
    inputs = inputs_of(problem)
    a = (inputs["a"].float() * inputs["row_scale"][:, None]).bfloat16()
    bias, residual, mask = (array(inputs, name) for name in ("bias", "residual", "mask"))
    pairs = list(zip(inputs["b"].double().t(), bias.tolist(), strict=True))
    begin = np.array([[dot(row, column, total=n) for column, n in pairs] for row in a.double()], np.float32)
    starts = [sums(a, inputs["b"]) + bias, begin]
    expected = [np.where(mask != 0, 2 * (np.maximum(value, 0) + residual), np.float32(0)) for value in starts]
    order = SumOrder("wgmma", begins_at_addend=one_step)
    assert is_allowed(problem, order, inputs, expected[: 1 + one_step])


def test_what_nobody_knows_the_bits_of_is_refused():
    unknown = [
        mm(4, 4, 8, "fp32"),
        int_mm(4, 4, 32),
        mm(4, 4, 0, "bf16"),
        Gemm("fused_mm", 4, 4, 8, "bf16", fusion=Fusion(None, None, ("gelu",))),
        addmm(4, 4, 8, "bf16", alpha=0.0),
    ]
    for problem in unknown:
        assert not knows_unit(problem)
        with pytest.raises(TypeError, match="bits of its operation are not known"):
            unit_results(problem, WGMMA, UNIT, {})


def test_operands_are_named_as_the_unit_sees_them():
    assert operand_name(mm(4, 4, 8, "fp32", precision="tf32")) == "tf32"
    assert operand_name(scaled_mm(4, 4, 32, "e4m3", b_dtype="e5m2")) == "e4m3*e5m2"
    assert operand_name(Gemm("mixed_mm", 4, 4, 8, "fp16", b_dtype="int8")) == "fp16"


@pytest.mark.parametrize(
    ("problem", "names"),
    [
        (mm(9, 8, 40, "fp32", precision="tf32"), "ab"),
        (mm_plus_mm(9, 8, 40, "fp32", precision="tf32"), "abcd"),
        (GroupedGemm("2d-3d", (5, 3), None, 8, 40, "fp32", precision="tf32"), "ab"),
        (Conv("conv2d", 1, 8, (3, 4), 6, (2, 2), (1, 1), (0, 0), dtype="fp32", precision="tf32"), "xw"),
    ],
    ids=lambda value: getattr(value, "op", ""),
)
@pytest.mark.parametrize("fill", ["randn", "hot"])
def test_tf32_operands_are_tf32_already_so_that_rounding_and_cutting_are_the_same(problem, names, fill):
    inputs = inputs_of(problem, fill)
    for name in names:
        assert torch.equal(round_to(inputs[name].double(), "tf32"), inputs[name])


@pytest.mark.parametrize(
    ("name", "problem", "variant", "order"),
    [
        ("mm", mm(80, 80, 80, "bf16"), Variant(), SumOrder("wgmma")),
        ("scaled_mm", scaled_mm(80, 80, 160, "e4m3"), Variant(), SumOrder("wgmma", 64)),
        ("scaled_mm", scaled_mm(80, 80, 160, "e4m3", fast_accum=True), Variant(), SumOrder("wgmma")),
        (
            "scaled_mm_blockwise",
            scaled_mm(80, 80, 160, "e4m3", scaling="1x128/1x128"),
            Variant(),
            SumOrder("wgmma", 64),
        ),
        ("decompose_k_mm", mm(80, 80, 160, "bf16"), Variant(splits=4), SumOrder("wgmma", splits=4)),
        ("bmm", bmm(80, 80, 80, "fp16"), Variant(), SumOrder("wgmma")),
        ("mm", mm(80, 80, 80, "fp32"), Variant(), None),
        ("int_mm", int_mm(80, 80, 80), Variant(), None),
        ("mixed_mm", Gemm("mixed_mm", 80, 80, 80, "fp16", b_dtype="int8"), Variant(), SumOrder("wgmma")),
    ],
)
def test_kernels_state_their_order(name, problem, variant, order):
    kernel = catalogue.get(name)
    assert kernel.order(kernel.plan(problem, Config(64, 64, 64, 2, 4), HOPPER, variant)) == order


def test_small_tiles_run_on_another_instruction_and_an_order_that_the_compiler_chooses_is_not_stated():
    small = Config(32, 32, 32, 2, 4)
    assert (
        catalogue.get("mm").order(catalogue.get("mm").plan(mm(80, 80, 80, "bf16"), small, HOPPER)).instruction == "mma"
    )
    mixed, cast = catalogue.get("mixed_mm"), catalogue.get("fused_mm")
    problem = Gemm("mixed_mm", 80, 80, 80, "fp16", b_dtype="int8")
    assert mixed.order(mixed.plan(problem, small, HOPPER)) is None
    problem = Gemm("fused_mm", 80, 80, 80, "fp16", fusion=Fusion("cast", "e4m3"))
    assert cast.order(cast.plan(problem, small, HOPPER)) is None
    assert cast.order(cast.plan(problem, Config(64, 64, 64, 2, 4), HOPPER)) == SumOrder("wgmma")


def test_a_loop_of_one_step_is_stated_where_the_compiler_knows_its_length():
    kernel, problem = catalogue.get("conv2d"), Conv("conv2d", 1, 48, (9, 8), 72, (1, 1), (1, 1), (0, 0), bias=True)
    config = Config(64, 64, 64, 2, 4)
    assert kernel.order(kernel.plan(problem, config, HOPPER, Variant(static=True))).begins_at_addend
    assert not kernel.order(kernel.plan(problem, config, HOPPER)).begins_at_addend
    fused, one = catalogue.get("fused_mm"), Gemm("fused_mm", 80, 88, 1, "fp16", fusion=Fusion(epilogue=("residual",)))
    assert fused.order(fused.plan(one, config, HOPPER)).begins_at_addend
    longer = dataclasses.replace(one, K=48)
    assert not fused.order(fused.plan(longer, config, HOPPER)).begins_at_addend
