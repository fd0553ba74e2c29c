"""Reads through the asynchronous proxy, with the fence that they need, and with it deleted, moved or without effect."""

from __future__ import annotations

import pytest

from conformance.execution.order.answers import order_answers

#: 128 threads; %r4 and %r5 are the thread's 16 bytes of the first 2 KiB of tile A and of tile B.
HEAD = """
.visible .entry k()
.reqntid 128
{
	mov.u32 	%r1, %tid.x;
	shl.b32 	%r2, %r1, 4;
	mov.b32 	%r3, global_smem;
	add.s32 	%r4, %r3, %r2;
	add.s32 	%r5, %r4, 8192;
	add.s32 	%r6, %r3, 8192;
	bfe.u32 	%r7, %r3, 4, 14;
	bfe.u32 	%r8, %r6, 4, 14;
	cvt.u64.u32 	%rd1, %r7;
	cvt.u64.u32 	%rd2, %r8;
	or.b64 	%rd3, %rd1, 4611686293305294848;
	or.b64 	%rd4, %rd2, 4611686293305294848;
"""
FENCE = "fence.proxy.async.shared::cta;"
BARRIER = "bar.sync 	0;"
STORE_A = "st.shared.v4.b32 [%r4 + 0], {%r20, %r21, %r22, %r23};"
STORE_B = "st.shared.v4.b32 [%r5 + 0], {%r20, %r21, %r22, %r23};"
WGMMA = """wgmma.fence.sync.aligned;
	wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%r30, %r31}, %rd3, %rd4, %p1, 1, 1, 0, 0;
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;"""
#: A lies in registers, which ldmatrix has read from tile A.
WGMMA_OF_B = WGMMA.replace("%rd3, %rd4, %p1, 1, 1, 0, 0", "{%r20, %r21, %r22, %r23}, %rd4, %p1, 1, 1, 0")
TCGEN05 = "@%p9 tcgen05.mma.cta_group::1.kind::f16 [ %r9 + 0 ], %rd3, %rd4, %r10, %p1;"
TCGEN05_OF_B = TCGEN05.replace("%rd3", "[ %r11 + 0 ]")
M128_N64 = "mov.b32 	%r10, 135266448;"
TMA_STORE = "@%p9 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd9, {%r40, %r41}], [%r3];"
TMA_LOAD = (
    "@%p9 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%rd9, {%r40, %r41}], [%r12];"
)


def ptx(*lines: str) -> str:
    return HEAD + "".join(f"\t{line}\n" if not line.startswith("$") else f"{line}\n" for line in lines) + "\tret;\n}\n"


def fence(*lines: str):
    """The answer about fences in a kernel of ``lines``."""
    return next(answer for answer in order_answers("ptx", ptx(*lines)) if answer.subject == "fence")


def is_fault(answer) -> bool:
    assert not answer.unknown
    return bool(answer.fault)


@pytest.mark.parametrize(
    ("read", "write"),
    [
        (WGMMA, STORE_A),
        (WGMMA, STORE_B),
        (WGMMA_OF_B, STORE_B),
        (TCGEN05, STORE_A),
        (TCGEN05_OF_B, STORE_B),
        (TCGEN05, STORE_A.replace("st.shared", "st.shared::cta")),
        (TCGEN05, "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {%r20, %r21, %r22, %r23};"),
        (TMA_STORE, STORE_A),
        (TMA_STORE.replace("cp.async", "cp.reduce.async").replace("cta.bulk", "cta.add.bulk"), STORE_A),
        ("@%p9 cp.async.bulk.global.shared::cta.bulk_group [%rd9], [%r3], 8192;", STORE_A),
        ("tcgen05.cp.cta_group::1.warpx4.32x128b [%r9], %rd3;", STORE_A),
        ("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r9], %rd3, %rd4, %r10, [%r11], [%r12], %p1;", STORE_A),
    ],
)
def test_every_read_needs_a_fence_after_every_kind_of_write(read, write):
    assert not is_fault(fence(M128_N64, write, FENCE, BARRIER, read))
    assert not is_fault(fence(M128_N64, write, BARRIER, FENCE, read))
    assert not is_fault(fence(M128_N64, write, BARRIER, "fence.proxy.async;", read))
    for without in ((write, BARRIER, read), (FENCE, write, BARRIER, read), (write, BARRIER, read, FENCE)):
        assert is_fault(fence(M128_N64, *without))
    for other in ("fence.proxy.async.global;", "fence.proxy.tensormap::generic.acquire.gpu [%rd9], 128;"):
        assert is_fault(fence(M128_N64, write, other, BARRIER, read))


