"""Accesses of LDS that are open at a barrier, with and without another wave that meets them."""

from __future__ import annotations

import pytest

from conformance.execution.order.answers import order_answers

#: 256 threads of 4 waves, with 16 bytes each: of tile A at v1, and at v5 those of a thread of another wave; of tile B
#: at v2, 4 KiB further; of an unknown place at v3.
HEAD = """k:                                      ; @k
	v_lshlrev_b32_e32 v1, 4, v0
	v_add_u32_e32 v2, 0x1000, v1
	v_xor_b32_e32 v5, 0x400, v1
	global_load_dword v3, v4, s[2:3]
"""
TAIL = """	s_endpgm
	.amdgpu_metadata
    .max_flat_workgroup_size: 256
	s_barrier
"""
WAIT, BARRIER = "s_waitcnt lgkmcnt(0)", "s_barrier"
LOAD, STORE = "ds_read_b128 v[10:13], v1", "ds_write_b128 v5, v[20:23]"


def lds(*lines: str):
    """The answer about a kernel of ``lines``."""
    body = "".join(f"{line}\n" if line.endswith(":") else f"\t{line}\n" for line in lines)
    (answer,) = order_answers("amdgcn", HEAD + body + TAIL)
    return answer


SIGNAL = ("s_barrier_signal -1", "s_barrier_wait -1")


