"""Which deep products are worth dividing along K, and into how many parts."""

import pytest

from conformance.heuristics.scaled_rows import Symbolic
from conformance.heuristics.split_k_choice import (
    decompose_k_splits,
    is_contiguous_profitable,
    is_decompose_k_profitable,
)


@pytest.mark.parametrize(
    ("sizes", "splits"),
    [
        # All parts are powers of two: up to K // M = 1024 of them, but none below 128 deep.
        ((32, 32, 32768), (2, 4, 8, 16, 32, 64, 128, 256)),
        ((4096, 4096, 32768), (2, 4, 8)),
        # 512 * 15: parts of 512, 256 and 128 first, then multiples of 32, then 240.
        ((32, 32, 7680), (15, 30, 60, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 40, 48, 32)),
        # 2 * 3 * 5 * 7 * 11: no part is a multiple of 32.
        ((32, 32, 2310), (2, 3, 5, 6, 7, 10, 11, 14, 15)),
        # 512 * 3: parts of 512, 256 and 128, then of 768, 384 and 192.
        ((4, 4, 1536), (3, 6, 12, 2, 4, 8)),
        ((256, 1024, 2048), (2,)),
        ((2048, 2048, 2048), ()),
        ((32, 32, 131), ()),
        ((32, 32, 0), ()),
        ((0, 32, 32768), ()),
    ],
)
def test_divisors_in_order_of_promise(sizes, splits):
    assert decompose_k_splits(*sizes, limit=None) == splits
    assert decompose_k_splits(*sizes) == splits[:10]
    assert decompose_k_splits(*sizes, limit=0) == ()


def test_symbolic_rows_allow_up_to_256_parts():
    assert decompose_k_splits(Symbolic(4096), 4096, 65536, limit=None) == (2, 4, 8, 16, 32, 64, 128, 256)


def test_symbolic_depth_is_divided_by_what_is_certain_to_divide_it():
    assert decompose_k_splits(32, 32, Symbolic(32768)) == ()
    assert decompose_k_splits(32, 32, Symbolic(32768, multiple_of=64)) == (16, 32, 64)
    assert decompose_k_splits(32, 32, Symbolic(32768, multiple_of=768)) == (16, 32, 64, 128, 256)


@pytest.mark.parametrize(
    ("rule", "factor"), [(is_decompose_k_profitable, 32), (is_contiguous_profitable, 16)], ids=["decompose", "copy"]
)
def test_depth_is_compared_with_both_sides(rule, factor):
    assert rule(100, 64, 100 * factor)
    assert rule(64, 100, 100 * factor)
    assert not rule(100, 64, 100 * factor - 1)
    assert not rule(64, 100, 100 * factor - 1)
    assert not rule(0, 100, 10**6)
    assert not any(
        rule(*sizes) for sizes in [(Symbolic(1), 1, 10**6), (1, Symbolic(1), 10**6), (1, 1, Symbolic(10**6))]
    )


def test_threshold_is_the_callers():
    assert is_decompose_k_profitable(64, 64, 256, threshold=4)
    assert not is_decompose_k_profitable(64, 64, 256, threshold=8)
