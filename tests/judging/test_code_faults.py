"""Code with faults of the compiler fails a check for each; code without, and code without that stage, fails none."""

from types import SimpleNamespace

import pytest

from conformance.judging.code_faults import fault_verdicts
from conformance.judging.code_order import order_verdicts, unknown_orders
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


PING_PONG = """k:
	s_setprio 1
	ds_read_b64 v[0:1], v2
	s_waitcnt lgkmcnt(0)
	s_barrier
	s_setprio 0
	s_endpgm
"""
WGMMA = """
	wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r1, %r2}, %rd1, %rd2, p, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	st.global.b32 [%rd3], %r1;
	ret;
"""


@pytest.mark.parametrize(
    ("stage", "right", "wrong", "check"),
    [
        (
            *("amdgcn", PING_PONG, PING_PONG.replace("	s_waitcnt lgkmcnt(0)\n	s_barrier", "	s_barrier")),
            "codegen/lds-across-barrier",
        ),
        ("ptx", WGMMA, WGMMA.replace("	wgmma.wait_group.sync.aligned 0;\n", ""), "codegen/wgmma-wait"),
    ],
)
def test_what_the_assembly_shows(tmp_path, stage, right, wrong, check):
    assert not list(fault_verdicts("vendor_mm", artefact_of(tmp_path, right, stage)))
    (verdict,) = fault_verdicts("vendor_mm", artefact_of(tmp_path, wrong, stage))
    assert (verdict.check, verdict.passed) == (check, False)
    assert "vendor_mm" in verdict.text


def test_open_loads_without_that_schedule_are_left_to_the_gate(tmp_path):
    text = PING_PONG.replace("	s_waitcnt lgkmcnt(0)\n	s_barrier", "	s_barrier").replace(
        "	s_setprio", "	s_sleep"
    )
    assert not list(fault_verdicts("vendor_mm", artefact_of(tmp_path, text, "amdgcn")))


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