@pytest.mark.parametrize("barrier", [(BARRIER,), SIGNAL])
@pytest.mark.parametrize(
    "wait", [WAIT, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_wait_dscnt 0x0", "s_wait_loadcnt_dscnt 0x300"]
)
@pytest.mark.parametrize(("first", "then"), [(LOAD, STORE), (STORE, LOAD), (STORE, STORE.replace("v5", "v1"))])
def test_an_access_must_end_before_the_barrier_behind_which_others_meet_it(first, then, wait, barrier):
    assert lds(first, wait, *barrier, then, wait).right
    for other in (None, "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(1)", "s_wait_loadcnt 0x0", "s_wait_dscnt 0x1"):
        answer = lds(first, *([other] if other else []), *barrier, wait, then)
        assert answer.fault.startswith(f"{first.split()[0]} at line 6 is open at the barrier of line ")
    assert lds(first, barrier[0], wait, *barrier[1:], then).fault  # behind the signal it is too late


@pytest.mark.parametrize(
    "lines",
    [
        (LOAD, BARRIER, WAIT, LOAD),  # two loads
        (LOAD, BARRIER, WAIT, "ds_write_b128 v2, v[20:23]"),  # another tile
        (LOAD, BARRIER, WAIT, STORE + " offset:4096"),
        (LOAD, BARRIER, WAIT, BARRIER, STORE),  # behind the next barrier, which the wait precedes
        (STORE, LOAD, "s_waitcnt lgkmcnt(1)", BARRIER, WAIT, BARRIER, STORE),
        ("ds_bpermute_b32 v7, v1, v6", BARRIER, STORE),
        (LOAD, "s_endpgm", BARRIER, STORE),
        (LOAD, BARRIER, STORE.replace("v5", "v1")),  # what each wave has for itself
    ],
    ids=range(8),
)
def test_what_no_other_wave_meets_may_be_open(lines):
    assert lds(*lines).right


def test_all_paths_and_all_turns_of_a_loop_count():
    assert lds("s_cbranch_scc1 .LBB0_2", LOAD, ".LBB0_2:", BARRIER, STORE).fault
    loop = (".LBB0_1:", STORE, WAIT, BARRIER, LOAD, WAIT, BARRIER, "s_cbranch_scc1 .LBB0_1")
    assert lds(*loop).right
    for gone in (2, 5):
        assert lds(*loop[:gone], *loop[gone + 1 :]).fault
    for gone in (3, 6):  # a barrier less is no access that is open at one
        assert lds(*loop[:gone], *loop[gone + 1 :]).right
    late = (".LBB0_1:", STORE, WAIT, BARRIER, LOAD, BARRIER, WAIT, "s_cbranch_scc1 .LBB0_1")
    assert lds(*late).fault


#: Half of the waves run one barrier behind the others.
PING_PONG = [
    "s_cbranch_execz .LBB0_1",
    BARRIER,
    ".LBB0_1:",
    LOAD,
    BARRIER,
    WAIT,
    BARRIER,
    STORE,
    WAIT,
    BARRIER,
    "s_cbranch_scc1 .LBB0_1",
]


def test_in_a_ping_pong_schedule_other_waves_are_one_barrier_ahead_or_behind():
    """triton #11696; in step, the wait before the second barrier is soon enough."""
    assert lds(*PING_PONG).fault
    assert lds(*PING_PONG[2:]).right
    assert lds(*PING_PONG[:4], WAIT, BARRIER, BARRIER, *PING_PONG[7:]).right


def test_an_address_that_cannot_be_followed_is_not_known():
    answer = lds(LOAD.replace("v1", "v3"), BARRIER, WAIT, STORE)
    assert answer.unknown.startswith("ds_read_b128 at line 6 is open at the barrier of line 7, and ds_write_b128 at")
    assert not answer.fault
    copied = lds(LOAD, BARRIER, WAIT, "buffer_load_dwordx4 v6, s[8:11], 0 offen lds")
    assert copied.unknown
    assert lds(LOAD.replace("v1", "v3"), WAIT, BARRIER, STORE).right


@pytest.mark.parametrize(
    ("load", "store", "far", "bytes_of_far"),
    [
        ("ds_read2_b32", "ds_write2_b32", 255, 1020),
        ("ds_load_2addr_b32", "ds_store_2addr_b32", 255, 1020),
        ("ds_read2st64_b32", "ds_write2st64_b32", 20, 5120),
        ("ds_load_2addr_stride64_b32", "ds_store_2addr_stride64_b32", 20, 5120),
        ("ds_load_2addr_b64", "ds_store_2addr_b64", 255, 2040),
    ],
)
def test_both_spellings_of_two_addresses(load, store, far, bytes_of_far):
    """Every access of one address begins at a multiple of 16 bytes below 4 KiB, and so does the first of two."""
    reads = f"{load} v[10:13], v1 offset1:{far}"
    assert lds(reads, BARRIER, WAIT, f"ds_write_b32 v5, v20 offset:{bytes_of_far}").fault
    assert lds(reads, BARRIER, WAIT, f"ds_write_b32 v5, v20 offset:{bytes_of_far + 8192}").right
    writes = f"{store} v5, v20, v21 offset0:{far} offset1:{far}"
    assert lds("ds_read_b32 v10, v1", BARRIER, WAIT, writes).right
    assert lds(f"ds_read_b32 v10, v1 offset:{bytes_of_far}", BARRIER, WAIT, writes).fault


def test_an_address_that_differs_by_branch_is_not_known():
    """On one path the store goes where other waves read, on the other one behind the tile."""
    begins, moves = "v_xor_b32_e32 v4, 0x400, v1", "v_add_u32_e32 v4, 0x4000, v1"
    then = (BARRIER, WAIT, STORE.replace("v5", "v4"))
    answer = lds(begins, "s_cbranch_scc1 .LBB0_2", moves, ".LBB0_2:", LOAD, *then)
    assert answer.unknown
    assert lds(begins, moves, "s_cbranch_scc1 .LBB0_2", ".LBB0_2:", LOAD, *then).right
    assert lds(begins, "s_cbranch_scc1 .LBB0_2", begins, ".LBB0_2:", LOAD, *then).fault
    both = ("s_cbranch_scc1 .LBB0_2", moves, "s_branch .LBB0_3", ".LBB0_2:", begins, ".LBB0_3:", LOAD, *then)
    assert lds(*both).unknown
    assert lds(*("v_add_u32_e32 v4, 0x5000, v1" if line == begins else line for line in both)).unknown
    assert lds(*(moves if line == begins else line for line in both)).right
    assert lds("s_branch .LBB0_0", ".LBB0_0:", begins, LOAD, *then).fault  # as kernels begin


@pytest.mark.parametrize("wide", [("b64", "exec", "s[6:7]", "vcc"), ("b32", "exec_lo", "s6", "vcc_lo")])
def test_lanes_that_were_masked_keep_their_address(wide):
    bits, exec_, saved, condition = wide
    begins, moves = "v_xor_b32_e32 v4, 0x400, v1", "v_add_u32_e32 v4, 0x4000, v1"
    masks, ends = f"s_and_saveexec_{bits} {saved}, {condition}", f"s_or_{bits} {exec_}, {exec_}, {saved}"
    store = STORE.replace("v5", "v4")
    assert lds(begins, masks, moves, ends, LOAD, BARRIER, WAIT, store).unknown
    assert lds(masks, moves, ends, LOAD, BARRIER, WAIT, store).right
    assert lds(begins, masks, moves, LOAD, BARRIER, WAIT, store, ends).right


def test_an_address_that_still_grows_after_several_turns_is_not_known():
    """The store comes to other waves' words after 16 turns; with two slots in turn it never does."""
    begins = "v_add_u32_e32 v4, 0x8000, v1"
    turn = (".LBB0_1:", LOAD, BARRIER, WAIT, STORE.replace("v5", "v4"), WAIT)
    assert lds(begins, *turn, "v_add_u32_e32 v4, 0xfffff800, v4", "s_cbranch_scc1 .LBB0_1").unknown
    assert lds(begins, *turn, "v_xor_b32_e32 v4, 0x2000, v4", "s_cbranch_scc1 .LBB0_1").right


@pytest.mark.parametrize("sign", ["u32", "i32"])
def test_a_scalar_field_has_start_and_length_in_one_word(sign):
    """Five bits from bit 4 on are 10 or 20, and the store lies that many KiB behind its tile."""
    for number, right in (("0xa0", False), ("0x140", True)):
        field = ("s_mov_b32 s30, " + number, f"s_bfe_{sign} s31, s30, 0x50004", "v_lshl_add_u32 v6, s31, 10, v5")
        assert lds(*field, "ds_read_b32 v10, v1 offset:10240", BARRIER, WAIT, "ds_write_b32 v6, v20").right is right
