"""Fills of products of block-scaled operands: their values written out once more, what they hold and what they show."""

import dataclasses

import pytest
import torch

from conformance import problems as dispatch
from conformance.families.microscaled.fills import stored
from conformance.families.microscaled.problem import FORMATS, MicroscaledGemm
from conformance.families.microscaled.reference import decoded
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.families.microscaled_grouped.reference import group_inputs
from conformance.inputs.fills import FillError, applicable_fills, fill_names, fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.verdict import judge
from conformance.problems import Layout

CONTRACT = Contract("fp32", FMA)
FOUR_BITS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
PAIRS = [
    ("mxfp8", "mxfp8", {}),
    ("mxfp8e5", "mxfp4", {}),
    ("mxfp4", "mxfp4", {"packed_a": "m", "packed_b": "n"}),
    ("nvfp4", "nvfp4", {"packed_b": "n"}),
    ("bf16", "mxfp4", {}),
    ("mxfp4", "fp16", {"packed_a": "m"}),
    ("mxfp8", "mxfp4", {"batch": 2}),
    ("mxfp4", "mxfp8e5", {"swizzled": True, "batch": 2}),
    ("nvfp4", "nvfp4", {"swizzled": True}),
]
PROBLEMS = [MicroscaledGemm(a, b, 20, 18, 50, **fields) for a, b, fields in PAIRS]


def by_id(problem):
    return problem.id


def element(problem, name, inputs, line, k):
    """One element of A (line, k) or B (k, line) as a number, by the definitions of the formats."""
    form, tensor = problem.format_of(name), inputs[name]
    place = [line, k] if name == "a" else [k, line]
    axis = {"k": 1, "m": 0, "n": 1}[problem.packed(name)] if name == "a" else {"k": 0, "n": 1}[problem.packed(name)]
    if form.codes == "e2m1":
        byte, half = divmod(place[axis], 2)
        place[axis] = byte
        code = tensor[tuple(place)].item() >> 4 * half & 15
        number = FOUR_BITS[code & 7] * (-1 if code & 8 else 1)
    else:
        number = tensor[tuple(place)].double().item()
    if form.scale is None:
        return number
    block = k // form.block
    place = (line // 128, block // 4, line % 32, line % 128 // 32, block % 4) if problem.swizzled else (line, block)
    scale = inputs[f"scale_{name}"][place].item()
    if form.scale == "uint8":
        scale = float("nan") if scale == 255 else 2.0 ** (scale - 127)
    return number * float(scale)


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_every_fill_and_its_value(problem):
    names = fill_names(problem)
    for fill in fills(problem, CONTRACT, names=names):
        inputs = {name: tensor[-1] if problem.batch else tensor for name, tensor in fill.inputs.items()}
        expected = fill.expected[-1] if problem.batch else fill.expected
        for m, n in ((0, 0), (7, 17), (19, 3)):
            terms = [
                element(problem, "a", inputs, m, k) * element(problem, "b", inputs, n, k) for k in range(problem.K)
            ]
            assert expected[m, n].item() == pytest.approx(sum(terms), rel=1e-12, nan_ok=True), (fill.name, m, n)


def test_where_swizzled_scales_lie():
    """By bytes: tiles of 512, in a tile 16 for each line up to 31, then 4 for each further group of 32 lines."""
    problem = MicroscaledGemm("mxfp8", "mxfp8", 300, 16, 330, swizzled=True, layout_scale=Layout("col", pad=1))
    operand = problem.operand("scale_a")
    assert (operand.shape, operand.strides) == ((3, 3, 32, 4, 4), (512, 4 * 512, 16, 4, 1))
    (fill,) = fills(problem, CONTRACT, names=("codes-A",))
    plain = dataclasses.replace(problem, swizzled=False, layout_scale=Layout())
    (other,) = fills(plain, CONTRACT, names=("codes-A",))
    tiles, lines = fill.inputs["scale_a"].flatten(-3), other.inputs["scale_a"]
    for line, block in ((0, 0), (31, 3), (32, 4), (217, 9), (299, 10)):
        assert tiles[line // 128, block // 4, line % 32 * 16 + line % 128 // 32 * 4 + block % 4] == lines[line, block]
    padding = fill.inputs["scale_a"]
    assert padding[2, :, 31, 3].eq(255).all(), "of lines past the last"
    assert padding[0, 2, :, :, 3].ne(255).all(), "of blocks past the last"


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].scale])
def test_every_code_is_in_the_fill_of_codes(name):
    problem = MicroscaledGemm(name, "bf16", 40, 16, 64)
    (fill,) = fills(problem, CONTRACT, names=("codes-A",))
    codes = set(fill.inputs["a"].view(torch.uint8).flatten().tolist())
    if FORMATS[name].codes == "e2m1":
        halves = {code & 15 for code in codes} | {code >> 4 for code in codes}
        assert halves == set(range(16)) - {0, 8}, "zeros are in the other operand"
    else:
        numbers = torch.arange(256, dtype=torch.uint8).view(fill.inputs["a"].dtype).double()
        assert codes == set(torch.nonzero(numbers.isfinite() & (numbers != 0)).flatten().tolist())


