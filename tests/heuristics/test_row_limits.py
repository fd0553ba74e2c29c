"""Estimates tell which rows cannot fit a multiprocessor."""

import pytest

from conformance.heuristics.configs import Config, accumulator_registers, pruned, shared_memory
from conformance.heuristics.lookup import CUDA

CONFIG = Config(128, 256, 64, 3, 8)


def test_shared_memory_is_one_tile_of_each_operand_per_stage():
    assert shared_memory(CONFIG, 2) == (128 * 64 + 64 * 256) * 2 * 3 == 147456


def test_accumulator_is_spread_over_all_threads_of_the_block():
    assert accumulator_registers(CONFIG) == 128 * 256 // 256
    assert accumulator_registers(Config(24, 17, 16, 1, 1)) == 13  # 12.75, rounded up


def test_what_just_fits_stays_and_a_byte_less_removes_it():
    assert pruned([CONFIG], 2, 147456) == (CONFIG,)
    assert pruned([CONFIG], 2, 147455) == ()


def test_accumulators_that_need_more_than_255_registers_are_removed():
    """The warps counted are those listed, not those that finalising would leave."""
    fits, spills = Config(128, 128, 16, 1, 4), Config(128, 128, 16, 1, 2)
    assert (accumulator_registers(fits), accumulator_registers(spills)) == (128, 256)
    assert pruned([fits, spills], 1, 10**6) == (fits,)


@pytest.mark.parametrize(("size", "memory", "name"), [(None, 1, "dtype_size"), (0, 1, "dtype_size"), (2, None, "sha")])
def test_estimates_need_sizes_in_bytes(size, memory, name):
    with pytest.raises(ValueError, match=f"{name}.*pruned by bytes. Give the bytes of one element"):
        pruned([CONFIG], size, memory)


def test_exhaustive_candidates_need_sizes_in_bytes():
    with pytest.raises(ValueError, match="dtype_size is None"):
        CUDA.candidates("mm", 64, 64, 64, exhaustive=True)