@pytest.mark.parametrize(
    ("read", "write"),
    [
        (WGMMA_OF_B, STORE_A),
        (TCGEN05_OF_B, STORE_A),
        (WGMMA, STORE_B.replace("+ 0", "+ 8192")),
        (WGMMA_OF_B, "cp.async.cg.shared.global [%r4 + 0], [%rd5 + 0], 0x10;\n	cp.async.wait_all;"),
        (TMA_STORE.replace("[%r3]", "[%r6]"), STORE_A),
    ],
)
def test_other_tiles_need_none(read, write):
    answer = fence(M128_N64, write, BARRIER, read)
    assert not is_fault(answer)


def test_only_the_threads_that_store_count():
    guarded = ["setp.lt.u32 	%p5, %r1, 32;", "@%p5 " + STORE_B.replace("+ 0", "+ -512")]
    assert not is_fault(fence(*guarded, WGMMA_OF_B))
    assert is_fault(fence(*guarded[:1], guarded[1].replace("@%p5", "@!%p5"), WGMMA_OF_B))


def test_the_fence_may_stand_in_another_block_but_on_every_path():
    assert not is_fault(fence(STORE_A, FENCE, "@%p2 bra $L_1;", "add.s32 %r50, %r50, 1;", "$L_1:", BARRIER, WGMMA))
    skipped = fence(STORE_A, "@%p2 bra $L_1;", FENCE, "$L_1:", BARRIER, WGMMA)
    assert is_fault(skipped)
    assert skipped.fault == "wgmma.mma_async at line 23 reads shared memory that st.shared at line 17 wrote"
    on_both = [STORE_A, "@%p2 bra $L_1;", FENCE, "bra.uni $L_2;", "$L_1:", FENCE, "$L_2:", BARRIER, WGMMA]
    assert not is_fault(fence(*on_both))


#: Two slots of B, which cp.async fills one turn ahead. %r60 is the slot of the product, %r61 that of the copy.
PIPELINED = [
    "cp.async.cg.shared.global [%r5 + 0], [%rd5 + 0], 0x10;",
    "cp.async.commit_group;",
    "mov.b32 	%r60, -1;",
    "mov.b32 	%r61, 0;",
    "$L_loop:",
    "add.s32 	%r62, %r61, 1;",
    "setp.gt.s32 	%p3, %r62, 1;",
    "selp.b32 	%r61, 0, %r62, %p3;",
    "shl.b32 	%r63, %r61, 13;",
    "add.s32 	%r64, %r5, %r63;",
    "cp.async.cg.shared.global [%r64 + 0], [%rd5 + 0], 0x10;",
    "cp.async.commit_group;",
    "cp.async.wait_group 1;",
    BARRIER,
    FENCE,
    "add.s32 	%r65, %r60, 1;",
    "setp.gt.s32 	%p4, %r65, 1;",
    "selp.b32 	%r60, 0, %r65, %p4;",
    "shl.b32 	%r66, %r60, 13;",
    "add.s32 	%r67, %r6, %r66;",
    "bfe.u32 	%r68, %r67, 4, 14;",
    "cvt.u64.u32 	%rd7, %r68;",
    "or.b64 	%rd4, %rd7, 4611686293305294848;",
    WGMMA_OF_B,
    BARRIER,
    "setp.lt.s32 	%p6, %r70, %r71;",
    "@%p6 bra $L_loop;",
]


def moved(lines: list[str], line: str, before: str) -> list[str]:
    rest = [one for one in lines if one != line]
    return [*rest[: rest.index(before)], line, *rest[rest.index(before) :]]


def test_copies_are_written_where_they_are_waited_for():
    assert not is_fault(fence(*PIPELINED))
    assert is_fault(fence(*(line for line in PIPELINED if line != FENCE)))
    assert is_fault(fence(*moved(PIPELINED, FENCE, "cp.async.wait_group 1;")))
    assert is_fault(fence(*moved(PIPELINED, FENCE, "setp.lt.s32 	%p6, %r70, %r71;")))
    assert not is_fault(fence(*moved(PIPELINED, FENCE, "bfe.u32 	%r68, %r67, 4, 14;")))