@pytest.mark.parametrize("bits", [14, 24])
@pytest.mark.parametrize("K", [64, 4096])
def test_no_sum_of_the_exact_fills_is_rounded(K, bits):
    """In units of the smallest product the sum of all sizes stays below what the accumulator holds."""
    accumulator = Accumulator(alignment_bits=bits, result_bits=min(bits, 23), assumed=True)
    for a, b in (("mxfp8", "mxfp8"), ("nvfp4", "nvfp4"), ("bf16", "mxfp4")):
        problem = MicroscaledGemm(a, b, 16, 16, K)
        (fill,) = fills(problem, dataclasses.replace(CONTRACT, accumulator=accumulator), names=("sums",))
        left, right = decoded(problem, fill.inputs)
        units = [values[values != 0].abs().min() for values in (left, right)]
        assert torch.equal((left / units[0]).round(), left / units[0])
        assert float((left.abs() @ right.abs() / (units[0] * units[1])).max()) <= 2.0 ** min(bits, 24)


@pytest.mark.parametrize(("N", "operand"), [(18, "a"), (20, "b")])
def test_the_least_scale_is_for_tests_that_name_it(N, operand):
    problem = dataclasses.replace(PROBLEMS[0], N=N)
    assert "least-scale" not in applicable_fills(problem, CONTRACT)
    assert applicable_fills(problem, CONTRACT, ("least-scale",)) == ("least-scale",)
    (fill,) = fills(problem, CONTRACT, names=("least-scale",))
    assert [name for name in "ab" if 0 in fill.inputs[f"scale_{name}"]] == [operand]
    as_zero = torch.where(fill.expected.abs() < 2.0**-106, 0.0, fill.expected).float()
    assert judge(problem, CONTRACT, fill, fill.expected.float()).passed
    assert not judge(problem, CONTRACT, fill, as_zero).passed, "a kernel that takes the byte 0 for zero"


def test_values_without_a_code_are_refused():
    problem = MicroscaledGemm("mxfp4", "mxfp8", 2, 2, 2)
    for name, value in (("a", 2.5), ("b", 1.03)):
        with pytest.raises(FillError, match="has values that"):
            stored(problem, name, torch.full((2, 2), value, dtype=torch.float64).numpy())


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"packed_a": "m", "a_format": "mxfp8"}, "only four-bit codes are packed along m"),
        ({"a_format": "mxfp4", "K": 3}, "two codes a byte along k"),
        ({"a_format": "mxfp4", "packed_a": "n"}, "packed_a 'n' is unknown"),
        ({"a_format": "bf16", "b_format": "fp16"}, "one operand at least must have scales"),
        ({"a_format": "mxfp6"}, "a_format 'mxfp6' is unknown"),
        ({"M": -1}, "sizes must be >= 0"),
    ],
)
def test_problems_that_are_none(fields, text):
    sizes = {"M": 4, "N": 4, "K": 4, "a_format": "mxfp8", "b_format": "mxfp8", **fields}
    with pytest.raises(ValueError, match=text):
        MicroscaledGemm(**sizes)


@pytest.mark.parametrize("pair", [("mxfp8", "mxfp4"), ("mxfp4", "bf16"), ("nvfp4", "nvfp4")], ids=".".join)
def test_grouped_fills_are_those_of_each_group(pair):
    """Of a group's rows by its own B and scales; what no group reads is NaN."""
    problem = MicroscaledGroupedGemm(*pair, (9, 0, 1, 20), 18, 50)
    for fill in fills(problem, CONTRACT, names=fill_names(problem)):
        assert fill.inputs["offsets"].tolist() == [9, 9, 10, 30]
        for group, first in ((0, 0), (2, 9), (3, 10)):
            product, inputs = problem.group(group), group_inputs(problem, fill.inputs, group)
            for m, n in ((0, 0), (problem.sizes[group] - 1, 17)):
                terms = [element(product, "a", inputs, m, k) * element(product, "b", inputs, n, k) for k in range(50)]
                expected = fill.expected[first + m, n].item()
                assert expected == pytest.approx(sum(terms), rel=1e-12, nan_ok=True), (fill.name, group, m, n)
        unread = fill.inputs.get("scale_b", fill.inputs["b"])[1]
        assert (unread == 255).all() if unread.dtype == torch.uint8 else unread.double().isnan().all()


def test_groups_that_no_product_can_be():
    for sizes in ((), (4, -1)):
        with pytest.raises(ValueError, match="sizes"):
            MicroscaledGroupedGemm("mxfp8", "mxfp8", sizes, 8, 8)
    with pytest.raises(ValueError, match="K is 7: b has two codes a byte"):
        MicroscaledGroupedGemm("mxfp8", "mxfp4", (4,), 8, 7)
    problem = MicroscaledGroupedGemm("mxfp8", "mxfp8", (4, 3), 8, 8)
    (fill,) = fills(problem, CONTRACT, names=("sums",))
    with pytest.raises(ValueError, match="they must be"):
        dispatch.value(problem, {**fill.inputs, "offsets": torch.tensor([3, 7], dtype=torch.int32)})
