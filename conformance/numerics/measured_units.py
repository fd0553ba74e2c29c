"""Measurements of tensor cores: evidence in the package, and files that ``conformance calibrate`` writes.

A unit is proven for a class of devices if its model gave every bit of random products on one of them. The file
``data/tensor_cores.json`` holds the evidence of the package; a file for ``--calibration`` has the form of one of its
entries. This module starts without torch.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from conformance import targets
from conformance.numerics.sum_order import Unit
from conformance.plain_json import parsed
from conformance.records import refuse_more_than
from conformance.targets import MatrixUnit, Target

FORMAT = "conformance-calibration/1"
#: Bytes of a calibration that are read. One has a few hundred for each unit.
FILE_LIMIT = 1 << 20
#: Operands of two bytes and of four whose sums are kept in fp32, and those of one byte.
WIDE = ("bf16", "fp16", "tf32")
#: Bytes of an operand as it is stored.
BYTES = {"bf16": 2, "fp16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "e4m3fnuz": 1, "e5m2fnuz": 1}


def operand_bytes(operands: str) -> int:
    """Bytes of each of the ``operands``, as :class:`UnitEvidence` names them."""
    return BYTES[operands.partition("*")[0]]


class CalibrationError(ValueError):
    """A calibration file that cannot be used; the message says why."""


@dataclass(frozen=True)
class UnitEvidence:
    """The measurements of one instruction with operands of one kind: "bf16", "e4m3", or "e4m3*e5m2" for two.

    ``products`` to ``interleaved``: the figures of :class:`~conformance.numerics.sum_order.Unit`. ``partial``: k after
    which the kernel's code added the unit's sum to an fp32 sum, in the runs that measured it; empty for never. Of
    ``elements`` elements in ``runs`` random products, ``differing`` had other bits than the model.
    """

    instruction: str
    operands: str
    products: int
    alignment_bits: int
    result_bits: int
    truncates: bool
    interleaved: bool
    partial: tuple[int, ...]
    runs: int
    elements: int
    differing: int

    @property
    def proven(self) -> bool:
        """True if the model gave every bit, of at least one element."""
        return self.elements > 0 and self.differing == 0

    @property
    def bytes(self) -> int:
        """Bytes of an operand."""
        return operand_bytes(self.operands)

    @property
    def unit(self) -> Unit:
        """The figures."""
        return Unit(self.products, self.alignment_bits, self.result_bits, self.truncates, self.interleaved)


@dataclass(frozen=True)
class Calibration:
    """The evidence of one class of devices. ``target`` is its id, such as "sm_90"; ``device``, ``driver``, ``torch``
    and ``triton`` are those that it was measured with; ``source`` is where it comes from."""

    target: str
    device: str
    driver: str
    torch: str
    triton: str
    source: str
    units: tuple[UnitEvidence, ...]

    def unit(self, instruction: str, operands: str) -> UnitEvidence | None:
        """Returns the evidence about ``operands`` of ``instruction``; None if they were not measured."""
        return next((u for u in self.units if (u.instruction, u.operands) == (instruction, operands)), None)

    def matrix_unit(self, assumed: MatrixUnit) -> MatrixUnit:
        """Returns the figures that error bounds are computed from: those with the widest bound, of the measured ones of
        each size of operand. What was not measured is taken from ``assumed``."""
        proven = [unit for unit in self.units if unit.proven]
        wide = [unit for unit in proven if unit.operands in WIDE]
        narrow = [unit for unit in proven if unit.operands not in WIDE]
        if not wide:
            return assumed
        steps: dict[int, int] = {}
        for unit in proven:
            steps[unit.bytes] = min(unit.products, steps.get(unit.bytes, unit.products))
        fp8_bits = min((min(u.alignment_bits, u.result_bits) for u in narrow), default=assumed.fp8_bits)
        return replace(
            assumed,
            alignment_bits=min(unit.alignment_bits for unit in wide),
            products={**assumed.products, **steps},
            fp8_bits=None if fp8_bits is None or fp8_bits >= 23 else fp8_bits,
            assumed=assumed.assumed and len(wide) < len(WIDE),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the form of the file."""
        return {"format": FORMAT, **asdict(self)}


