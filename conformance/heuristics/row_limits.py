"""Row limits: rows that cannot fit a multiprocessor, by estimates that need no compiler."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.heuristics.configs import Config

#: 32-bit registers that one thread of an NVIDIA GPU can address, and threads of a warp there.
REGISTERS_PER_THREAD, WARP_SIZE = 255, 32


def shared_memory(config: Config, dtype_size: int) -> int:
    """Estimated bytes of shared memory: one tile of A and one of B, of ``dtype_size`` bytes an element, per stage.

    The accumulator's staging, descriptors and barriers are not counted, and both operands have one size.
    """
    return dtype_size * config.block_k * (config.block_m + config.block_n) * config.num_stages


def accumulator_registers(config: Config) -> int:
    """32-bit registers that each thread needs for the accumulator alone, rounded up."""
    return -(-config.block_m * config.block_n // (WARP_SIZE * config.num_warps))


def pruned(configs: Iterable[Config], dtype_size: int | None, shared_memory_limit: int | None) -> tuple[Config, ...]:
    """Returns the rows whose estimates fit ``shared_memory_limit`` (bytes per block) and a thread's registers.

    Raises ValueError without a positive ``dtype_size`` and limit: no estimate can be made then.
    """
    for name, value in (("dtype_size", dtype_size), ("shared_memory_limit", shared_memory_limit)):
        if value is None or value < 1:
            raise ValueError(
                f"{name} is {value!r}: an exhaustive space is pruned by bytes. Give the bytes of one element of an "
                "operand as dtype_size, and the target's limits.shared_memory as shared_memory_limit"
            )
    assert dtype_size is not None
    assert shared_memory_limit is not None
    return tuple(
        config
        for config in configs
        if shared_memory(config, dtype_size) <= shared_memory_limit
        and accumulator_registers(config) <= REGISTERS_PER_THREAD
    )
