"""The probes find the figures of a simulated unit, and a unit that keeps less than the contract is reported."""

import pytest

from conformance.calibration import FORMATS, Probe, disagreements, measure, report, simulated_unit
from conformance.numerics.contract import Accumulator

HOPPER = Accumulator(alignment_bits=25, result_bits=23, chunk=16)
HOPPER_FP8 = Accumulator(alignment_bits=13, result_bits=13, chunk=32)


@pytest.mark.parametrize(
    ("form", "alignment", "result", "chunk"), [("bf16", 25, 23, 16), ("fp16", 24, 23, 8), ("e4m3", 13, 13, 32)]
)
def test_probes_find_the_figures_of_a_simulated_unit(form, alignment, result, chunk):
    measured = measure(simulated_unit(alignment, result, chunk), FORMATS[form])
    assert (measured.alignment_bits, measured.result_bits, measured.chunk) == (alignment, result, chunk)
    assert measured.truncates
    assert not measured.limited


def test_rounding_to_nearest_is_told_from_truncation():
    assert not measure(simulated_unit(40, 23, 1, truncates=False), FORMATS["bf16"]).truncates


def test_a_unit_that_keeps_what_the_contract_says_agrees():
    assert disagreements(measure(simulated_unit(25, 23, 16), FORMATS["bf16"]), HOPPER) == []
    assert disagreements(measure(simulated_unit(13, 13, 32), FORMATS["e4m3"]), HOPPER_FP8) == []


@pytest.mark.parametrize(
    ("unit", "contract", "says"),
    [
        (simulated_unit(25, 21, 16), HOPPER, "the result keeps 21 bits"),
        (simulated_unit(20, 20, 16), HOPPER, "alignment keeps 20 bits"),
        (simulated_unit(25, 23, 32), HOPPER, "one step holds 32 products"),
        (simulated_unit(11, 11, 32), HOPPER_FP8, "the result keeps 11 bits"),
    ],
)
def test_a_device_that_differs_fails(unit, contract, says):
    lines, agrees = report([Probe("simulated", FORMATS["bf16"], unit, contract)])
    assert not agrees
    assert lines[0].startswith("FAIL")
    assert any(says in line for line in lines), lines
