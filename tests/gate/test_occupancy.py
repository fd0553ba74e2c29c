"""Numbers of resident blocks: worked examples, and a limit for every known target."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from conformance import targets
from conformance.gate.changes.occupancy import MULTIPROCESSORS, PARTITIONS, occupancy, room, shared_memory_text
from conformance.record_figures import Resources


def blocks(target: str, registers: int = 32, shared: int = 0, threads: int = 128, columns: int = 0) -> tuple[int, str]:
    of = occupancy(target, Resources(registers, shared_memory=shared, tensor_memory=columns, threads=threads))
    assert of is not None
    return of.blocks, of.limit


@pytest.mark.parametrize(
    ("target", "figures", "expected"),
    [
        ("sm_90", {"registers": 255, "threads": 256}, (1, "registers")),  # 8 warps of 256 x 32 registers: all there are
        ("sm_90", {"registers": 128, "threads": 256}, (2, "registers")),
        ("sm_90", {"registers": 168, "threads": 128}, (3, "registers")),  # 512 of a lane: 3 warps for each partition
        ("sm_90", {"registers": 24}, (16, "threads")),
        ("sm_89", {"registers": 32}, (12, "threads")),
        ("sm_90", {"registers": 16, "threads": 32}, (32, "number of blocks")),
        ("sm_120", {"registers": 16, "threads": 32}, (24, "number of blocks")),
        ("sm_90", {"shared": 227 * 1024}, (1, "shared memory")),
        ("sm_90", {"shared": 113 * 1024}, (2, "shared memory")),
        ("sm_90", {"shared": 113 * 1024 + 1}, (1, "shared memory")),
        ("sm_80", {"shared": 81 * 1024}, (2, "shared memory")),
        ("sm_120", {"shared": 49 * 1024}, (2, "shared memory")),
        ("sm_120", {"shared": 50 * 1024}, (1, "shared memory")),
        ("sm_100", {"columns": 129}, (2, "tensor memory")),
        ("sm_103", {"columns": 512}, (1, "tensor memory")),
        ("sm_100", {"registers": 24, "columns": 1}, (16, "threads")),
        ("gfx942", {"registers": 512, "threads": 256}, (1, "registers")),
        ("gfx942", {"registers": 64, "threads": 256}, (8, "registers")),
        ("gfx942", {"shared": 32 * 1024, "threads": 256}, (2, "shared memory")),
        ("gfx950", {"shared": 80 * 1024, "threads": 256}, (2, "shared memory")),
        ("gfx950", {"shared": 80 * 1024 + 1, "threads": 256}, (1, "shared memory")),
        ("gfx942", {"registers": 8, "threads": 64}, (32, "threads")),
        ("gfx942", {"registers": 8, "threads": 128}, (16, "threads")),
        ("gfx1201", {"registers": 256}, (5, "registers")),
        ("gfx1201", {"shared": 64 * 1024}, (2, "shared memory")),
        ("gfx1250", {"registers": 512}, (2, "registers")),
        ("gfx1250", {"shared": 160 * 1024}, (2, "shared memory")),
    ],
)
def test_blocks(target, figures, expected):
    assert blocks(target, **figures) == expected


@pytest.mark.parametrize("row", targets.KNOWN, ids=lambda row: str(row.arch))
def test_every_known_target_has_limits_that_fit_those_of_one_block(row):
    (target,) = (target for target in targets.known_targets() if target.arch == row.arch)
    unit = MULTIPROCESSORS[target.id]
    assert unit.lanes == target.warp_size
    assert unit.counts_waves == (target.vendor == "amd")
    assert bool(unit.tensor_memory) == (target.limits.tensor_memory is not None)
    if target.vendor == "nvidia":
        assert unit.waves * unit.lanes == row.threads
        assert unit.shared_memory == row.shared_memory + unit.reserved
        assert unit.registers * unit.lanes * PARTITIONS == target.limits.block_registers
    else:
        assert unit.shared_memory in (row.shared_memory, 2 * row.shared_memory)  # of the two compute units of a WGP
    assert blocks(target.id, shared=row.shared_memory)[0] >= 1


@pytest.mark.parametrize(
    ("target", "figures"),
    [
        (None, {"registers": 32, "threads": 128}),
        ("sm_75", {"registers": 32, "threads": 128}),
        ("sm_90", {"registers": 0, "threads": 128}),
        ("sm_90", {"registers": 32}),
        ("sm_90", {"registers": 32, "threads": 128, "tensor_memory": 32}),
    ],
)
def test_what_is_not_known_is_none(target, figures):
    assert occupancy(target, Resources(**figures)) is None


NAMES = {"registers": "registers", "shared memory": "shared_memory", "tensor memory": "tensor_memory"}


@pytest.mark.parametrize("target", MULTIPROCESSORS)
def test_room_is_the_most_with_which_as_many_blocks_fit(target):
    unit, draw = MULTIPROCESSORS[target], random.Random(target)
    for _ in range(300):
        columns = draw.choice((0, 32, 100, 512)) if unit.tensor_memory else 0
        used = Resources(
            registers=draw.randint(1, 255),
            shared_memory=draw.randint(0, unit.shared_memory),
            tensor_memory=columns,
            threads=draw.choice((32, 128, 256, 512)),
        )
        now, most = occupancy(target, used), room(target, used)
        assert now is not None
        if not now.blocks:
            assert most == {}
            continue
        full = replace(used, **{NAMES[name]: amount for name, amount in most.items() if name != "threads"})
        assert occupancy(target, full).blocks == now.blocks
        assert used.threads <= most["threads"]
        for name, amount in most.items():
            if name != "threads":
                assert getattr(used, NAMES[name]) <= amount
                past = replace(used, **{NAMES[name]: amount + 1})
                assert occupancy(target, past).blocks < now.blocks, name


def test_room_of_so_many_blocks_that_none_may_use_tensor_memory():
    """A block that uses any takes 32 columns at least, so 20 blocks of 512 columns leave none to one that uses none."""
    used = Resources(registers=96, shared_memory=10624, threads=32)
    assert blocks("sm_100", registers=96, shared=10624, threads=32) == (20, "registers")
    assert room("sm_100", used)["tensor memory"] == 0


def test_room_is_not_known_where_occupancy_is_not():
    assert room("zz_1", Resources(32, threads=128)) == {}
    assert room("sm_90", Resources(0, threads=128)) == {}


@pytest.mark.parametrize("target", targets.compile_targets(), ids=lambda target: target.id)
def test_the_limit_of_a_block_is_that_of_the_target(target):
    assert MULTIPROCESSORS[target.id].shared_memory_of_block == target.limits.shared_memory


@pytest.mark.parametrize(
    ("target", "used", "text"),
    [
        ("sm_90", 220_825, "220825 bytes"),
        ("sm_90", 220_826, "220,826 of 232,448 bytes (95 %)"),
        ("sm_90", 225_280, "225,280 of 232,448 bytes (96 %)"),
        ("sm_90", 232_447, "232,447 of 232,448 bytes (99 %)"),  # not 100
        ("sm_90", 232_448, "232,448 of 232,448 bytes (100 %)"),
        ("sm_90", 232_449, "232,449 of 232,448 bytes (101 %)"),
        ("gfx1201", 65_536, "65,536 of 65,536 bytes (100 %)"),  # of a work-group: its processor has twice that
        ("sm_1", 10**9, "1000000000 bytes"),
    ],
)
def test_shared_memory_near_the_limit_says_how_near(target, used, text):
    assert shared_memory_text(target, used) == text
