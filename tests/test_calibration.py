"""The probes find the figures of a simulated unit, and a unit that keeps less than the contract is reported."""

import pytest

from conformance.calibration.probes import EXPONENTS, UnitProbe, compare, disagreements, measure, merged, prove, text
from conformance.numerics.contract import Accumulator
from tests.simulated_unit import simulated_product, simulated_unit

HOPPER = Accumulator(alignment_bits=25, result_bits=23, chunk=16)
HOPPER_FP8 = Accumulator(alignment_bits=13, result_bits=13, chunk=32)
PROMOTED = Accumulator(alignment_bits=13, result_bits=13, chunk=32, promote=128)


@pytest.mark.parametrize(
    ("form", "alignment", "result", "chunk"), [("bf16", 25, 23, 16), ("fp16", 24, 23, 8), ("e4m3", 13, 13, 32)]
)
def test_probes_find_the_figures_of_a_simulated_unit(form, alignment, result, chunk):
    measured = measure(simulated_unit(alignment, result, chunk), EXPONENTS[form])
    assert (measured.alignment_bits, measured.result_bits, measured.chunk) == (alignment, result, chunk)
    assert measured.truncates
    assert not measured.limited


def test_rounding_to_nearest_is_told_from_truncation():
    assert not measure(simulated_unit(40, 23, 1, truncates=False), EXPONENTS["bf16"]).truncates


def test_a_unit_that_keeps_what_the_contract_says_agrees():
    assert disagreements(measure(simulated_unit(25, 23, 16), EXPONENTS["bf16"]), HOPPER) == []
    assert disagreements(measure(simulated_unit(13, 13, 32), EXPONENTS["e4m3"]), HOPPER_FP8) == []


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
@pytest.mark.parametrize("promote", [None, 32, 64, 128, 256])
def test_probes_find_how_many_products_are_added_before_promotion(promote, form):
    measured = measure(simulated_unit(13, 13, 32, promote=promote), EXPONENTS[form])
    assert measured.promote == promote
    assert (measured.alignment_bits, measured.result_bits, measured.chunk) == (13, 13, 32)
    assert measured.text().endswith("never promoted" if promote is None else f"promoted every {promote}")


def test_a_wide_accumulator_needs_no_promotion():
    measured = measure(simulated_unit(25, 23, 16), EXPONENTS["e4m3"])
    assert measured.promote is None
    assert not measured.narrow
    assert "promoted" not in measured.text()
    assert disagreements(measured, PROMOTED) == []


@pytest.mark.parametrize("unit", [simulated_unit(13, 13, 32, promote=p) for p in (32, 64, 128, [64, 192, 320, 448])])
def test_promotion_as_promised_or_sooner_agrees(unit):
    assert disagreements(measure(unit, EXPONENTS["e4m3"]), PROMOTED) == []


def test_fast_accumulation_needs_no_promotion_and_may_have_one():
    for promote in (None, 128):
        assert disagreements(measure(simulated_unit(13, 13, 32, promote=promote), EXPONENTS["e4m3"]), HOPPER_FP8) == []


LATE_OR_NARROW = [
    (simulated_unit(13, 13, 32), "no promotion to fp32 within 512 products, the contract says one every 128"),
    (simulated_unit(13, 13, 32, promote=256), "up to 256 products are added before promotion to fp32"),
    (simulated_unit(13, 13, 32, promote=[128, 256]), "up to 256 products"),  # the last one is left out
    (simulated_unit(13, 13, 32, promote=[128, 320, 448]), "up to 192 products"),  # one is late
    (simulated_unit(12, 12, 32, promote=128), "the result keeps 12 bits, the contract says 13"),
    (simulated_unit(13, 11, 32, promote=128), "the result keeps 11 bits"),
    (simulated_unit(11, 13, 32, promote=128), "alignment keeps 11 bits"),
]


@pytest.mark.parametrize(
    ("form", "unit", "contract", "says"),
    [
        ("bf16", simulated_unit(25, 21, 16), HOPPER, "the result keeps 21 bits"),
        ("bf16", simulated_unit(20, 20, 16), HOPPER, "alignment keeps 20 bits"),
        ("bf16", simulated_unit(25, 23, 32), HOPPER, "one step holds 32 products"),
        ("bf16", simulated_unit(11, 11, 32), HOPPER_FP8, "the result keeps 11 bits"),
        *((form, unit, PROMOTED, says) for form in ("e4m3", "e5m2") for unit, says in LATE_OR_NARROW),
    ],
)
def test_a_device_that_keeps_less_fails(form, unit, contract, says):
    lines, _, agrees = compare(UnitProbe("simulated", EXPONENTS[form], unit, contract))
    assert not agrees
    assert lines[0].startswith("FAIL")
    assert any(says in line for line in lines), lines


UNITS = [
    ("bf16", {"alignment_bits": 25, "result_bits": 23, "chunk": 16}),
    ("fp16", {"alignment_bits": 24, "result_bits": 23, "chunk": 8}),
    ("tf32", {"alignment_bits": 24, "result_bits": 23, "chunk": 4}),
    ("bf16", {"alignment_bits": 27, "result_bits": 23, "chunk": 16, "truncates": False}),
    ("e4m3", {"alignment_bits": 13, "result_bits": 13, "chunk": 32}),
    ("e4m3", {"alignment_bits": 13, "result_bits": 13, "chunk": 32, "promote": 128}),
    ("e5m2", {"alignment_bits": 14, "result_bits": 12, "chunk": 16, "promote": 64}),
    ("e4m3", {"alignment_bits": 25, "result_bits": 23, "chunk": 32}),
]
SMALL = (3, 4, 160)


@pytest.mark.parametrize(("form", "figures"), UNITS, ids=str)
def test_the_model_of_a_unit_that_was_measured_is_proven_in_every_bit(form, figures):
    unit = simulated_unit(**figures)
    measured = measure(unit, EXPONENTS[form])
    evidence = prove(simulated_product(unit), measured, (form, form), SMALL, "simulated")
    assert evidence.proven
    assert evidence.elements == 8 * 3 * 4
    assert (evidence.products, evidence.alignment_bits) == (figures["chunk"], figures["alignment_bits"])
    assert (evidence.result_bits, evidence.truncates) == (figures["result_bits"], figures.get("truncates", True))
    assert evidence.partial == ((figures["promote"],) if "promote" in figures else ())
    assert text(evidence) == "model proven: all bits of 96 elements"


def test_a_unit_that_does_not_follow_the_rule_is_not_proven():
    """A unit that sums otherwise than it showed to the probes is caught."""
    plain, odd = simulated_unit(25, 23, 16), simulated_unit(25, 23, 8)
    measured = measure(plain, EXPONENTS["bf16"])
    evidence = prove(simulated_product(odd), measured, ("bf16", "bf16"), SMALL, "simulated")
    assert not evidence.proven
    assert evidence.differing > 0
    assert text(evidence).startswith(f"model not proven: {evidence.differing} of 96 elements")


def test_evidence_of_promoted_and_fast_sums_proves_one_unit_unless_they_contradict():
    def evidence(alignment, promote):
        unit = simulated_unit(alignment, 13, 32, promote=promote)
        measured = measure(unit, EXPONENTS["e4m3"])
        return prove(simulated_product(unit), measured, ("e4m3", "e4m3"), SMALL, "simulated", runs=1)

    (unit,) = merged([evidence(13, None), evidence(13, 64), evidence(13, 128)])
    assert unit.proven
    assert (unit.partial, unit.runs, unit.elements) == ((64, 128), 6, 72)
    (unit,) = merged([evidence(13, None), evidence(14, 64)])
    assert not unit.proven
