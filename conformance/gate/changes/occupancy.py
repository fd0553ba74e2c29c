"""Computes how many blocks of a kernel are resident on one multiprocessor at a time, by target: the rule and its
limits.

A multiprocessor is what the waves of one block share: NVIDIA's SM or AMD's compute unit. On RDNA4 it is the work-group
processor of two compute units, because Triton compiles for that mode. It has four partitions (AMD: SIMDs), each with a
register file and places for waves; NVIDIA calls a wave a warp. A block is resident if all its waves have their
registers and places, and its shared and tensor memory. So the blocks that fit are the least of these:

* registers: each partition holds as many waves as its file has shares of a wave's registers, rounded up to a granule.
  Four partitions of them are divided by the waves of a block;
* shared memory (LDS): that of the multiprocessor by that of a block with the system's, rounded up to a granule;
* tensor memory: 512 columns by those of a block, which are a power of two, 32 or more;
* threads: the places for waves by the waves of a block; and the number of blocks.

The sources of the limits:

* NVIDIA: CUDA C++ Programming Guide, technical specifications per compute capability (threads, blocks, registers and
  shared memory per SM). From capability 8.0 on, 1 KiB of each block's shared memory is the system's. The CUDA occupancy
  calculator gives the units: registers by 256 for each warp, shared memory by 128 bytes. 65,536 registers are 512 for
  each lane of a partition, in granules of 8. Capability 12.0: 24 blocks and 100 KiB, as that guide and the devices
  themselves say; the Blackwell tuning guide says 32 and 128 KiB. Tensor memory: PTX ISA, tcgen05.alloc.
* AMD: the ISA guides of CDNA3, CDNA4 and RDNA4 (vector registers, which on CDNA hold the accumulators too, and LDS).
  LLVM's AMDGPU target gives the granules of registers and LDS and the places for waves. It also gives the barriers that
  limit blocks of several waves, and all of gfx1250. The waves by registers are those that LLVM itself states for 1,591
  of 1,634 kernels that Triton 3.7.1 compiled for the four targets; the other 43 ask it for fewer (``waves_per_eu``).

What records do not keep is left out: clusters, and scalar registers, which cost gfx9 one wave of eight at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.record_figures import Resources

KIB = 1024
#: Partitions of a multiprocessor, each with a register file of its own.
PARTITIONS = 4
#: The fewest columns of tensor memory that a block can have.
LEAST_COLUMNS = 32


@dataclass(frozen=True)
class Multiprocessor:
    """The resources that the blocks on one multiprocessor share. ``name`` is the vendor's word for it. ``lanes`` of a
    wave; ``waves`` and ``blocks`` at a time; ``registers`` for each lane of one partition, given to a wave in units of
    ``register_granule``; ``shared_memory`` in bytes, given to a block in units of ``shared_granule``, with ``reserved``
    bytes for the system; columns of ``tensor_memory``. ``counts_waves``: occupancy is counted in waves, as AMD does,
    not in blocks."""

    name: str
    lanes: int
    waves: int
    blocks: int
    registers: int
    register_granule: int
    shared_memory: int
    shared_granule: int
    reserved: int = 0
    tensor_memory: int = 0
    counts_waves: bool = False
    block_shared_memory: int = 0  # bytes that one block can have; 0: all but those of the system

    @property
    def shared_memory_of_block(self) -> int:
        """The most bytes of shared memory that one block can have."""
        return self.block_shared_memory or self.shared_memory - self.reserved


def _nvidia(threads: int, blocks: int, shared_kib: int, tensor_memory: int = 0) -> Multiprocessor:
    return Multiprocessor(
        *("SM", 32, threads // 32, blocks, 512, 8),
        *(shared_kib * KIB, 128, KIB, tensor_memory),
    )


def _amd(
    name: str,
    lanes: int,
    waves: int,
    barriers: int,
    registers: int,
    granule: int,
    lds_kib: int,
    lds_granule: int,
    block_lds_kib: int = 0,
) -> Multiprocessor:
    return Multiprocessor(
        *(name, lanes, waves * PARTITIONS, barriers, registers, granule),
        *(lds_kib * KIB, lds_granule),
        counts_waves=True,
        block_shared_memory=block_lds_kib * KIB,
    )


#: Target id -> its multiprocessor. The occupancy of a target that is not here is not known.
MULTIPROCESSORS: Mapping[str, Multiprocessor] = {
    "sm_80": _nvidia(2048, 32, 164),
    "sm_89": _nvidia(1536, 24, 100),
    "sm_90": _nvidia(2048, 32, 228),
    "sm_100": _nvidia(2048, 32, 228, tensor_memory=512),
    "sm_103": _nvidia(2048, 32, 228, tensor_memory=512),
    "sm_107": _nvidia(2048, 32, 228, tensor_memory=512),  # assumed: as sm_103
    "sm_120": _nvidia(1536, 24, 100),
    "gfx942": _amd("CU", 64, 8, 16, 512, 8, 64, 512),
    "gfx950": _amd("CU", 64, 8, 16, 512, 8, 160, 1280),
    "gfx1250": _amd("CU", 32, 16, 16, 1024, 16, 320, 2048),
    "gfx1201": _amd("WGP", 32, 16, 32, 1536, 24, 128, 1024, block_lds_kib=64),
}
#: The share of a block's limit below which shared memory is not near it.
NEAR = 0.95


def shared_memory_text(target: str | None, used: int) -> str:
    """``used`` bytes of shared memory in words, with the limit where they are near it or past it."""
    unit = MULTIPROCESSORS.get(target or "")
    if unit is None or used < NEAR * unit.shared_memory_of_block:
        return f"{used} bytes"
    return near_text(used, unit.shared_memory_of_block)


def near_text(used: int, limit: int) -> str:
    """Returns ``used`` bytes with their limit in words, such as "225,280 of 232,448 bytes (96 %)".

    >>> near_text(225_280, 232_448)
    '225,280 of 232,448 bytes (96 %)'
    """
    percent = 100 * used // limit if used <= limit else -(-100 * used // limit)  # never 100 of what is more or less
    return f"{used:,} of {limit:,} bytes ({percent} %)"


@dataclass(frozen=True)
class Occupancy:
    """The residents of one ``multiprocessor``: ``blocks``, each of ``waves_per_block``. ``limit`` is what keeps another
    block out."""

    multiprocessor: Multiprocessor
    blocks: int
    waves_per_block: int
    limit: str

    @property
    def resident(self) -> int:
        """Returns the number by which two occupancies are compared: blocks on NVIDIA, waves on AMD."""
        return self.blocks * self.waves_per_block if self.multiprocessor.counts_waves else self.blocks

    def __str__(self) -> str:
        blocks = f"{self.blocks} {'block' if self.blocks == 1 else 'blocks'}"
        each = f"{self.waves_per_block} {'waves' if self.multiprocessor.counts_waves else 'warps'}"
        if self.multiprocessor.counts_waves:
            return f"{self.resident} waves per {self.multiprocessor.name} ({blocks} of {each})"
        return f"{blocks} of {each} per {self.multiprocessor.name}"


def occupancy(target: str | None, resources: Resources) -> Occupancy | None:
    """Returns the number of blocks of a kernel with these ``resources`` that one multiprocessor of ``target`` holds,
    and what limits it. Returns None if it is not known: for a target without limits here, or a binary that could not be
    read (0 registers). The same holds for a record without the number of threads, and for tensor memory on a target
    that has none here.

    >>> kernel = Resources(shared_memory=100_000, registers=64, threads=128)
    >>> occupancy("sm_90", kernel).blocks, occupancy("sm_90", kernel).limit
    (2, 'shared memory')
    """
    unit = MULTIPROCESSORS.get(target or "")
    if unit is None or not resources.registers or not resources.threads:
        return None
    if resources.tensor_memory and not unit.tensor_memory:
        return None
    waves = -(-resources.threads // unit.lanes)
    resident = unit.registers // _rounded(resources.registers, unit.register_granule)
    room = {
        "registers": resident * PARTITIONS // waves,
        "threads": unit.waves // waves,
    }
    shared = _rounded(resources.shared_memory + unit.reserved, unit.shared_granule)
    if shared:
        room["shared memory"] = unit.shared_memory // shared
    if resources.tensor_memory:
        columns = max(LEAST_COLUMNS, 1 << (resources.tensor_memory - 1).bit_length())
        room["tensor memory"] = unit.tensor_memory // columns
    if waves > 1 or not unit.counts_waves:  # on AMD the barriers limit the blocks, and one wave needs none
        room["number of blocks"] = unit.blocks
    limit = min(room, key=room.__getitem__)
    return Occupancy(unit, room[limit], waves, limit)


def room(target: str | None, resources: Resources) -> dict[str, int]:
    """The most that a block may use of each resource so that as many blocks are resident on ``target`` as of one that
    uses ``resources``. Empty where that is not known, or where not even one fits."""
    now = occupancy(target, resources)
    if now is None or not now.blocks:
        return {}
    unit = now.multiprocessor
    in_partition = -(-now.blocks * now.waves_per_block // PARTITIONS)
    most = {
        "registers": unit.registers // in_partition // unit.register_granule * unit.register_granule,
        "shared memory": unit.shared_memory // now.blocks // unit.shared_granule * unit.shared_granule - unit.reserved,
        "threads": now.waves_per_block * unit.lanes,
    }
    if unit.tensor_memory:
        columns = 1 << (unit.tensor_memory // now.blocks).bit_length() - 1
        most["tensor memory"] = columns if columns >= LEAST_COLUMNS else 0
    return most


def _rounded(amount: int, granule: int) -> int:
    return -(-amount // granule) * granule
