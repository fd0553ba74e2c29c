"""Final rows: the last step from scaled rows to configs that are launched."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from conformance.heuristics.configs import Config

#: A warp computes at least a 16 x 16 tile.
ELEMENTS_PER_WARP = 256


def finalised(configs: Iterable[Config]) -> tuple[Config, ...]:
    """``configs`` in their order, with no more warps than the tile has work for; rows that become equal appear
    once."""
    return tuple(dict.fromkeys(map(_with_fitting_warps, configs)))


def finalised_rocm(configs: Iterable[Config]) -> tuple[Config, ...]:
    """:func:`finalised` for AMD: without tiles that the matrix instruction does not divide, and with AMD's occupancy.

    A row whose ``matrix_instr_nonkdim`` is not 0 needs BLOCK_M and BLOCK_N divisible by it. A ``waves_per_eu`` other
    than 0 becomes 8 // num_warps, before repetitions are looked for.
    """
    return tuple(dict.fromkeys(_rocm(map(_with_fitting_warps, configs))))


def with_stages(configs: Iterable[Config], num_stages: int) -> tuple[Config, ...]:
    """``configs`` with ``num_stages`` each; rows that become equal appear once."""
    return tuple(dict.fromkeys(dataclasses.replace(config, num_stages=num_stages) for config in configs))


def without_two_warps(configs: Iterable[Config]) -> tuple[Config, ...]:
    """``configs`` for a persistent kernel with TMA, which is not safe with two warps."""
    return tuple(config for config in configs if config.num_warps != 2)


def _with_fitting_warps(config: Config) -> Config:
    most = max(config.block_m * config.block_n // ELEMENTS_PER_WARP, 1)
    return config if config.num_warps <= most else dataclasses.replace(config, num_warps=most)


def _rocm(configs: Iterable[Config]) -> Iterator[Config]:
    for config in configs:
        edge = dict(config.vendor).get("matrix_instr_nonkdim", 0)
        if edge and (config.block_m % edge or config.block_n % edge):
            continue
        vendor = tuple(
            (name, 8 // config.num_warps if name == "waves_per_eu" and value else value)
            for name, value in config.vendor
        )
        yield config if vendor == config.vendor else dataclasses.replace(config, vendor=vendor)