def test_a_slot_that_the_product_does_not_read_may_be_written_meanwhile():
    """Stores of the next slot are fenced after the product of this one."""
    stored = [
        line.replace("cp.async.cg.shared.global", "st.shared.v4.b32").replace(
            "[%rd5 + 0], 0x10", "{%r20, %r21, %r22, %r23}"
        )
        for line in PIPELINED
        if not line.startswith(("cp.async.commit", "cp.async.wait")) and line != FENCE
    ]
    at = stored.index("setp.lt.s32 	%p6, %r70, %r71;")
    legal = fence(stored[0], FENCE, *stored[1:at], FENCE, *stored[at:])
    assert not legal.fault
    assert is_fault(fence(*stored))


def test_tma_may_not_write_over_what_threads_stored_without_a_fence():
    expect = "@%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 8192;"
    assert is_fault(fence(STORE_B, BARRIER, expect, TMA_LOAD, WGMMA))
    assert not is_fault(fence(STORE_B, FENCE, BARRIER, expect, TMA_LOAD, WGMMA))
    assert not is_fault(fence(STORE_A, BARRIER, expect, TMA_LOAD, WGMMA_OF_B))


#: The default warps store tile A, and one warp with other work multiplies it.
PARTITIONS = [
    "add.s32 	%r12, %r3, 32768;",
    "shr.u32 	%r80, %r1, 5;",
    "setp.lt.u32 	%p7, %r80, 2;",
    "@!%p7 bra $L_workers;",
    "barrier.sync 	1;",
    "$L_store:",
    STORE_A,
    FENCE,
    "bar.sync 	0, 64;",
    "@%p9 mbarrier.arrive.shared::cta.b64 _, [%r12];",
    "@%p2 bra $L_store;",
    "barrier.sync 	1;",
    "bra.uni $L_end;",
    "$L_workers:",
    "barrier.sync 	1;",
    "ld.shared.b8 	%r81, [%r80+40000];",
    "setp.eq.b32 	%p8, %r81, 0;",
    "@%p8 bra $L_end;",
    "barrier.sync 	1;",
    "$L_wait:",
    "mbarrier.try_wait.parity.shared::cta.b64 	%p10, [%r12], %r82;",
    "@!%p10 bra $L_wait;",
    TCGEN05,
    "@%p11 bra $L_wait;",
    "barrier.sync 	1;",
    "bra.uni $L_workers;",
    "$L_end:",
]


def test_warps_with_other_work_may_fence_what_they_hand_over_or_take():
    assert not is_fault(fence(M128_N64, *PARTITIONS))
    assert not is_fault(fence(M128_N64, *moved(PARTITIONS, FENCE, TCGEN05)))
    assert is_fault(fence(M128_N64, *(line for line in PARTITIONS if line != FENCE)))
    assert is_fault(fence(M128_N64, *moved(PARTITIONS, FENCE, "@%p2 bra $L_store;")))
    elsewhere = [line.replace("[%r4 + 0]", "[%r4 + 20480]") for line in PARTITIONS if line != FENCE]
    assert not is_fault(fence(M128_N64, *elsewhere))


def test_what_other_warps_copy_over_stores_is_what_a_product_reads():
    """As the scratch memory of a device descriptor, in which tiles lie later."""

    def with_copies(load: str) -> list[str]:
        lines = [line for line in PARTITIONS if line != FENCE]
        at = lines.index("@%p8 bra $L_end;") + 1
        expect = "@%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 8192;"
        copying = ["$L_load:", "barrier.sync 	1;", expect, load, "bra.uni $L_workers;"]
        return [M128_N64, *lines[:at], "@%p12 bra $L_load;", *lines[at:-1], *copying, lines[-1]]

    answer = fence(*with_copies(TMA_LOAD.replace("[%r6]", "[%r3]")))
    assert (answer.fault, answer.unknown) == ("", "tcgen05.mma at line 40, and 1 more")
    assert is_fault(fence(*with_copies(TMA_LOAD)))


def test_what_cannot_be_followed_is_not_known():
    answer = fence("ld.global.b32 	%r4, [%rd5];", STORE_A, BARRIER, WGMMA)
    assert answer.unknown == "wgmma.mma_async at line 21, and 0 more"
    assert not answer.fault
    assert not is_fault(fence("ld.global.b32 	%r4, [%rd5];", STORE_A, FENCE, BARRIER, WGMMA))


def test_code_without_such_reads_is_right():
    product = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%r30, %r31}, {%r20}, {%r21}, {%r22};"
    assert fence(STORE_A, BARRIER, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20}, [%r4];", product).right
