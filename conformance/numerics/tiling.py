"""The tiles into which a kernel divides its product."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tiling:
    """``block`` is (BLOCK_M, BLOCK_N, BLOCK_K), ``splits`` how many parts K, or the keys of attention, have."""

    block: tuple[int, int, int]
    splits: int | None = None
