"""The order of instructions of small kernels, with and without a planted fault, shows the fault."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from packaging.version import Version

from conformance import targets
from conformance.execution.compile.code_structure import structure
from conformance.execution.compile.compilation import CompilePool
from conformance.execution.compile.kernel_figures import ptx_name
from conformance.execution.order.answers import fenced, order_answers
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.judging.conform import launches_to_compile
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Variant
from conformance.record_figures import (
    BARE_COMMITS,
    LATE_WAITS,
    PRIORITY,
    ROUND_TRIPS,
)

RIGHT_COPIES = """
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .pred 	%p<3>; // bar.sync 0; in a comment
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
	cp.async.commit_group ;
	@%p1 bra 	$L__BB0_3;
$L__BB0_1:                              // =>This Inner Loop Header: Depth=1
	cp.async.wait_group 	0;
	add.s32 	%r3, %r3, 1;
	bar.sync 	0;
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5, %r6, %r7}, [%r8];
	cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;
	@%p2 bra 	$L__BB0_1;
$L__BB0_3:
	st.global.b32 	[%rd2], %r4;
	ret;
}
"""
#: The barrier that belongs behind the wait stands before it.
LATE_WAIT = RIGHT_COPIES.replace("	cp.async.wait_group 	0;\n", "").replace(
    "	bar.sync 	0;\n", "	bar.sync 	0;\n	cp.async.wait_group 	0;\n"
)
#: The same, and the wait is the last instruction of the loop: the next turn reads.
LATE_ACROSS_THE_LOOP = (
    RIGHT_COPIES.replace("	cp.async.wait_group 	0;\n", "")
    .replace("	bar.sync 	0;\n", "")
    .replace("	@%p2 bra", "	bar.sync 	0;\n	cp.async.wait_group 	0;\n	@%p2 bra")
)
BARRIER_ACROSS_THE_LOOP = RIGHT_COPIES.replace("	cp.async.wait_group 	0;\n", "").replace(
    "	@%p2 bra", "	cp.async.wait_group 	0;\n	@%p2 bra"
)


def mma_loop(inside: str, after: str = "") -> str:
    return f"""
	tcgen05.st.sync.aligned.32x32b.x2.b32 [%r1 + 0], {{%r2, %r3}};
	tcgen05.wait::st.sync.aligned;
$L__BB0_1:
	@%p3 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r4, %p1;
	@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd5];

	{{
	.reg .pred complete;
	waitLoop:
	mbarrier.try_wait.parity.shared::cta.b64 complete, [%r5], %r6;
	@!complete bra.uni waitLoop;
	}}
{inside}
	@%p2 bra 	$L__BB0_1;
{after}
	ret;
"""


LOAD = "	tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r2, %r3}, [%r1 + 0];\n	tcgen05.wait::ld.sync.aligned;\n"
STORE = "	tcgen05.st.sync.aligned.32x32b.x2.b32 [%r1 + 0], {%r2, %r3};\n	tcgen05.wait::st.sync.aligned;\n"


@pytest.mark.parametrize(
    ("text", "late"),
    [(RIGHT_COPIES, 0), (LATE_WAIT, 1), (LATE_ACROSS_THE_LOOP, 1), (BARRIER_ACROSS_THE_LOOP, 0)],
    ids=["right", "behind the barrier", "behind it, across the loop", "right across the loop"],
)
def test_a_wait_that_no_barrier_follows_is_counted(text, late):
    counts = structure("ptx", text)
    assert counts.get(LATE_WAITS, 0) == late
    assert counts["barrier"] == (0 if "bar.sync 	0;\n" not in text else 1)
    assert counts["cp.async wait"] == 1


@pytest.mark.parametrize(
    ("inside", "after", "trips", "loads"),
    [("", LOAD, 0, 0), (LOAD + STORE, "", 1, 1), (LOAD, "", 0, 1), ("", LOAD + STORE, 0, 0)],
    ids=["read after the loop", "out and back in the loop", "read in the loop", "out and back after the loop"],
)
def test_an_accumulator_that_leaves_tensor_memory_in_the_loop_of_its_mma_is_counted(inside, after, trips, loads):
    counts = structure("ptx", mma_loop(inside, after))
    assert counts.get(ROUND_TRIPS, 0) == trips
    assert counts.get("tcgen05.ld in loops", 0) == loads
    assert counts["mbarrier wait"] == counts["tcgen05 commit"] == 1


#: One loop over tiles and blocks of K: a sum begins with zeros, and its epilogue reads it.
FLATTENED = """
$L__BB0_1:
	mov.b32 	%r7, 0;
	@%p4 tcgen05.st.sync.aligned.32x32b.x2.b32 [%r1 + 0], {%r7, %r7};
	@%p3 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r4, %p1;
	tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r2, %r3}, [%r1 + 0];
	setp.gt.f32 	%p4, %r2, %r3;
	mul.f32 	%r8, %r2, %r9;
	cvt.rn.bf16x2.f32 	%r10, %r8, %r3;
	st.shared.b32 	[%r11], %r10;
	ld.shared.b32 	%r12, [%r11];
	st.global.b32 	[%rd3], %r12;
	@%p2 bra 	$L__BB0_1;
	ret;
