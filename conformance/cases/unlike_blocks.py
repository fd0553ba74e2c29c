"""Configs none of whose numbers can stand for another."""

from __future__ import annotations

import dataclasses

from conformance.heuristics.configs import Config


def unlike_blocks(config: Config, group_m: int) -> Config:
    """Returns ``config`` with bands of ``group_m`` tile rows and three blocks that differ. BLOCK_N is 64 at most, and
    half of it if BLOCK_M is the same. BLOCK_K is the first of 32, 64 and 128 that differs from both."""
    block_n = min(config.block_n, 64)
    block_n = block_n // 2 if block_n == config.block_m else block_n
    block_k = next(size for size in (32, 64, 128) if size not in (config.block_m, block_n))
    return dataclasses.replace(config, block_n=block_n, block_k=block_k, group_m=group_m)