def from_dict(entry: Mapping[str, Any]) -> Calibration:
    """Returns the calibration in ``entry``. Raises CalibrationError for another form, or for a wide unit that keeps
    fewer bits than fp32, which no contract can say."""
    if not isinstance(entry, Mapping) or entry.get("format") != FORMAT:
        raise CalibrationError("this is no calibration; 'conformance calibrate --output FILE' writes one")
    fields = {name: value for name, value in entry.items() if name != "format"}
    try:
        units = [UnitEvidence(**{**unit, "partial": tuple(unit["partial"])}) for unit in fields.pop("units")]
        calibration = Calibration(**fields, units=tuple(units))
        texts = [getattr(calibration, name) for name in fields]
        numbers = [value for unit in units for value in (unit.products, unit.alignment_bits, unit.result_bits)]
    except (KeyError, TypeError) as error:
        raise CalibrationError(f"a field is missing or unknown: {error}") from None
    if not all(isinstance(text, str) for text in texts) or not all(isinstance(n, int) and n > 0 for n in numbers):
        raise CalibrationError("texts and numbers above 0 are required")
    for unit in units:
        if unknown := set(unit.operands.split("*")) - set(BYTES):
            raise CalibrationError(f"operands {sorted(unknown)} are unknown: use {', '.join(BYTES)}")
        if unit.operands in WIDE and unit.result_bits < 23:
            raise CalibrationError(
                f"{unit.operands} sums keep {unit.result_bits} bits and 23 are required: "
                "'conformance calibrate' says what the device lacks"
            )
    return calibration


def read_calibration(path: Path) -> Calibration:
    """Returns the calibration in the file ``path``. Raises CalibrationError if it cannot be read or has another
    form."""
    try:
        refuse_more_than(FILE_LIMIT, path)
        entry = parsed(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CalibrationError(f"it cannot be read: {error}") from None
    return from_dict(entry)


@functools.cache
def evidence() -> Mapping[str, Calibration]:
    """Returns the evidence in the package, by target id."""
    entries = json.loads(files("conformance.data").joinpath("tensor_cores.json").read_text(encoding="utf-8"))
    return {entry["target"]: from_dict(entry) for entry in entries}


#: The calibrations that this run was given, by target id.
_GIVEN: dict[str, Calibration] = {}


def use_calibration(calibration: Calibration, run_on: Sequence[Target]) -> None:
    """From now on, contracts and proofs of the calibration's class of devices are as its proven units say.

    Raises CalibrationError unless one of the devices ``run_on`` is of that class, or if no unit is proven.
    """
    classes = sorted({target.id for target in run_on})
    if calibration.target not in classes:
        present = f"the devices here are {', '.join(classes)}" if classes else "there is no device here"
        raise CalibrationError(f"it was measured on {calibration.target} ({calibration.device}), and {present}")
    if not any(unit.proven for unit in calibration.units):
        raise CalibrationError(f"of {len(calibration.units)} units none is proven: nothing would follow from it")
    _GIVEN[calibration.target] = calibration
    assumed = next(target for target in run_on if target.id == calibration.target).architecture.unit
    targets.CALIBRATED_UNITS[calibration.target] = calibration.matrix_unit(assumed)


def forget_calibrations() -> None:
    """Contracts and proofs are those of the package again."""
    for target in _GIVEN:
        targets.CALIBRATED_UNITS.pop(target, None)
    _GIVEN.clear()


@dataclass(frozen=True)
class KnownUnit:
    """Figures of a unit, and whether they are ``proven`` for its class of devices."""

    unit: Unit
    proven: bool


def known_unit(target: Target, instruction: str, operands: str) -> KnownUnit | None:
    """Returns the known figures of ``instruction`` with ``operands`` on ``target``: proven by the run's calibration or
    by the package, else as published; None if they are not published.

    Interleaved steps are those of an instruction that the assembler makes of others. What the package measured with one
    assembler proves nothing of another: only the run's own calibration does.
    """
    for source in (_GIVEN, evidence()):
        measured = source[target.id].unit(instruction, operands) if target.id in source else None
        if measured is not None and measured.proven:
            return KnownUnit(measured.unit, proven=source is _GIVEN or not measured.interleaved)
    unit = target.matrix_unit
    if unit.assumed or target.vendor != "nvidia" or instruction not in ("mma", "wgmma", "tcgen05"):
        return None
    size = operand_bytes(operands)
    if size == 1 and unit.fp8_bits is not None:
        return KnownUnit(Unit(32, unit.fp8_bits, unit.fp8_bits), proven=False)
    return KnownUnit(Unit(unit.products[size], unit.alignment_bits, 23), proven=False)