"""


@pytest.mark.parametrize(
    ("values", "trips"),
    [
        ("%r7, %r7", 0),  # zeros
        ("%r2, %r3", 1),  # as loaded
        ("%r7, %r8", 1),  # one of them made of what was loaded
        ("%r10, %r7", 1),  # in two steps
        ("%r9, %r7", 0),  # of the epilogue, and not loaded from tensor memory
    ],
)
def test_in_a_flattened_loop_what_is_stored_decides(values, trips):
    """The epilogue of such a loop loads from tensor memory, too, and a sum begins with a store."""
    counts = structure("ptx", FLATTENED.replace("{%r7, %r7}", f"{{{values}}}"))
    assert counts.get(ROUND_TRIPS, 0) == trips
    assert counts["tcgen05.ld in loops"] == counts["tcgen05.st in loops"] == 1


def test_what_another_turn_of_the_loop_made_is_followed():
    moved = FLATTENED.replace("	mov.b32 	%r7, 0;\n", "").replace(
        "	@%p2 bra", "	mov.b32 	%r7, %r8;\n	@%p2 bra"
    )
    assert structure("ptx", moved)[ROUND_TRIPS] == 1


def test_a_round_trip_in_an_outer_loop_is_not_one_of_the_mma_loop():
    inner = mma_loop("").replace("	ret;", "")
    text = f"$L__BB0_0:\n{inner}\n{LOAD}{STORE}	@%p9 bra 	$L__BB0_0;\n	ret;"
    assert ROUND_TRIPS not in structure("ptx", text)
    assert structure("ptx", text)["tcgen05.ld in loops"] == 1


#: A loop whose warps wait for a phase, and one of them multiplies and commits.
COMMITTED = """
$L__BB0_1:
	mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r5], %r6;
	@!%p1 bra 	$L__BB0_1;
	bar.sync 	0;
	@%p3 tcgen05.mma.cta_group::1.kind::f16 [ %r1 + 0 ], %rd1, %rd2, %r4, %p2;
	@%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd5];
	@%p4 bra 	$L__BB0_1;
	ret;
"""


def test_a_commit_that_no_barrier_parts_from_a_wait_is_counted():
    assert BARE_COMMITS not in structure("ptx", COMMITTED)
    assert structure("ptx", COMMITTED.replace("	bar.sync 	0;\n", ""))[BARE_COMMITS] == 1
    moved = COMMITTED.replace("	bar.sync 	0;\n", "").replace("	@%p4 bra", "	bar.sync 	0;\n	@%p4 bra")
    assert structure("ptx", moved)[BARE_COMMITS] == 1  # the barrier of the turn before


RELEASE = tuple(int(part) for part in version("triton").split(".")[:2])


def compiled_counts(kernel, problem, config, target, variant, stage):
    """The counts of a kernel of the catalogue that the installed Triton compiles."""
    return structure(stage, compiled_text(kernel, problem, config, target, variant, stage))


def compiled_text(kernel, problem, config, target, variant, stage):
    if target not in {one.id for one in targets.compile_targets()}:
        pytest.skip(f"the installed Triton cannot compile for {target}")
    plan = get(kernel).plan(problem, config, targets.find(target), variant, estimated=False)
    with CompilePool(1, 240) as pool:
        ((request, _),) = launches_to_compile(plan).values()
        return pool.submit(request).result().artefact.text(stage)


def test_what_3_6_compiles_for_blackwell_commits_before_all_have_waited():
    """https://github.com/triton-lang/triton/issues/9871: 3.7 has a barrier there."""
    persistent = ("mm_persistent_tma", mm(136, 112, 272), Config(128, 128, 64, 3, 8), "sm_100", Variant(sms=2), "ptx")
    assert (BARE_COMMITS in compiled_counts(*persistent)) == (RELEASE == (3, 6))


