"""The formats e4m3fnuz and e5m2fnuz: every code, decoded here from its bits, against torch and against rounding."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES, FNUZ

#: fraction bits
FRACTION = {"e4m3fnuz": 3, "e5m2fnuz": 2}
CODES = np.arange(256)


def meaning(name):
    """Returns the value of each of the 256 codes in fp64: 0x80 is NaN, and the bias is half the number of exponents."""
    fraction_bits = FRACTION[name]
    bias = 2 ** (6 - fraction_bits)
    values = []
    for code in range(256):
        field, fraction = (code & 0x7F) >> fraction_bits, code & (2**fraction_bits - 1)
        size = math.ldexp(fraction + 2**fraction_bits * (field > 0), max(field, 1) - bias - fraction_bits)
        values.append(math.nan if code == 0x80 else math.copysign(size, -1.0 if code & 0x80 else 1.0))
    return np.array(values)


def rounded(values, name, **options):
    """The codes, 0 to 255, of ``values`` rounded to the format."""
    return bits(round_to(torch.as_tensor(values, dtype=torch.float64), name, **options)).numpy().astype(np.int64) % 256


def check_every_code(name):
    """Raises AssertionError unless the package's own format has each code of :func:`meaning`, and all that lies between
    two is rounded to the nearest. The largest, smallest and special values are checked, too."""
    values, form = meaning(name), FORMATS[name]
    np.testing.assert_array_equal(rounded(values, name), CODES)
    positive = values[:0x80]
    middle, even = (positive[1:] + positive[:-1]) / 2, CODES[:0x7F] + CODES[:0x7F] % 2
    for x, expected in (
        (middle, even),
        (np.nextafter(middle, -np.inf), CODES[:0x7F]),
        (np.nextafter(middle, np.inf), CODES[1:0x80]),
        (np.nextafter(positive, np.inf), CODES[:0x80]),
    ):
        np.testing.assert_array_equal(rounded(x, name), expected)
        np.testing.assert_array_equal(rounded(-x, name), np.where(expected == 0, 0, expected | 0x80))
    assert rounded([0.0, -0.0, -1e-300, math.nan, -math.nan], name).tolist() == [0, 0, 0, 0x80, 0x80]
    past = [positive[-1] * 1.5, 1e300, math.inf]
    past += [-value for value in past]
    for rule in ("ieee", "nan"):
        assert rounded(past, name, overflow=rule).tolist() == [0x80] * 6
    assert rounded(past, name, overflow="saturate").tolist() == [0x7F] * 3 + [0xFF] * 3
    assert (form.largest, form.smallest_subnormal) == (positive[-1], positive[1])
    assert form.smallest_normal == positive[2 ** FRACTION[name]]
    assert 2.0**form.max_exponent <= form.largest < 2.0 ** (form.max_exponent + 1)
    assert not form.signed_zero


@pytest.mark.parametrize("name", FNUZ)
def test_every_code_is_what_torch_says(name):
    stored = torch.arange(256, dtype=torch.uint8).view(DTYPES[name])
    for dtype in (torch.float64, torch.float32):
        np.testing.assert_array_equal(stored.to(dtype).double().numpy(), meaning(name))
    again = torch.from_numpy(meaning(name)).float().to(DTYPES[name]).view(torch.uint8)
    np.testing.assert_array_equal(again.numpy(), CODES)


@pytest.mark.parametrize("name", FNUZ)
def test_every_code_midpoint_and_neighbour(name):
    check_every_code(name)


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


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in FNUZ and FORMATS[name].lowest is None])
def test_other_formats_keep_the_sign_of_zero(name):
    zeros = round_to(torch.tensor([-0.0, -1e-320 if name == "fp64" else -1e-300], dtype=torch.float64), name)
    assert FORMATS[name].signed_zero
    assert torch.signbit(zeros.double()).all()
    assert 2.0 ** FORMATS[name].max_exponent <= FORMATS[name].largest < 2.0 ** FORMATS[name].max_exponent * 2
