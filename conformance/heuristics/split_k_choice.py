"""The choice of a split K: into how many parts the K of a deep product is worth dividing."""

from __future__ import annotations

#: Elements of K that each part has at least.
LEAST_DEPTH = 128


def decompose_k_splits(m: int, n: int, k: int, limit: int | None = 10) -> tuple[int, ...]:
    """Returns the numbers of equal parts into which the K of an (m, k) by (k, n) product is worth dividing. The most
    promising comes first, at most ``limit`` of them.

    They are the divisors d of K from 2 to min(K // M, K // N) with K / d of 128 or more. First come those with K / d a
    power of two, then a multiple of 32, then the rest. None for an empty product.

    >>> decompose_k_splits(64, 64, 16384, 3)
    (2, 4, 8)
    """
    if 0 in (m, n):
        return ()
    divisors = [d for d in range(2, min(k // max(m, n), k // LEAST_DEPTH) + 1) if k % d == 0]
    return tuple(sorted(divisors, key=lambda d: _awkwardness(k // d)))[:limit]


def _awkwardness(depth: int) -> int:
    if depth & (depth - 1) == 0:
        return 0
    return 1 if depth % 32 == 0 else 2
