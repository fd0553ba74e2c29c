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
