"""CPUs: the base's tables with tiles of half the edge, and no large ones."""

from __future__ import annotations

from conformance.heuristics import base
from conformance.heuristics.device_class import DeviceClass
from conformance.heuristics.scaled_rows import Exclusion


def _large_mm(m: int, n: int, k: int) -> bool:
    return m * n > 2**13


def _large_bmm(m: int, n: int, k: int) -> bool:
    return max(m, n, k) > 128 or m * n > 2**12


def _large_conv(m: int, n: int, k: int) -> bool:
    return max(m, n, k) > 256 or m * n * k > 2**17


EXCLUDED: dict[str, Exclusion] = {
    **dict.fromkeys(base.PRODUCTS, _large_mm),
    "bmm": _large_bmm,
    "conv": _large_conv,
}

CPU = DeviceClass("cpu", base.TABLES, base.SPACES, scale=0.5, excluded=EXCLUDED)
