"""Rounding against tables of every value of the narrow formats, decoded here from the bit patterns."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES, FNUZ

# exponent bits, fraction bits, codes of the largest finite value and of NaN
NARROW = {
    "e4m3": (4, 3, 0x7E, 0x7F),
    "e5m2": (5, 2, 0x7B, 0x7E),
    "fp16": (5, 10, 0x7BFF, 0x7E00),
    "bf16": (8, 7, 0x7F7F, 0x7FC0),
    "e4m3fnuz": (4, 3, 0x7F, 0x80),
    "e5m2fnuz": (5, 2, 0x7F, 0x80),
}


def decoded(name):
    """Returns all finite values >= 0 in the order of their codes, exact in fp64."""
    exponent_bits, fraction_bits, largest, _ = NARROW[name]
    bias = 2 ** (exponent_bits - 1) - (name not in FNUZ)
    values = []
    for code in range(largest + 1):
        field, fraction = code >> fraction_bits, code & (2**fraction_bits - 1)
        values.append(math.ldexp(fraction + 2**fraction_bits * (field > 0), max(field, 1) - bias - fraction_bits))
    return np.array(values)


def codes(x, name, **options):
    width = FORMATS[name].width
    return bits(round_to(torch.as_tensor(x, dtype=torch.float64), name, **options)).numpy().astype(np.int64) % 2**width


def check_every_code(name):
    """Raises AssertionError unless all values, and those between two, are rounded to the nearest code, also past the
    largest finite value by each rule. The format's figures must be those of :func:`decoded`."""
    values, form, nan = decoded(name), FORMATS[name], NARROW[name][3]
    code = np.arange(len(values))
    sign = 1 << (form.width - 1)
    middle = (values[1:] + values[:-1]) / 2
    even = code[:-1] + code[:-1] % 2
    for x, expected in (
        (values, code),
        (middle, even),
        (np.nextafter(middle, -np.inf), code[:-1]),
        (np.nextafter(middle, np.inf), code[1:]),
        (np.nextafter(values[1:], -np.inf), code[1:]),
        (np.nextafter(values, np.inf), code),
    ):
        np.testing.assert_array_equal(codes(x, name), expected)
        np.testing.assert_array_equal(codes(-x, name), np.where((expected == 0) & (name in FNUZ), 0, expected | sign))
    top, tie = len(values) - 1, values[-1] + (values[-1] - values[-2]) / 2
    past = [np.nextafter(tie, np.inf), values[-1] * 2, 1e300, np.inf]
    # the tie goes to the even code: down where the largest code is even, past the range where it is odd
    assert codes([tie], name, overflow="saturate")[0] == top
    assert (codes([tie], name, overflow="ieee")[0] == top) == (top % 2 == 0)
    assert (codes([np.nextafter(tie, 0)], name) == top).all()
    infinity = nan if name == "e4m3" or name in FNUZ else top + 1
    for way, minus in ((1, 0), (-1, sign)):
        for rule, expected in (("saturate", top | minus), ("ieee", infinity | minus), ("nan", nan | minus)):
            assert (codes(way * np.array(past), name, overflow=rule) == expected).all()
            assert codes([math.copysign(math.nan, way)], name, overflow=rule)[0] == nan | minus
    assert (form.largest, form.smallest_subnormal) == (values[-1], values[1])
    assert form.smallest_normal == values[2 ** NARROW[name][1]]


@pytest.mark.parametrize("name", NARROW)
def test_every_code_midpoint_neighbour_and_overflow(name):
    check_every_code(name)
    values = torch.from_numpy(decoded(name))
    assert torch.equal(round_to(values, name).to(torch.float64), values)
    assert torch.equal(round_to(-values, name).to(torch.float64), -values)
    assert math.isnan(float(round_to(torch.tensor([math.nan], dtype=torch.float64), name).float()[0]))


