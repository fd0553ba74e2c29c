"""The level of proof of a case follows from its verdicts, and is the same for a record and for a comparison."""

from __future__ import annotations

import pytest

from conformance.proof_level import PROOF_LIMIT, ProofCount, ProofLevel, level_by, proof_level, ttgir_was_right
from conformance.records import CaseRecord, Status, Verdict

NUMBERS = ("numerics/transparent", "memory", "grid")
CODE = ("codegen/requires/WGMMA", "resources")
LEVELS = {
    "numbers on a device": ("device", (*NUMBERS, *CODE), ProofLevel.DEVICE),
    "a suite's own check on a device": ("device", ("damage seen",), ProofLevel.DEVICE),
    "a device that ran nothing": ("device", CODE, ProofLevel.COMPILED),
    "a device, and no verdict": ("device", (), ProofLevel.NOTHING),
    "TTGIR": ("ttgir", (*NUMBERS, "executed/ttgir", *CODE), ProofLevel.EXECUTED),
    "TTGIR of one config": ("ttgir", (*NUMBERS, "executed/ttgir@64x64x32-s3-w4"), ProofLevel.EXECUTED),
    "TTGIR that was wrong": ("ttgir", (*NUMBERS, "executed/ttgir/numerics/randn"), ProofLevel.EXECUTED),
    "TTGIR where nothing interprets": ("ttgir", ("executed/ttgir", *CODE), ProofLevel.EXECUTED),
    "only the layouts of TTGIR": ("ttgir", (*NUMBERS, "executed/layouts", *CODE), ProofLevel.INTERPRETED),
    "TTGIR by name only": ("ttgir", (*NUMBERS, *CODE), ProofLevel.INTERPRETED),
    "TTGIR by name, and code": ("ttgir", CODE, ProofLevel.COMPILED),
    "one plan of two by its source": ("interpreter", (*NUMBERS, "executed/ttgir", *CODE), ProofLevel.INTERPRETED),
    "the source": ("interpreter", (*NUMBERS, *CODE), ProofLevel.INTERPRETED),
    "an interpreter that ran nothing": ("interpreter", CODE, ProofLevel.COMPILED),
    "an executor of a later version": ("simulator", (*NUMBERS, *CODE), ProofLevel.COMPILED),
    "code": (None, CODE, ProofLevel.COMPILED),
    "numbers that nothing ran": (None, NUMBERS, ProofLevel.NOTHING),
    "a check of the host": (None, ("refused",), ProofLevel.NOTHING),
    "a kernel that did not compile": (None, ("compile/triton_mm",), ProofLevel.NOTHING),
}


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_rests_on_verdicts(name):
    executor, checks, level = LEVELS[name]
    verdicts = tuple(Verdict(check, True) for check in checks)
    assert level_by(executor, checks) is level
    assert proof_level(CaseRecord("c", "s", Status.PASS, executor=executor, verdicts=verdicts)) is level


def test_a_level_is_at_most_what_its_case_can_be_proven_by():
    def level(executor, **limits):
        observed = {PROOF_LIMIT: {name.replace("_", " "): limit for name, limit in limits.items()}}
        verdicts = (Verdict("template counts", True),)
        return proof_level(CaseRecord("c", "s", Status.PASS, executor=executor, observed=observed, verdicts=verdicts))

    nothing = {"on_a_device": "nothing", "without_a_device": "nothing"}
    assert level("device", **nothing) is level("interpreter", **nothing) is ProofLevel.NOTHING
    assert level("device", without_a_device="nothing") is ProofLevel.DEVICE
    assert level("interpreter", without_a_device="compiled") is ProofLevel.COMPILED
    assert level("device", on_a_device="of a later version") is ProofLevel.DEVICE


def test_what_the_ttgir_showed():
    assert ttgir_was_right(["executed/ttgir", "memory"], []) is True
    assert ttgir_was_right(["executed/ttgir", "executed/ttgir/memory"], ["executed/ttgir/memory"]) is False
    assert ttgir_was_right(["executed/layouts", "memory"], []) is None


def test_only_passes_are_counted_as_proofs():
    def record(status, executor, checks=NUMBERS):
        verdicts = tuple(Verdict(check, True) for check in checks)
        return CaseRecord("c", "s", status, executor=executor, verdicts=verdicts)

    passed = [record(Status.PASS, "interpreter")] * 3 + [record(Status.PASS, None, ("refused",))]
    count = ProofCount([*passed, record(Status.FAIL, "device"), record(Status.EXPECTED_FAIL, "interpreter")])
    interpreted = "interpreter 3 (source only: no compiled code was run)"
    assert str(count) == f"device 0, TTGIR 0, {interpreted}, no kernel 1 (such as choices and refusals)"
    assert (count.total, count[ProofLevel.DEVICE]) == (4, 0)
    device = ProofCount([record(Status.PASS, "device")])
    assert str(device) == "device 1, TTGIR 0, interpreter 0"
    assert device.by_name() == {"device": 1, "TTGIR": 0, "interpreter": 0, "compiled only": 0, "no kernel": 0}


RESERVATIONS = {
    "all on a device": ([4, 4, 0], ""),
    "all by TTGIR, and a refusal": ([3, 3, 0], ""),
    "none by compiled code": ([2, 2, 1, 0], "source only"),
    "code alone": ([1, 0], "compiled only"),
    "no kernel": ([0], "no kernel was run"),
    "nothing passed": ([], ""),
    "some by the source": ([4, 3, 2, 0], "1 of 4 cases source only"),
    "some by the source and some compiled": ([3, 2, 1, 1], "1 of 4 cases source only, 2 of 4 cases compiled only"),
}


@pytest.mark.parametrize("name", RESERVATIONS)
def test_a_result_has_a_reservation_unless_compiled_code_was_run(name):
    levels, text = RESERVATIONS[name]
    by_level = {level: (executor, checks) for executor, checks, level in LEVELS.values()}
    records = [
        CaseRecord("c", "s", Status.PASS, executor=executor, verdicts=tuple(Verdict(check, True) for check in checks))
        for executor, checks in (by_level[ProofLevel(level)] for level in levels)
    ]
    assert ProofCount(records).reservation == text
