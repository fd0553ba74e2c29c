"""Figures that the package and a run have of a device's tensor core, and calibration files that are refused."""

import dataclasses
import json

import pytest

from conformance import targets
from conformance.families.gemm.problem import mm, scaled_mm
from conformance.heuristics.configs import Config
from conformance.kernels import catalogue
from conformance.numerics import measured_units
from conformance.numerics.measured_units import (
    Calibration,
    CalibrationError,
    UnitEvidence,
    evidence,
    known_unit,
    read_calibration,
    use_calibration,
)
from conformance.numerics.sum_order import Unit

HOPPER, ADA, AMD = (targets.find(name) for name in ("sm_90", "sm_89", "gfx942"))
SMALL = Config(32, 32, 64, 2, 4)


@pytest.fixture(autouse=True)
def _forget():
    yield
    measured_units.forget_calibrations()


def measured(operands, products, alignment, result, differing=0, **more):
    entry = UnitEvidence("mma", operands, products, alignment, result, True, False, (), 8, 1000, differing)
    return dataclasses.replace(entry, **more)


def calibration(*units, target="sm_89"):
    return Calibration(target, "NVIDIA L40S", "1", "2", "3", "a test", units)


def test_the_package_proves_hopper_in_every_dtype():
    hopper = evidence()["sm_90"]
    assert all(unit.proven for unit in hopper.units)
    wide = {(unit.instruction, unit.operands): unit.unit for unit in hopper.units}
    for instruction in ("wgmma", "mma"):
        assert wide[instruction, "bf16"] == wide[instruction, "fp16"] == Unit(16, 25, 23)
        assert wide[instruction, "tf32"] == Unit(8, 25, 23)
    for operands in ("e4m3", "e5m2", "e4m3*e5m2", "e5m2*e4m3"):
        assert wide["wgmma", operands] == Unit(32, 13, 13)
        assert wide["mma", operands] == Unit(16, 25, 23, interleaved=True)


def test_evidence_agrees_with_the_contracts():
    """A contract that promises more than was measured would be wrong."""
    for unit in evidence()["sm_90"].units:
        promised = HOPPER.matrix_unit
        bits = promised.fp8_bits if unit.bytes == 1 else promised.alignment_bits
        assert unit.alignment_bits >= bits
        assert unit.products <= promised.products[unit.bytes]


def test_what_is_proven_published_and_unknown():
    assert known_unit(HOPPER, "wgmma", "bf16").proven
    published = known_unit(ADA, "mma", "bf16")
    assert (published.unit, published.proven) == (Unit(8, 24, 23), False)
    assert known_unit(ADA, "mma", "e4m3").unit == Unit(32, 13, 13)
    assert known_unit(AMD, "mfma", "bf16") is None
    assert known_unit(targets.find("sm_120"), "mma", "bf16") is None


def test_what_an_assembler_made_is_proven_by_the_runs_own_calibration_only():
    assert not known_unit(HOPPER, "mma", "e4m3").proven
    assert known_unit(HOPPER, "mma", "e4m3").unit.interleaved
    use_calibration(evidence()["sm_90"], [HOPPER])
    assert known_unit(HOPPER, "mma", "e4m3").proven


def test_a_calibration_proves_its_class_and_enters_the_contracts():
    units = (measured("bf16", 4, 22, 23), measured("fp16", 8, 24, 23), measured("e4m3", 16, 14, 12))
    unproven = measured("tf32", 4, 24, 23, differing=1)
    use_calibration(calibration(*units, unproven), [ADA])
    assert known_unit(ADA, "mma", "bf16") == measured_units.KnownUnit(Unit(4, 22, 23), True)
    assert not known_unit(ADA, "mma", "tf32").proven
    kernel = catalogue.get("mm")
    accumulator = kernel.contract(kernel.plan(mm(40, 40, 40, "fp16"), SMALL, ADA), "device").accumulator
    assert (accumulator.chunk, accumulator.alignment_bits) == (4, 22)
    kernel = catalogue.get("scaled_mm")
    accumulator = kernel.contract(kernel.plan(scaled_mm(48, 48, 96, "e4m3"), SMALL, ADA), "device").accumulator
    assert accumulator.result_bits == 12
    measured_units.forget_calibrations()
    assert not known_unit(ADA, "mma", "bf16").proven
    assert ADA.matrix_unit == targets.ADA


def test_a_calibration_ends_an_assumption_when_every_wide_operand_is_measured():
    units = [measured(name, 8, 25, 23) for name in ("bf16", "fp16", "tf32")]
    assumed = targets.find("sm_120").architecture.unit
    assert calibration(*units[:2]).matrix_unit(assumed).assumed
    assert not calibration(*units).matrix_unit(assumed).assumed


@pytest.mark.parametrize(
    ("devices", "units", "says"),
    [
        ([HOPPER], [measured("bf16", 8, 24, 23)], "measured on sm_89 .NVIDIA L40S., and the devices here are sm_90"),
        ([], [measured("bf16", 8, 24, 23)], "there is no device here"),
        ([ADA], [measured("bf16", 8, 24, 23, differing=3)], "of 1 units none is proven"),
        ([ADA], [], "of 0 units none is proven"),
    ],
)
def test_a_calibration_of_another_device_or_without_a_proof_is_refused(devices, units, says):
    with pytest.raises(CalibrationError, match=says):
        use_calibration(calibration(*units), devices)
    assert not targets.CALIBRATED_UNITS


def test_a_file_is_read_as_it_was_written(tmp_path):
    file = tmp_path / "ada.json"
    written = calibration(measured("bf16", 8, 24, 23, partial=(64, 128)))
    file.write_text(json.dumps(written.to_dict()))
    assert read_calibration(file) == written


def changed(entry, **fields):
    return {**entry, "units": [{**unit, **fields} for unit in entry["units"]]}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda entry: [entry], "this is no calibration"),
        (lambda entry: {**entry, "format": "2"}, "this is no calibration"),
        (lambda entry: {**entry, "more": 1}, "a field is missing or unknown"),
        (lambda entry: {k: v for k, v in entry.items() if k != "units"}, "a field is missing or unknown"),
        (lambda entry: {**entry, "target": 90}, "texts and numbers above 0 are required"),
        (lambda entry: changed(entry, products="8"), "texts and numbers above 0"),
        (lambda entry: changed(entry, alignment_bits=0), "texts and numbers above 0"),
        (lambda entry: changed(entry, operands="fp4"), "operands .'fp4'. are unknown"),
        (lambda entry: changed(entry, result_bits=21), "bf16 sums keep 21 bits and 23 are required"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, change, says):
    file = tmp_path / "ada.json"
    file.write_text(json.dumps(change(calibration(measured("bf16", 8, 24, 23)).to_dict())))
    with pytest.raises(CalibrationError, match=says):
        read_calibration(file)


def test_a_file_that_is_not_there_or_no_json_is_refused(tmp_path):
    with pytest.raises(CalibrationError, match="it cannot be read"):
        read_calibration(tmp_path / "none.json")
    (tmp_path / "text").write_text("not json")
    with pytest.raises(CalibrationError, match="it cannot be read"):
        read_calibration(tmp_path / "text")
