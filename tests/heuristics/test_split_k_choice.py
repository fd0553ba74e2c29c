"""Deep products are divided along K where that pays, into the most promising numbers of parts."""

import pytest

from conformance.heuristics.configs import decompose_k_splits


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
