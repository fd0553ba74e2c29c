"""Code with a fault of the compiler fails two checks; code without, and code without that stage, fails none."""

from types import SimpleNamespace

from conformance.judging.code_faults import fault_verdicts
from tests.judging.test_operand_slots import pipelined
from tests.judging.test_repeated_depths import CODE


def artefact_of(folder, text):
    path = folder / "code.ttgir"
    path.write_text(text)
    return SimpleNamespace(stages={"ttgir": path})


def test_each_fault_has_a_check(tmp_path):
    text = CODE.format(version=2, depth=16, width=8) + pipelined(1, 2, 1)
    verdicts = list(fault_verdicts("vendor_mm", artefact_of(tmp_path, text)))
    assert [(verdict.check, verdict.passed) for verdict in verdicts] == [
        ("codegen/operand-slots", False),
        ("codegen/repeated-k", False),
    ]
    assert "vendor_mm keeps 1 of the tiles %a in shared memory" in verdicts[0].text
    assert "vendor_mm multiplies tiles of 16 k in a layout of kWidth 8" in verdicts[1].text


def test_other_code_has_no_verdict(tmp_path):
    text = CODE.format(version=2, depth=16, width=4) + pipelined(2, 2, 1)
    assert not list(fault_verdicts("vendor_mm", artefact_of(tmp_path, text)))
    assert not list(fault_verdicts("vendor_mm", SimpleNamespace(stages={})))