def test_up_to_3_7_0_products_of_what_cp_async_brought_have_no_fence():
    """https://github.com/pytorch/pytorch/issues/181248."""
    pointers = ("mm_persistent", mm(72, 48, 112, "bf16"), Config(64, 64, 32, 2, 4), "sm_90", Variant(sms=2), "ptx")
    assert fenced(compiled_text(*pointers)) == (Version(version("triton")) >= Version("3.7.1"))


def test_ping_pong_of_3_5_to_3_8_passes_barriers_with_loads_open():
    """https://github.com/triton-lang/triton/issues/11696."""
    tile, sizes = Config(128, 128, 64, 2, 8), mm(256, 256, 256, "fp32")
    text = compiled_text("mm", sizes, tile, "gfx942", Variant(static=True), "amdgcn")
    assert structure("amdgcn", text)[PRIORITY]
    (answer,) = order_answers("amdgcn", text)
    assert not answer.unknown
    assert bool(answer.fault) == (RELEASE in ((3, 5), (3, 6), (3, 7), (3, 8)))


def test_jumps_through_a_table_are_followed():
    text = """
	cp.async.wait_group 	0;
	brx.idx 	%r1, $L_brx_0;
$L_brx_0: .branchtargets
	$L__BB0_1,
	$L__BB0_2;
$L__BB0_1:
	bar.sync 	0;
$L__BB0_2:
	ld.shared.b32 	%r4, [%r8];
	ret;
"""
    assert structure("ptx", text)[LATE_WAITS] == 1
    assert LATE_WAITS not in structure("ptx", text.replace("$L__BB0_2;\n$L__BB0_1", "$L__BB0_1;\n$L__BB0_1"))


def amd(*lines: str) -> str:
    body = "".join(f"\t{line}\n" for line in lines)
    return (
        f"k:                                      ; @k\n; %bb.0:\n{body}\ts_endpgm\n\t.amdgpu_metadata\n\ts_barrier\n"
    )


def test_a_wait_for_copies_of_amd_counts_as_those_of_nvidia():
    wait = ("s_wait_asynccnt 0x0", "s_barrier_signal -1", "s_barrier_wait -1", "ds_load_b64 v1, v2")
    assert LATE_WAITS not in structure("amdgcn", amd(*wait))
    assert structure("amdgcn", amd(*wait[1:3], wait[0], wait[3]))[LATE_WAITS] == 1


LOAD_TO_LDS, WAITED = "buffer_load_dwordx4 v6, s[8:11], 0 offen lds", "s_waitcnt vmcnt(0)"
SCRATCH = "scratch_load_dword v1, off, off"
READ, BARRIER = "ds_read_b64 v3, v4", "s_barrier"


@pytest.mark.parametrize(
    ("lines", "late"),
    [
        ((LOAD_TO_LDS, WAITED, BARRIER, READ), 0),
        ((LOAD_TO_LDS, BARRIER, WAITED, READ), 1),
        (("global_load_lds_dwordx4 v1, s[2:3]", BARRIER, WAITED, READ), 1),
        ((LOAD_TO_LDS, "global_load_dword v1, v2, s[2:3]", BARRIER, WAITED, READ), 0),  # it may be for the other load
        ((SCRATCH, LOAD_TO_LDS, BARRIER, "s_waitcnt vmcnt(1)", READ), 0),  # it is for what was spilled
        ((LOAD_TO_LDS, SCRATCH, BARRIER, "s_waitcnt vmcnt(1)", READ), 1),
        ((LOAD_TO_LDS, WAITED, READ), 0),  # one wave
        (("global_load_dword v1, v2, s[2:3]", BARRIER, WAITED, READ), 0),
    ],
    ids=range(8),
)
def test_a_wait_for_loads_to_lds_that_no_barrier_follows_is_counted(lines, late):
    assert structure("amdgcn", amd(*lines)).get(LATE_WAITS, 0) == late


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("st.shared::cta.v4.b32", "st.shared.v4.b32"),
        ("ld.shared::cta.b32", "ld.shared.b32"),
        ("barrier.sync.aligned", "bar.sync"),
        ("barrier.cta.sync.aligned", "bar.sync"),
        ("bar.cta.sync", "bar.sync"),
    ],
)
def test_two_spellings_of_one_instruction_have_one_name(one, other):
    assert ptx_name(one) == ptx_name(other)


def test_other_instructions_keep_their_names():
    words = ("st.shared::cluster.b32", "st.shared.b32", "st.global.b32", "barrier.cluster.arrive.aligned", "bar.sync")
    assert len(set(map(ptx_name, words))) == len(words)
