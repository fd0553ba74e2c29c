"""Each distinct config is launched once, with warps that fit its tile."""

from conformance.heuristics import base, rocm
from conformance.heuristics.configs import Config
from conformance.heuristics.device_class import finalised, finalised_rocm, with_stages, without_two_warps
from conformance.heuristics.lookup import CUDA
from conformance.heuristics.rocm import options


def test_a_warp_has_at_least_256_elements():
    tiles = [Config(16, 16, 16, 1, 8), Config(16, 32, 16, 1, 8), Config(64, 64, 16, 1, 8), Config(8, 16, 16, 1, 8)]
    assert [config.num_warps for config in finalised(tiles)] == [1, 2, 8, 1]


def test_repetitions_go_and_order_stays():
    first, second = Config(16, 16, 16, 1, 1), Config(32, 32, 16, 1, 4)
    assert finalised([Config(16, 16, 16, 1, 8), second, first, Config(32, 32, 16, 1, 8)]) == (first, second)


def test_configs_that_differ_in_group_are_distinct():
    rows = [Config(32, 32, 16, 1, 4), Config(32, 32, 16, 1, 4, group_m=4)]
    assert finalised(rows) == tuple(rows)


def test_first_configs_of_a_small_product():
    """10 x 30 x 22, by hand: tiles shrink to 16 x 32 x 32 at most, and 512 elements feed two warps."""
    ids = [config.id for config in CUDA.candidates("mm", 10, 30, 22)[:4]]
    assert ids == ["16x32x16-s1-w2", "16x32x32-s2-w2", "16x32x32-s5-w2", "16x32x16-s2-w2"]


def test_rows_that_the_matrix_instruction_does_not_divide_are_dropped():
    rows = [
        Config(24, 32, 16, 1, 1, vendor=options(16)),
        Config(32, 24, 16, 1, 1, vendor=options(16)),
        Config(24, 32, 16, 1, 1, vendor=options(0)),
        Config(32, 32, 16, 1, 1, vendor=options(16)),
    ]
    assert finalised_rocm(rows) == (rows[2], rows[3])


def test_occupancy_follows_the_warps_before_repetitions_are_looked_for():
    """2 and 4 waves per execution unit become the same number, so one of the two rows is a repetition."""
    rows = [Config(64, 64, 64, 2, 4, vendor=options(waves_per_eu=waves)) for waves in (4, 2, 0)]
    expected = [Config(64, 64, 64, 2, 4, vendor=options(waves_per_eu=waves)) for waves in (2, 0)]
    assert finalised_rocm(rows) == tuple(expected)
    (small,) = finalised_rocm([Config(16, 16, 16, 2, 4, vendor=options(waves_per_eu=2))])
    assert (small.num_warps, small.vendor) == (1, options(waves_per_eu=8))


def test_results_do_not_depend_on_what_was_asked_before():
    """Warps and stages were once changed in the shared rows themselves."""
    rows = rocm.ROCM.table("mm_plus_mm")
    before = [config.id for config in rows]
    first = rocm.ROCM.candidates("mm_plus_mm", 16, 16, 64)
    with_stages(rows, 7)
    finalised_rocm(rows)
    assert rocm.ROCM.candidates("mm_plus_mm", 16, 16, 64) == first
    assert [config.id for config in rows] == before
    assert [config.id for config in first] != before[: len(first)]


def test_stages_are_those_asked_for():
    rows = [Config(64, 64, 64, 3, 4), Config(64, 64, 64, 5, 4), Config(64, 64, 32, 5, 4)]
    assert with_stages(rows, 1) == (Config(64, 64, 64, 1, 4), Config(64, 64, 32, 1, 4))


def test_two_warps_are_left_out_for_descriptors():
    rows = [Config(64, 64, 64, 3, warps) for warps in (1, 2, 4)]
    assert [config.num_warps for config in without_two_warps(rows)] == [1, 4]


def test_convolutions_have_no_group():
    assert {config.group_m for config in base.CONV} == {8}
    assert all("-g" not in config.id for config in base.CONV)
