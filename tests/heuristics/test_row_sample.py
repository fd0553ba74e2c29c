"""The sample that the quick tier takes of a table."""

import pytest

from conformance.heuristics import base
from conformance.heuristics.rocm import ROCM
from conformance.heuristics.row_sample import covering_sample

TRAITS = {
    "tile": lambda config: config.tile,
    "stages": lambda config: config.num_stages,
    "warps": lambda config: config.num_warps,
}


def uncovered(sample, table):
    return {name for name, trait in TRAITS.items() if set(map(trait, sample)) != set(map(trait, table))}


@pytest.mark.parametrize("name", base.TABLES)
@pytest.mark.parametrize("device", [base.BASE, ROCM], ids=lambda device: device.name)
def test_sample_covers_every_tile_stage_and_warp_count(device, name):
    table = device.table(name)
    sample = covering_sample(table)
    assert uncovered(sample, table) == set()
    assert set(sample) <= set(table)
    assert len(set(sample)) == len(sample)
    assert covering_sample(table) == sample


def test_what_a_sample_leaves_out_is_seen():
    assert uncovered(base.MM[:3], base.MM) == {"tile", "stages"}


def test_sample_is_smaller_than_a_table_that_repeats_itself():
    assert len(covering_sample(base.SCALED_MM)) < len(base.SCALED_MM) / 2
    assert len(covering_sample(base.FLEX_BWD)) < len(base.FLEX_BWD)
    assert covering_sample(()) == ()
