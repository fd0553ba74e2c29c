"""Rows cut down to a problem: edges, floors, exclusion, hints."""

import pytest

from conformance.heuristics import base
from conformance.heuristics.configs import Config
from conformance.heuristics.device_class import Symbolic, by_hint, finalised, next_power_of_2, scaled, shallower_than
from conformance.heuristics.lookup import CUDA
from conformance.heuristics.rocm import ROCM

LARGE = Config(256, 128, 64, 3, 8)


def test_next_power_of_two():
    assert [next_power_of_2(number) for number in (0, 1, 2, 3, 16, 17, 32768)] == [1, 1, 2, 4, 16, 32, 32768]


@pytest.mark.parametrize(
    ("sizes", "options", "tile"),
    [
        ((1024, 1024, 1024), {}, (256, 128, 64)),
        ((100, 30, 22), {}, (128, 32, 32)),
        ((1, 1, 1), {}, (16, 16, 16)),
        ((0, 5, 0), {}, (16, 16, 16)),
        ((1, 1, 1), {"int8": True}, (16, 16, 32)),
        ((1024, 1024, 1024), {"scale": 0.5}, (128, 64, 32)),
        ((1024, 1024, 1024), {"scale": 0.1}, (25, 16, 16)),
        ((Symbolic(100), 1024, 1024), {}, (128, 128, 64)),
        ((Symbolic(100), 1024, 1024), {"hint": 20}, (32, 128, 64)),
        ((100, 1024, 1024), {"hint": 20}, (128, 128, 64)),
    ],
)
def test_edges_are_bounded_by_the_problem_and_by_the_smallest_tile(sizes, options, tile):
    (config,) = scaled([LARGE], *sizes, **options)
    assert config.tile == tile
    assert (config.num_stages, config.num_warps, config.group_m) == (3, 8, 8)


def test_exclusion_sees_the_scaled_edges():
    seen = []

    def exclude(m, n, k):
        seen.append((m, n, k))
        return m > 64

    small = Config(64, 64, 32, 2, 4)
    assert scaled([LARGE, small], 512, 512, 512, scale=0.5, exclude=exclude) == (Config(32, 32, 16, 2, 4),)
    assert seen == [(128, 64, 32), (32, 32, 16)]


def test_scaling_keeps_group_and_options():
    (config,) = scaled([Config(64, 64, 64, 2, 4, group_m=4, vendor=(("kpack", 2),))], 32, 32, 32)
    assert config == Config(32, 32, 32, 2, 4, group_m=4, vendor=(("kpack", 2),))


@pytest.mark.parametrize("device", [CUDA, ROCM], ids=lambda device: device.name)
def test_hints_repeat_nothing_of_a_problem_whose_sizes_are_known(device):
    """Two hints once made 57 candidates of 19 rows."""
    groups = by_hint(lambda hint: device.candidates("mm", 1024, 1024, 1024, hint=hint), (64, 256))
    assert list(groups) == [None]
    assert len(groups[None]) == len(device.table("mm"))


@pytest.mark.parametrize("device", [CUDA, ROCM], ids=lambda device: device.name)
def test_hints_of_a_symbolic_size_give_the_candidates_of_that_size(device):
    groups = by_hint(lambda hint: device.candidates("mm", Symbolic(4096), 1024, 1024, hint=hint), (64, 16, 8192))
    assert groups == {
        None: device.candidates("mm", 4096, 1024, 1024),
        64: device.candidates("mm", 64, 1024, 1024),
        16: device.candidates("mm", 16, 1024, 1024),
    }  # 8192 changes nothing: no tile is as large
    assert {config.block_m for config in groups[16]} == {16}


def test_a_sum_of_two_products_takes_rows_below_k_only():
    assert {config.block_k for config in shallower_than(base.MM_PLUS_MM, 64)} == {16, 32}
    assert {config.block_k for config in shallower_than(base.MM_PLUS_MM, 65)} == {16, 32, 64}
    assert shallower_than(base.MM_PLUS_MM, Symbolic(4096)) == ()


def test_a_sum_of_two_products_is_not_scaled():
    """Tiles may exceed the problem: only the warps of the smallest are fewer."""
    candidates = CUDA.candidates("mm_plus_mm", 16, 16, 1024)
    assert candidates == finalised(base.MM_PLUS_MM)
    assert max(config.block_m for config in candidates) == 128
    changed = [(row.id, config.id) for row, config in zip(base.MM_PLUS_MM, candidates, strict=True) if row != config]
    assert changed == [("32x32x128-s1-w8", "32x32x128-s1-w4")]
