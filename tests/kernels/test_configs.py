"""The published tables, and the sample that the quick tier takes of them."""

import pytest

from conformance.kernels import configs


@pytest.mark.parametrize(
    ("table", "count"),
    [(configs.MM, 19), (configs.PERSISTENT, 8), (configs.SCALED, 97), (configs.SCALED_PERSISTENT, 9)],
    ids=["mm", "persistent", "scaled", "scaled-persistent"],
)
def test_tables_have_as_many_distinct_rows_as_published(table, count):
    assert len(table) == len(set(table)) == count


def test_persistent_tables_have_no_row_with_two_warps():
    """Two warps are not safe for TMA."""
    assert all(config.num_warps != 2 for config in configs.PERSISTENT + configs.SCALED_PERSISTENT)


@pytest.mark.parametrize("table", [configs.MM, configs.PERSISTENT, configs.SCALED, configs.PERSISTENT_FP8])
def test_sample_covers_every_tile_stage_and_warp_count(table):
    sample = configs.covering_sample(table)
    for trait in (lambda c: (c.block_m, c.block_n, c.block_k), lambda c: c.num_stages, lambda c: c.num_warps):
        assert {trait(config) for config in sample} == {trait(config) for config in table}
    assert set(sample) <= set(table)


def test_id_names_what_differs():
    config = configs.MM[0]
    assert config.id == "32x32x16-s1-w2"
    assert configs.Config(64, 64, 32, 2, 4, 4, (("waves_per_eu", 2),)).id == "64x64x32-s2-w4-g4-waves_per_eu2"
