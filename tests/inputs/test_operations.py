"""Fills of the operations that are cut from one plain product: what they promise, and what they must show."""

import pytest
import torch

from conformance import reference
from conformance.families.attention.problem import Attention
from conformance.families.gemm import arrangement, exact, integer_budget
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import (
    BLOCK_SCALINGS,
    Bias,
    Fusion,
    Gemm,
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
from conformance.inputs.fills import (
    REGISTERED,
    Draws,
    FillError,
    FillKind,
    FillSet,
    fill_names,
    fill_table,
    fills,
    register_fills,
)
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge
from conformance.problems import FP8, Layout, Operand, Problem
from tests.inputs import fill_quality
from tests.inputs.fill_quality import visible_shares

PROMOTED = Accumulator(alignment_bits=13, result_bits=13, chunk=32, promote=128)


def contract_of(problem):
    return fill_quality.contract_of(problem, PROMOTED if problem.dtype in FP8 else None)


def fused(*epilogue, prologue=None, stored=None, dtype="fp16", **fields):
    bias = Bias() if "bias" in epilogue else None
    return fused_mm(72, 56, 88, dtype, fusion=Fusion(prologue, stored, epilogue), bias=bias, **fields)


ALL = ("transparent", "wide-A", "wide-B", "randn", "hot", "special")
SCALED = ("transparent", "wide-A", "wide-B", "wide-scales", "randn", "hot", "special")
#: problem -> its fills
TYPICAL = {
    mm_plus_mm(72, 56, 33, "bf16"): ALL,
    mm_plus_mm(72, 56, 33, "fp32", precision="tf32"): ALL,
    mm_plus_mm(40, 56, 200, "e4m3"): ALL,
    bmm(40, 24, 33): ALL,
    bmm(16, 24, 88, "bf16", batch=40): ALL,
    bmm(40, 24, 33, "fp32", layout_a=Layout(batch="zero")): ALL,
    baddbmm(40, 24, 70, "bf16"): ALL,
    baddbmm(40, 24, 70, bias=Bias("bmn"), batch=9): ALL,
    baddbmm(40, 24, 70, alpha=0.0): ("transparent", "randn"),
    baddbmm(40, 24, 70, beta=0.3): ("wide-A", "randn", "special"),
    int_mm(40, 56, 1200): ("transparent", "wide-A"),
    int_mm(40, 56, 3): ("transparent", "wide-A"),
    **{
        mixed_mm(72, 56, k, dtype, b_dtype=b): ALL
        for k in (3, 88)
        for dtype in ("fp16", "bf16", "fp32")
        for b in ("int8", "uint8")
    },
    mixed_mm(72, 56, 88, "fp32", b_dtype="uint8", precision="tf32"): ALL,
    **{scaled_mm(140, 140, 300, scaling=s, out_dtype=out): SCALED for s in BLOCK_SCALINGS for out in ("bf16", "fp32")},
    scaled_mm(140, 140, 129, scaling="1x128/128x128", bias=Bias()): SCALED,
    dual_mm(72, 56, 88): ("transparent", "wide-A", "randn"),
    dual_mm(72, 56, 33, "fp32", precision="tf32", out_dtype="bf16"): ("transparent", "wide-A", "randn"),
    mm_with_sums(72, 56, 88): ALL,
    mm_with_sums(72, 56, 33, "fp32"): ALL,
    fused(): ALL,
    fused("bias", "relu", dtype="bf16"): ALL,
    fused("bias", "relu", "residual", "dropout", dtype="bf16"): ALL,
    fused("bias", "gelu"): ("wide-A", "randn"),
    fused(prologue="gather"): ALL,
    fused("residual", prologue="cast", stored="fp32"): ALL[:-1],
    fused(prologue="cast", stored="bf16", dtype="fp32", precision="tf32"): ALL[:-1],
    fused("dropout", prologue="scale"): ALL[:-1],
    fused(prologue="scale", dtype="fp32", precision="tf32"): ALL[:-1],
}
EMPTY = [
    mm_plus_mm(8, 8, 0),
    dual_mm(8, 8, 0),
    mm_with_sums(8, 8, 0),
    mm_with_sums(8, 0, 8),
    mm_with_sums(0, 8, 8),
    dual_mm(8, 0, 8),
    bmm(8, 8, 8, batch=0),
    bmm(8, 0, 8),
    baddbmm(8, 8, 0),
    int_mm(8, 8, 0),
    int_mm(0, 8, 8),
    mixed_mm(8, 8, 0),
    scaled_mm(8, 8, 0, scaling="1x128/1x128"),
    scaled_mm(0, 8, 8, scaling="128x128/1x128"),
    fused_mm(8, 8, 0),
    fused_mm(0, 8, 8, fusion=Fusion("gather", None, ("gelu", "residual"))),
]
SMALL = [
    mm_plus_mm(1, 1, 1),
    mm_plus_mm(3, 2, 2),
    dual_mm(1, 1, 1),
    mm_with_sums(1, 1, 1),
    dual_mm(2, 3, 5, "bf16"),
    bmm(1, 1, 1, batch=1),
    baddbmm(2, 3, 5, batch=2),
    int_mm(1, 1, 1),
    mixed_mm(1, 1, 1, b_dtype="uint8"),
    mixed_mm(2, 3, 5, "bf16", b_dtype="uint8"),
    *(scaled_mm(2, 3, 4, scaling=scaling) for scaling in BLOCK_SCALINGS),
    fused_mm(1, 1, 1, fusion=Fusion("gather", None, ("dropout",))),
    fused_mm(2, 3, 5, fusion=Fusion("scale", None, ("bias", "relu", "residual")), bias=Bias()),
]


def check_inputs(problem, fill):
    fill_quality.check_operands(problem, fill)
    assert fill.expected.shape == problem.output.shape
    assert torch.equal(reference.value(problem, fill.inputs).nan_to_num(), fill.expected.nan_to_num())


@pytest.mark.parametrize("problem", TYPICAL, ids=lambda problem: f"{problem.id}-{problem.second_dtype}")
def test_typical_fills_hold_what_they_promise(problem):
    every_fill = fills(problem, contract_of(problem), seed=2)
    assert tuple(fill.name for fill in every_fill) == TYPICAL[problem]
    # relu and dropout each make zeros of half of the outputs
    steps = problem.fusion.epilogue if problem.fusion is not None else ()
    nonzero = 0.5 * 0.7 ** len({"relu", "gelu", "dropout"} & set(steps))
    for fill in every_fill:
        check_inputs(problem, fill)
        fill_quality.check_promises(problem, fill, nonzero)


@pytest.mark.parametrize("problem", [*EMPTY, *SMALL], ids=lambda problem: problem.id)
def test_tiny_and_empty_problems(problem):
    every_fill = fills(problem, contract_of(problem))
    assert every_fill[0].name == "transparent"
    assert len(every_fill) == 1 or problem.output.numel
    for fill in every_fill:
        check_inputs(problem, fill)


def test_layouts_do_not_change_values_but_one_matrix_for_all_does():
    plain, apart = bmm(8, 9, 10), bmm(8, 9, 10, layout_a=Layout(batch="inner"), layout_out=Layout("col"))
    one = bmm(8, 9, 10, layout_a=Layout(batch="zero"))
    first, second, third = (fills(p, contract_of(p), names=["randn"])[0].inputs["a"] for p in (plain, apart, one))
    assert torch.equal(first, second)
    assert torch.equal(third, third[:1].expand_as(third))
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("batch", [2, 6, 40])
def test_neighbours_of_a_batch_differ(batch):
    problem = bmm(4, 5, 16, batch=batch)
    for fill in fills(problem, contract_of(problem), names=["transparent", "randn"]):
        for name in "ab":
            matrices = fill.inputs[name]
            assert all(not torch.equal(matrices[z], matrices[z - 1]) for z in range(1, batch))
        for period in (1, 2, 4, 8, 16, 32):
            if period < batch:
                assert not torch.equal(fill.expected[period:], fill.expected[:-period])


def test_a_large_batch_is_made_of_few_matrices():
    problem = bmm(16, 16, 32, batch=7000)
    (fill,) = fills(problem, contract_of(problem), names=["transparent"])
    assert len(torch.unique(fill.inputs["a"].flatten(1), dim=0)) == 5
    assert len(torch.unique(fill.inputs["b"].flatten(1), dim=0)) == 7
    expected = fill.inputs["a"][6999].double() @ fill.inputs["b"][6999].double()
    assert torch.equal(fill.expected[6999], expected)


def test_the_reference_of_a_batch_is_checked(monkeypatch):
    right = gemm.product
    for matrix in (2, 36):  # among the first, which are multiplied out, and a repetition of them

        def wrong(*args, matrix=matrix, **kwargs):
            raw = right(*args, **kwargs)
            raw[matrix, 1, 1] += 1
            return raw

        monkeypatch.setattr(gemm, "product", wrong)
        problem = bmm(4, 4, 8, batch=40)
        with pytest.raises(FillError, match="Freivalds"):
            fills(problem, contract_of(problem), names=["transparent"])


def test_integer_sums_pass_16_and_24_bits():
    problem = int_mm(40, 56, 1100)
    transparent, wide = fills(problem, contract_of(problem))
    for fill in (transparent, wide):
        for name in "ab":
            assert {-128, 127} <= set(fill.inputs[name].flatten().tolist())
    assert bool((wide.expected.abs() > 2**15).all())
    large = wide.expected.abs() > 2**24
    assert large.double().mean() > 0.25
    assert bool((wide.expected % 2 != 0).all()), "an odd sum past 2**24 is none of fp32"
    assert bool((wide.expected > 0).any())
    assert bool((wide.expected < 0).any())


def test_a_full_sum_of_integers_that_int32_does_not_hold_is_refused():
    problem = int_mm(2, 2, 150000)
    with pytest.raises(FillError, match="accumulator keeps only sums below 2147483648"):
        fills(problem, contract_of(problem), names=["wide-A"])


@pytest.mark.parametrize(("b_dtype", "lowest", "largest"), [("int8", -128, 127), ("uint8", 0, 255)])
def test_mixed_products_use_the_whole_range_of_their_integers(b_dtype, lowest, largest):
    problem = mixed_mm(64, 300, 88, "bf16", b_dtype=b_dtype)
    integers = {fill.name: fill.inputs["b"].int() for fill in fills(problem, contract_of(problem))}
    assert (int(integers["wide-B"].min()), int(integers["wide-B"].max())) == (lowest or 1, largest)
    for name in ("randn", "hot"):
        assert (max(-127, int(integers[name].min())), int(integers[name].max())) == (max(-127, lowest), largest)
    if b_dtype == "uint8":
        assert bool((integers["transparent"] > 127).any())


@pytest.mark.parametrize("scaling", BLOCK_SCALINGS)
def test_scales_of_blocks_differ_from_their_neighbours(scaling):
    problem = scaled_mm(400, 520, 650, scaling=scaling)
    for fill in fills(problem, contract_of(problem), names=["transparent", "wide-scales"]):
        scale_a, scale_b = fill.inputs["scale_a"], fill.inputs["scale_b"].T  # lines x k-blocks
        for scale, kind in zip((scale_a, scale_b), scaling.split("/"), strict=True):
            if fill.name == "wide-scales":
                assert len(torch.unique(scale)) > min(24, 0.7 * scale.numel())
            elif kind == "128x128":
                assert bool((scale[1:] != scale[:-1]).all())
                assert bool((scale[:, 1:] != scale[:, :-1]).all())
            else:
                assert 0.3 < (scale[:, 1:] != scale[:, :-1]).double().mean() < 0.7
                assert 0.3 < (scale[1:] != scale[:-1]).double().mean() < 0.7
        if fill.name == "transparent":
            assert not set(scale_a.flatten().tolist()) & {1.0, *scale_b.flatten().tolist()}


def test_pairs_lie_within_one_scale():
    product = arrangement.PlainProduct(4, 4, 300, 128, scaled=True)
    u, v, rest = exact._pairs(product, Draws(3, "test"))
    assert torch.equal(torch.from_numpy(u) // 128, torch.from_numpy(v) // 128)
    assert sorted([*u, *v, *rest]) == list(range(300))
    whole, partner, _ = exact._pairs(arrangement.PlainProduct(4, 4, 300, 150), Draws(3, "test"))
    assert bool((whole // 128 != partner // 128).any())


def test_chunks_begin_anew_with_each_segment():
    a, b = torch.tensor([[3, 2, 5, 1]]), torch.ones(4, 1, dtype=torch.int64)
    assert integer_budget.subset_sums(a, b, 2, 3) == (7, 11)
    assert integer_budget.subset_sums(a, b, 4, 3) == (10, 11)


def test_gathered_rows_have_no_order():
    problem = fused(prologue="gather")
    for fill in fills(problem, contract_of(problem)):
        rows = fill.inputs["rows"].tolist()
        assert all(row != index for index, row in enumerate(rows))
        assert 0 <= min(rows) <= max(rows) < 2 * problem.M + 3
        assert max(rows) >= problem.M
        assert len(set(rows)) < len(rows), "some rows are used twice"
        assert not torch.equal(fill.inputs["a"][0].nan_to_num(), fill.inputs["a"][1].nan_to_num())


def test_prologues_round_in_bounded_fills_only():
    for stored, dtype in (("fp32", "fp16"), ("fp32", "bf16"), ("fp16", "bf16")):
        problem = fused(prologue="cast", stored=stored, dtype=dtype)
        for fill in fills(problem, contract_of(problem)):
            a = fill.inputs["a"].double()
            assert torch.equal(round_to(a, dtype).double(), a) == (fill.method == "exact")
    problem = fused(prologue="scale")
    for fill in fills(problem, contract_of(problem)):
        powers = torch.frexp(fill.inputs["row_scale"])[0] == 0.5
        assert bool(powers.all()) == (fill.method == "exact")
        assert bool((fill.inputs["row_scale"] != 1).all())


@pytest.mark.parametrize("prologue", [None, "scale", "cast"])
def test_what_a_tf32_unit_sees_is_representable(prologue):
    stored = "bf16" if prologue == "cast" else None
    problem = fused(prologue=prologue, stored=stored, dtype="fp32", precision="tf32")
    for fill in fills(problem, contract_of(problem)):
        for factor in gemm.factors(problem, fill.inputs):
            finite = factor[factor.isfinite()]
            assert torch.equal(round_to(finite, "tf32").double(), finite)


def test_relu_has_something_to_do():
    problem = fused("bias", "relu")
    for fill in fills(problem, contract_of(problem)):
        value = gemm.product(problem, fill.inputs) + fill.inputs["bias"].double()
        assert 0.25 < (value < 0).double().mean() < 0.75


def test_other_families_have_their_own_fills():
    problem = Attention("attention", 1, 1, 8, 8, 16)
    assert fill_names(problem) != fill_names(mm(1, 1, 1))
    every_fill = fills(problem, Contract("fp16", FMA), names=["randn"])
    assert [fill.name for fill in every_fill] == ["randn"]
    assert visible_shares(every_fill[0], problem)["nonzero"] > 0.5

    class Unknown:
        id = "unknown-1"

    with pytest.raises(TypeError, match="unknown-1 is a Unknown, for which there are no fills"):
        fills(Unknown(), Contract("fp16", FMA))


def test_values_past_an_integer_format_are_refused():
    operand = Gemm("mixed_mm", 2, 2, 2, b_dtype="int8").operand("b")
    with pytest.raises(FillError, match="do not fit int8"):
        integer_budget.exactly([[128.0]], 0, operand, ("int8", "fp16"))


class OneTimesTwo(Problem):
    """A third-party family: twice its operand."""

    op, dtype, id = "double", "fp32", "double-3"
    operands = (Operand("a", (3,), (1,), "fp32"),)
    outputs = (Operand("out", (3,), (1,), "fp32"),)

    @property
    def dense(self):
        return self


def test_a_family_from_elsewhere_registers_its_reference_and_its_fills(monkeypatch):
    problem = OneTimesTwo()
    with pytest.raises(TypeError, match="double-3 is a OneTimesTwo, for which there is no reference value"):
        reference.value(problem, {})
    with pytest.raises(TypeError, match="there are no fills"):
        fill_names(problem)

    class Registered(OneTimesTwo):
        pass

    @reference.value.register
    def _(problem: Registered, inputs, *, device=None):
        return 2 * inputs["a"].double()

    def build(request):
        inputs = {"a": torch.arange(3.0)}
        return request.fill("exact", inputs, reference.value(request.problem, inputs), None)

    monkeypatch.setitem(REGISTERED, Registered, None)  # taken out again after the test: other tests list every fill
    kind = FillKind("counted", exact=True, holds="0, 1, 2", shows="a wrong order")
    register_fills(Registered, FillSet((kind,), lambda problem, contract: ("counted",), build))
    (fill,) = fills(Registered(), Contract("fp32", FMA))
    assert fill.expected.tolist() == [0.0, 2.0, 4.0]
    assert ["Registered", "counted", "bit for bit", "0, 1, 2", "a wrong order"] in fill_table()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_row_sums_are_judged_bit_by_bit_where_none_can_be_rounded(dtype):
    problem = mm_with_sums(40, 24, 70, dtype)
    methods = {fill.name: fill.of("sums").method for fill in fills(problem, contract_of(problem))}
    bounded = {"randn": "bounded", "hot": "bounded", "special": "special"}
    # significands of fp32 are as wide as its sums
    assert methods == {**dict.fromkeys(("transparent", "wide-A", "wide-B"), "exact"), **bounded} | (
        {"wide-A": "bounded"} if dtype == "fp32" else {}
    )
    for fill in fills(problem, contract_of(problem)):
        part, a = fill.of("sums"), fill.inputs["a"]
        assert torch.equal(part.expected.nan_to_num(), a.double().sum(1).add(0.0).nan_to_num())
        halves = a.float()[:, ::2].sum(1) + a.float()[:, 1::2].sum(1)  # another order
        verdict = judge(problem, contract_of(problem), fill, halves, "sums")
        assert verdict.passed, verdict.text
        assert not judge(problem, contract_of(problem), fill, 1.001 * halves, "sums").passed