@pytest.mark.parametrize("name", FNUZ)
@pytest.mark.parametrize("fault", ["bias one too small", "bias one too large", "0x80 is -0", "NaN is 0x7F"])
def test_a_wrong_format_is_seen(name, fault, monkeypatch):
    form = FORMATS[name]
    wrong = {
        "bias one too small": {"emin": form.emin + 1, "largest": form.largest * 2},
        "bias one too large": {"emin": form.emin - 1, "largest": form.largest / 2},
        "0x80 is -0": {"signed_zero": True},
        "NaN is 0x7F": {"nan": 0x7F},
    }[fault]
    monkeypatch.setitem(FORMATS, name, dataclasses.replace(form, **wrong))
    with pytest.raises(AssertionError):
        check_every_code(name)


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].lowest is None])
def test_the_sign_of_zero_and_the_largest_exponent(name):
    zeros = round_to(torch.tensor([-0.0, -1e-320 if name == "fp64" else -1e-300], dtype=torch.float64), name)
    assert FORMATS[name].signed_zero == (name not in FNUZ)
    assert (torch.signbit(zeros.double()) == FORMATS[name].signed_zero).all()
    assert 2.0 ** FORMATS[name].max_exponent <= FORMATS[name].largest < 2.0 ** FORMATS[name].max_exponent * 2


def test_fp32_against_numpy():
    patterns = np.random.PCG64(5).random_raw(200_000)
    x = np.concatenate([patterns.view(np.float64), np.ldexp(1 + patterns / 2.0**64, np.arange(200_000) % 300 - 152)])
    # fp32 midpoints, subnormal ones included
    single = (patterns >> np.uint64(33)).astype(np.uint32).view(np.float32)
    single = single[np.isfinite(single)].astype(np.float64)
    after = np.nextafter(single.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    middle = ((single + after) / 2)[np.isfinite(after)]
    x = np.concatenate([x, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), [0.0, -0.0, np.inf, -np.inf]])
    with np.errstate(all="ignore"):
        expected = x.astype(np.float32)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(codes(x, "fp32")[numbers], expected.view(np.uint32)[numbers])
    assert np.isnan(round_to(torch.from_numpy(x), "fp32").numpy()[~numbers]).all()


def test_tf32_against_fractions():
    x = np.ldexp(1 + np.random.PCG64(7).random_raw(500) / 2.0**64, np.arange(500) % 250 - 140)
    x = np.concatenate([x, [1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-137, 3 * 2.0**-137]])
    for value, rounded in zip(x, round_to(torch.from_numpy(x), "tf32").tolist(), strict=True):
        quantum = Fraction(2) ** (max(math.frexp(value)[1] - 1, -126) - 10)
        assert Fraction(rounded) == round(Fraction(value) / quantum) * quantum  # Fraction rounds half to even


def test_shapes_strides_and_fp64():
    x = torch.randn(5, 7, dtype=torch.float64).T
    assert torch.equal(round_to(x, "bf16"), round_to(x.contiguous(), "bf16"))
    assert torch.equal(round_to(x, "fp64"), x)
    assert round_to(torch.zeros(0, 3, dtype=torch.float64), "e5m2").shape == (0, 3)
    assert {name: round_to(x.sign().abs(), name).dtype for name in DTYPES} == DTYPES


@pytest.mark.parametrize(
    ("name", "lowest", "largest"), [("int8", -128, 127), ("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1)]
)
def test_integers_of_the_range_and_nothing_else(name, lowest, largest):
    inside = torch.tensor([lowest, 0, 1, largest], dtype=torch.float64)
    assert round_to(inside, name).tolist() == [lowest, 0, 1, largest]
    assert not bits(round_to(inside, name)).dtype.is_floating_point
    for outside in (lowest - 1, largest + 1, 0.5, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"only integers from {lowest} to {largest}"):
            round_to(torch.tensor([1, outside], dtype=torch.float64), name)
    form = FORMATS[name]
    assert (form.largest, form.lowest, 2**form.significand - 1) == (largest, lowest, largest)
    assert 2**form.max_exponent <= largest < 2 ** (form.max_exponent + 1)


def test_bad_arguments():
    x = torch.zeros(1, dtype=torch.float64)
    with pytest.raises(TypeError, match="from fp64"):
        round_to(x.float(), "fp16")
    with pytest.raises(ValueError, match="'fp12' is unknown"):
        round_to(x, "fp12")
    with pytest.raises(ValueError, match="'wrap' is unknown"):
        round_to(x, "fp16", overflow="wrap")
