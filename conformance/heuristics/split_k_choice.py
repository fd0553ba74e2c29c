"""The choice of a split K: products so deep that their K is worth dividing, or their operand worth copying, first."""

from __future__ import annotations

from conformance.heuristics.scaled_rows import Size, Symbolic

#: Splits of a K, or bound on those of a known K, when the sizes do not say more.
USUAL_SPLITS = (16, 32, 64, 128, 256)
LEAST_DEPTH = 128


def is_decompose_k_profitable(m: Size, n: Size, k: Size, threshold: int = 32) -> bool:
    """Whether K is at least ``threshold`` times M and times N. False if a size is symbolic: it must be certain.

    Twice the threshold decides whether templates that do not split are still worth trying.
    """
    return _is_deep(m, n, k, threshold)


def decompose_k_splits(m: Size, n: Size, k: Size, limit: int | None = 10) -> tuple[int, ...]:
    """Into how many equal parts K is worth dividing, the most promising number first; at most ``limit`` of them.

    The divisors d of K from 2 to min(K // M, K // N), or 256 if M or N is symbolic, that leave K / d of 128 or more:
    first those with K / d a power of two, then a multiple of 32, then the rest. For a symbolic K the usual splits that
    are certain to divide it. None for an empty product.
    """
    if isinstance(k, Symbolic):
        return tuple(split for split in USUAL_SPLITS if k.multiple_of % split == 0)[:limit]
    if 0 in (m, n):
        return ()
    most = k // max(m, n) if isinstance(m, int) and isinstance(n, int) else USUAL_SPLITS[-1]
    divisors = [d for d in range(2, min(most, k // LEAST_DEPTH) + 1) if k % d == 0]
    return tuple(sorted(divisors, key=lambda d: _awkwardness(k // d)))[:limit]


def is_contiguous_profitable(m: Size, n: Size, k: Size) -> bool:
    """Whether copying a B that is not contiguous pays off: K is at least 16 times M and 16 times N, for certain."""
    return _is_deep(m, n, k, 16)


def _is_deep(m: Size, n: Size, k: Size, factor: int) -> bool:
    if isinstance(m, Symbolic) or isinstance(n, Symbolic) or isinstance(k, Symbolic):
        return False
    return min(m, n) > 0 and k >= factor * max(m, n)


def _awkwardness(depth: int) -> int:
    if depth & (depth - 1) == 0:
        return 0
    return 1 if depth % 32 == 0 else 2
