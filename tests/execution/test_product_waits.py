"""Products of wgmma with their commits and waits, and with one of them deleted or moved."""

from __future__ import annotations

from conformance.execution.order.answers import order_answers

WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1,%r2}, %rd1, %rd2, %p1, 1, 1, 0, 0;"
COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT, WAIT_1 = "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;"
USE = "add.f32 %r5, %r5, %r1;"
COPY = "cp.async.cg.shared.global [%r9 + 0], [%rd5 + 0], 0x10;"


def fault(*lines: str) -> str:
    """Returns the faults of the waits in a kernel of ``lines``."""
    (answer,) = (one for one in order_answers("ptx", "\n".join([*lines, "ret;"])) if one.subject == "wait")
    assert not answer.unknown
    return answer.fault


def test_a_product_must_be_waited_for_on_every_path():
    assert not fault(WGMMA, COMMIT, WAIT, USE)
    assert fault(WGMMA, COMMIT) == "nothing waits for wgmma.mma_async at line 1"
    assert fault(WGMMA, COMMIT, "@%p1 bra $L_1;", WAIT, "$L_1:")
    assert fault(WGMMA, COMMIT, WAIT_1)
    assert fault(WGMMA, WAIT)  # it is of no group
    assert not fault("st.shared.b32 [%r3], %r4;")


def test_its_sums_may_be_used_only_then():
    early = fault(WGMMA, COMMIT, USE, WAIT)
    assert early == "line 3: add.f32 uses a sum of wgmma.mma_async at line 1 before the wait for it"
    assert fault(WGMMA, COMMIT, "st.global.b32 [%rd3], %r1;", WAIT)
    assert fault(WGMMA, COMMIT, "mov.b32 %r7, %r1;", "st.global.b32 [%rd3], %r7;", WAIT)
    assert fault(WGMMA, WAIT, USE, COMMIT, WAIT)
    assert not fault(WGMMA, COMMIT, "mov.b32 %r7, %r1;", WAIT, "st.global.b32 [%rd3], %r7;")
    halves = "mov.b32 {%rs1, %rs2}, %r1;"
    assert not fault(WGMMA, COMMIT, halves, "mov.b32 %r7, {%rs1, %rs2};", WAIT, "st.global.b32 [%rd3], %r7;")
    assert fault(WGMMA, COMMIT, halves, "mov.b32 %r7, {%rs2, %rs3};", "st.global.b32 [%rd3], %r7;", WAIT)
    assert fault(WGMMA, COMMIT, halves, "st.global.b16 [%rd3], %rs2;", WAIT)
    assert not fault(WGMMA, COMMIT, "mov.b32 %r1, 0;", USE, WAIT)
    assert not fault(WGMMA, COMMIT, "add.f32 %r5, %r5, %r6;", WAIT)
    assert not fault(WGMMA, USE, COMMIT, WAIT)  # as promoted sums do


def test_waits_count_groups():
    other = WGMMA.replace("%r1,%r2", "%r11,%r12")
    assert not fault(WGMMA, COMMIT, other, COMMIT, WAIT_1, USE, WAIT)
    assert fault(WGMMA, COMMIT, other, COMMIT, WAIT_1, USE.replace("%r1;", "%r11;"), WAIT)
    assert fault(WGMMA, other, COMMIT, WAIT_1, USE, WAIT)


def test_a_loop_that_brings_tiles_waits_for_some_product():
    loop = ["$L_1:", WGMMA, COMMIT, WAIT_1, COPY, "@%p2 bra $L_1;", WAIT]
    assert not fault(*loop)
    assert "its loop never waits for it" in fault(*(line for line in loop if line != WAIT_1))
    assert not fault(*(line for line in loop if line not in (WAIT_1, COPY)))


def test_only_a_loop_without_a_wait_copies_over_operands():
    """Products of many groups in a line may be open while tiles come for others."""
    line = [WGMMA, COMMIT] * 9 + [COPY]
    assert not fault(*line, WAIT)
    assert not fault(*line, "$L_1:", COPY, "@%p2 bra $L_1;", WAIT)
    assert not fault("$L_1:", *line, WAIT, "@%p2 bra $L_1;")
    waiting_elsewhere = ["$L_1:", "@%p3 bra $L_3;", "$L_2:", *line, "@%p2 bra $L_1;", WAIT, "ret;", "$L_3:", WAIT]
    assert not fault(*waiting_elsewhere, "bra $L_2;")
    assert "its loop never waits for it" in fault(*waiting_elsewhere[:-1], "bra $L_2;")
    inner = ["$L_2:", WGMMA, COMMIT, COPY, "@%p2 bra $L_2;"]
    assert "its loop never waits for it" in fault("$L_1:", "mov.b32 %r8, 0;", *inner, WAIT, "@%p3 bra $L_1;")
