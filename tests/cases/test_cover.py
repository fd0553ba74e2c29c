"""The cover: everything that must appear does, in few rows, and a row that is lost is seen."""

from __future__ import annotations

import itertools
import time

import pytest

from conformance.cases.config_space import covering_sample
from conformance.cases.cover import cover, in_turn
from conformance.heuristics import base
from conformance.heuristics.rocm import ROCM

PARAMETERS = {
    "own": list("abcdef"),
    "dtype": ["bf16", "fp16", "fp32"],
    "config": list(range(8)),
    "static": [False, True],
}
PAIRS = [("own", "dtype"), ("dtype", "static")]


def lacking(rows, parameters=PARAMETERS, pairs=(), times=1, free=(), possible=lambda part: True):
    """Returns what should appear in ``rows`` and does not: values, and pairs that appear less than ``times`` times."""
    names = list(parameters)
    shown = [dict(zip(names, row, strict=True)) for row in rows]
    values = [{name: value} for name in names if name not in free for value in parameters[name]]
    both = [
        {first: one, second: other}
        for first, second in pairs
        for one, other in itertools.product(parameters[first], parameters[second])
    ]
    required = [(part, 1) for part in values] + [(part, times) for part in both]
    return [
        part for part, count in required if possible(part) and sum(part.items() <= row.items() for row in shown) < count
    ]


def test_every_value_appears_and_no_more_rows_than_values():
    rows = cover(PARAMETERS)
    assert lacking(rows) == []
    assert len(rows) == len(PARAMETERS["config"])


@pytest.mark.parametrize("sizes", [(4,), (4, 2), (4, 2, 2), (3, 2, 2), (4, 2, 2, 3)])
def test_there_are_as_many_rows_as_values_of_the_longest_parameter(sizes):
    rows = cover({str(place): range(size) for place, size in enumerate(sizes)})
    assert [{row[place] for row in rows} for place in range(len(sizes))] == [set(range(size)) for size in sizes]
    assert len(rows) == max(sizes)


def test_every_pair_that_is_asked_for_appears():
    rows = cover(PARAMETERS, pairs=PAIRS)
    assert lacking(rows, pairs=PAIRS) == []
    assert len(rows) == 6 * 3
    assert lacking(cover(PARAMETERS), pairs=PAIRS), "the values alone do not show every pair"


def test_a_pair_that_is_named_three_times_appears_in_three_rows():
    rows = cover(PARAMETERS, pairs=[PAIRS[0]] * 3)
    assert lacking(rows, pairs=PAIRS[:1], times=3) == []
    assert len(set(rows)) == len(rows) == 3 * 6 * 3
    assert len(cover({"own": "ab", "dtype": ["bf16"]}, pairs=[("own", "dtype")] * 3)) == 2, "there are no other rows"


@pytest.mark.parametrize("pairs", [(), PAIRS])
def test_a_row_that_is_lost_is_seen(pairs):
    rows = cover(PARAMETERS, pairs=pairs)
    lost = [row for row in rows if lacking([other for other in rows if other != row], pairs=pairs)]
    assert len(lost) > len(rows) / 2


def allowed(part):
    """fp32 goes with config 0 only, and config 7 with bf16 only."""
    dtype, config = part.get("dtype"), part.get("config")
    return not (dtype == "fp32" and config not in (None, 0)) and not (config == 7 and dtype not in (None, "bf16"))


def test_what_is_not_possible_is_left_out_and_the_rest_appears():
    names = list(PARAMETERS)
    for pairs in ((), PAIRS, [("dtype", "config")]):
        rows = cover(PARAMETERS, pairs=pairs, possible=allowed)
        assert all(allowed(dict(zip(names, row, strict=True))) for row in rows)
        assert lacking(rows, pairs=pairs, possible=allowed) == []
    assert cover(PARAMETERS, possible=lambda part: "dtype" not in part) == []
    assert cover({"own": "ab", "dtype": []}) == []


def test_a_free_parameter_makes_no_row_and_is_used_evenly():
    rows = cover({**PARAMETERS, "target": list(range(20))}, free=("target",))
    assert len(rows) == len(PARAMETERS["config"])
    assert len({target for *_, target in rows}) == len(rows)
    assert len(cover({"own": "abcdef", "target": [1, 2]}, free=("target",))) == 6
    assert cover({"target": [1, 2]}, free=("target",)) == [(1,)]


def test_parameters_of_as_many_values_do_not_keep_in_step():
    rows = cover({"own": list(range(8)), "static": [False, True], "store": [False, True]})
    assert len({row[1:] for row in rows}) == 4


def test_rows_depend_on_the_arguments_only():
    assert cover(PARAMETERS, pairs=PAIRS) == cover(dict(PARAMETERS), pairs=list(PAIRS))


def test_a_hundred_thousand_combinations_take_no_more_time_than_their_values():
    parameters = {"own": list(range(48)), "dtype": list(range(8)), "config": list(range(20)), "target": list(range(14))}
    start = time.process_time()
    cover(parameters, pairs=[("own", "dtype")], free=("target",))
    assert time.process_time() - start < 5


def test_in_turn():
    assert [in_turn("abc", place) for place in (0, 2, 3)] == [list("abc"), list("cab"), list("abc")]
    assert in_turn("", 5) == []


# A sample of a table

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
