"""The map of wrong elements that a failing case's record holds."""

from __future__ import annotations

import torch

from conformance.execution.trial.explained_failures import MOST, wrong_tiles


def marked(shape, *where):
    bad = torch.zeros(shape, dtype=torch.bool)
    for index in where:
        bad[index] = True
    return bad


def test_each_wrong_element_is_counted_in_its_tile():
    tiles = wrong_tiles(marked((70, 40), (0, 0), (1, 1), (65, 33), (69, 39)), (64, 32))
    assert tiles == {"shape": (2, 2), "block": (64, 32), "rows": 70, "columns": 40, "wrong": [(0, 0, 2), (1, 1, 2)]}


def test_tiles_of_a_large_output_are_joined_and_no_element_is_lost():
    tiles = wrong_tiles(torch.ones(1000, 3, dtype=torch.bool), (2, 16))
    assert tiles["shape"] == (63, 1)
    assert tiles["block"] == (16, 16)
    assert sum(count for _, _, count in tiles["wrong"]) == 3000
    assert max(tiles["shape"]) <= MOST


def test_matrices_of_a_batch_lie_above_each_other():
    assert wrong_tiles(marked((2, 32, 16), (1, 0, 0)), (32, 16))["wrong"] == [(1, 0, 1)]


def test_a_number_is_one_tile():
    assert wrong_tiles(torch.tensor(True), (64, 64))["wrong"] == [(0, 0, 1)]
