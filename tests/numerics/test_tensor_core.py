"""The model of a tensor core gives the bits that the rule in fractions gives."""

from fractions import Fraction

import pytest
import torch

from conformance.numerics.rounding import FORMATS, round_to
from conformance.numerics.sum_order import Unit
from conformance.numerics.tensor_core import AT_ONCE, Factors, fused_multiply_add, sum_products
from tests.numerics.scalar_tensor_core import scalar_sum

HOPPER, HOPPER_FP8 = Unit(16, 25, 23), Unit(32, 13, 13)
UNITS = [
    ("bf16", HOPPER),
    ("fp16", Unit(8, 24, 23)),
    ("tf32", Unit(8, 25, 23)),
    ("e4m3", HOPPER_FP8),
    ("e5m2", Unit(16, 14, 12, truncates=False)),
    ("fp16", Unit(4, 30, 23, truncates=False)),
]


def operand(form, generator, shape, low, high):
    """Values with exponents from ``low`` to ``high`` and every seventh a zero."""
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    values = torch.ldexp(values, torch.randint(low, high + 1, shape, generator=generator))
    values = torch.where(torch.rand(shape, generator=generator) < 1 / 7, 0.0, values)
    return round_to(values, form, overflow="saturate").double()


def fractions(row):
    return [Fraction(value) for value in row.tolist()]


def expected(a, b, form, unit, total=None):
    return [
        [
            float(scalar_sum(fractions(row), fractions(column), unit, FORMATS[form].emin, start))
            for column, start in zip(b.t(), starts, strict=True)
        ]
        for row, starts in zip(a, total or [[Fraction(0)] * b.shape[1]] * len(a), strict=True)
    ]


@pytest.mark.parametrize("depth", [1, 8, 37, 70])
@pytest.mark.parametrize(("form", "unit"), UNITS, ids=str)
def test_every_bit_is_that_of_the_rule_in_fractions(form, unit, depth):
    generator = torch.Generator().manual_seed(depth)
    for low, high in ((0, 0), (-6, 6), (FORMATS[form].emin - 3, FORMATS[form].emin + 2)):  # the last: subnormals
        a, b = operand(form, generator, (3, depth), low, high), operand(form, generator, (depth, 3), low, high)
        assert sum_products(unit, Factors(a, b, form, form)).tolist() == expected(a, b, form, unit)


def test_a_sum_goes_on_from_another():
    generator = torch.Generator().manual_seed(1)
    a, b = operand("bf16", generator, (3, 40), -4, 4), operand("bf16", generator, (40, 3), -4, 4)
    start = torch.randn(3, 3, generator=generator).double()
    right = expected(a, b, "bf16", HOPPER, [fractions(row) for row in start])
    assert sum_products(HOPPER, Factors(a, b, "bf16", "bf16"), start).tolist() == right


def test_results_below_fp32s_normal_numbers_end_at_its_last_bit():
    generator = torch.Generator().manual_seed(2)
    a, b = operand("bf16", generator, (6, 40), -75, -66), operand("bf16", generator, (40, 6), -75, -66)
    out = sum_products(HOPPER, Factors(a, b, "bf16", "bf16"))
    assert out.tolist() == expected(a, b, "bf16", HOPPER)
    assert 0 < out.abs().min() < 2.0**-126
    assert torch.equal(out, out.float().double())


@pytest.mark.parametrize("at_once", [1, 24, 1 << 20])
def test_how_many_products_are_held_at_once_changes_no_bit(monkeypatch, at_once):
    monkeypatch.setitem(AT_ONCE, "cpu", at_once)
    generator = torch.Generator().manual_seed(3)
    a, b = operand("fp16", generator, (3, 50), -3, 3), operand("fp16", generator, (50, 4), -3, 3)
    assert sum_products(HOPPER, Factors(a, b, "fp16", "fp16")).tolist() == expected(a, b, "fp16", HOPPER)


@pytest.mark.parametrize("depth", [3, 32, 50])
def test_steps_that_share_their_k_take_every_other_pair(depth):
    unit = Unit(16, 25, 23, interleaved=True)
    generator = torch.Generator().manual_seed(4)
    a, b = operand("e4m3", generator, (3, depth), -3, 3), operand("e4m3", generator, (depth, 4), -3, 3)
    order = []
    for start in range(0, depth, 32):
        k = range(start, start + 32)
        order += [i for i in k if i % 4 < 2] + [i for i in k if i % 4 >= 2]
    zeros = torch.zeros(3, 32, dtype=torch.float64)
    wide_a, wide_b = torch.cat([a, zeros], 1)[:, order], torch.cat([b, zeros.new_zeros(32, 4)], 0)[order]
    out = sum_products(unit, Factors(a, b, "e4m3", "e4m3"))
    assert out.tolist() == expected(wide_a, wide_b, "e4m3", HOPPER)


def test_an_empty_product_is_zero():
    a, b = torch.zeros(0, 5, dtype=torch.float64), torch.zeros(5, 3, dtype=torch.float64)
    assert sum_products(HOPPER, Factors(a, b, "bf16", "bf16")).shape == (0, 3)
    assert sum_products(HOPPER, Factors(b[:3, :0], b[:0], "bf16", "bf16")).tolist() == [[0.0] * 3] * 3


def test_operands_and_figures_that_fp64_cannot_sum_exactly_are_refused():
    values = torch.zeros(2, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="operands of fp32"):
        sum_products(HOPPER, Factors(values, values, "fp32", "fp32"))
    for figures in ((16, 47, 23), (16, 25, 24), (0, 25, 23)):
        with pytest.raises(ValueError, match="sums below 2"):
            Unit(*figures)


def fp32(value):
    """A fraction rounded once to fp32, to nearest even."""
    if not value:
        return 0.0
    power = abs(value).numerator.bit_length() - value.denominator.bit_length()
    power = power if Fraction(2) ** power <= abs(value) else power - 1
    unit = Fraction(2) ** max(power - 23, -149)
    return float(round(value / unit) * unit)


def test_a_fused_multiply_add_rounds_once():
    generator = torch.Generator().manual_seed(5)
    a, b, c = (torch.randn(4000, generator=generator) for _ in range(3))
    c = torch.where(torch.arange(4000) % 3 == 0, -(a * b), c)  # what cancels shows the second rounding
    scale = 2.0 ** torch.randint(-30, 31, (4000,), generator=generator).float()
    c = torch.where(torch.arange(4000) % 3 == 1, c * scale, c)
    # halfway between two fp32 numbers but for a bit far below: rounding twice is wrong
    a[0], b[0], c[0] = 1 + 2.0**-12, 2.0**-24 + 2.0**-36, 1.0
    a[1], b[1], c[1] = 1 + 2.0**-23, 2.0**-24, 1 + 2.0**-23
    right = [
        fp32(Fraction(x) * Fraction(y) + Fraction(z))
        for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    ]
    assert fused_multiply_add(a, b, c).tolist() == right
    assert ((a * b + c) != torch.tensor(right)).any()
