"""The tiles of one matrix of outputs."""

from __future__ import annotations

from typing import Any

from conformance.families.family import Tiles


def tiles_of(rows: int, columns: int, config: Any, matrices: int = 1) -> Tiles | None:
    """Returns the blocks of ``config`` that cover ``matrices`` matrices of (rows, columns); None for a config that has
    no ``block_m`` or no ``block_n``.

    >>> import types
    >>> tiles_of(100, 64, types.SimpleNamespace(block_m=32, block_n=64))
    (4, 1, 1)
    """
    block_m, block_n = (getattr(config, name, None) for name in ("block_m", "block_n"))
    return (-(-rows // block_m), -(-columns // block_n), matrices) if block_m and block_n else None
