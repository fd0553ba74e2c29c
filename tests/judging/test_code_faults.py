"""Code with faults of the compiler fails a check for each; code without, and code without that stage, fails none."""

from types import SimpleNamespace

import pytest

from conformance.judging.code_faults import fault_verdicts, order_verdicts, unknown_orders
from tests.execution.test_proxy_fences import BARRIER, FENCE, STORE_A, TMA_STORE, ptx
from tests.judging.test_operand_slots import pipelined
from tests.judging.test_repeated_depths import CODE


def artefact_of(folder, text, stage="ttgir"):
    path = folder / f"code.{stage}"
    path.write_text(text)
    return SimpleNamespace(stages={stage: path})


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


@pytest.mark.parametrize(
    "lines", [(STORE_A, FENCE, BARRIER, TMA_STORE), (STORE_A, BARRIER, TMA_STORE)], ids=["right", "wrong"]
)
def test_the_order_of_the_code_has_a_verdict(tmp_path, lines):
    artefact = artefact_of(tmp_path, ptx(*lines), "ptx")
    (verdict,) = (one for one in order_verdicts("vendor_mm", artefact) if one.check == "codegen/order/fence")
    assert verdict.passed == (FENCE in lines)
    assert "in vendor_mm, " in verdict.text
    assert unknown_orders([artefact]) == {}


def test_an_order_that_is_not_known_has_no_verdict(tmp_path):
    artefact = artefact_of(tmp_path, ptx("ld.global.b32 	%r4, [%rd5];", STORE_A, BARRIER, TMA_STORE), "ptx")
    assert "codegen/order/fence" not in {verdict.check for verdict in order_verdicts("vendor_mm", artefact)}
    assert unknown_orders([artefact]).keys() == {"fence"}
    assert not list(order_verdicts("vendor_mm", SimpleNamespace(stages={"ttgir": tmp_path})))
