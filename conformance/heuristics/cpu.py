"""CPUs: the base's tables with tiles of half the edge, and no large ones."""

from __future__ import annotations

from conformance.heuristics import base
from conformance.heuristics.device_class import DeviceClass
from conformance.heuristics.scaled_rows import Exclusion

EXCLUDED: dict[str, Exclusion] = {
    **dict.fromkeys(base.PRODUCTS, lambda m, n, k: m * n > 2**13),
    "bmm": lambda m, n, k: max(m, n, k) > 128 or m * n > 2**12,
    "conv": lambda m, n, k: max(m, n, k) > 256 or m * n * k > 2**17,
}

CPU = DeviceClass("cpu", base.TABLES, base.SPACES, scale=0.5, excluded=EXCLUDED)
