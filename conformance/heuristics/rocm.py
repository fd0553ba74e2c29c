"""AMD: rows of its own for products and attention; the base's other rows with AMD's stages and options."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re

from conformance.heuristics import base
from conformance.heuristics.configs import AnyConfig, Config, FlexConfig, FlexDecodeConfig, Vendor
from conformance.heuristics.device_class import Capability, DeviceClass, by_head_dim, finalised_rocm, with_stages

#: num_stages of a row that has no number of its own: the default of Triton's AMD backend (3.4 to 3.9).
BACKEND_STAGES = 2


def options(matrix_instr_nonkdim: int = 16, waves_per_eu: int = 0, kpack: int = 2) -> Vendor:
    """AMD's compile options: the edge of the matrix instruction and the waves per execution unit (0: the compiler's
    choice). The third is how many K elements are packed per lane."""
    return (("matrix_instr_nonkdim", matrix_instr_nonkdim), ("waves_per_eu", waves_per_eu), ("kpack", kpack))


#: BLOCK_M x BLOCK_N x BLOCK_K, num_warps, GROUP_M and waves_per_eu of each row.
MM = """
    16x16x256-w4-g4-waves2
    32x16x256-w4-g4-waves0 32x32x16-w4-g8-waves2 32x32x128-w4-g8-waves0 32x64x64-w4-g8-waves0
    64x16x128-w4-g8-waves2 64x32x32-w4-g8-waves0 64x32x64-w4-g8-waves0 64x32x64-w8-g8-waves0 64x32x128-w4-g8-waves0
    64x64x16-w4-g8-waves0 64x64x64-w4-g4-waves0 64x64x128-w8-g16-waves0 64x64x256-w8-g4-waves0 64x128x32-w4-g4-waves2
    64x128x32-w8-g8-waves0 64x128x64-w8-g4-waves0 64x128x128-w8-g4-waves0
    128x32x32-w4-g8-waves0 128x32x64-w4-g8-waves0 128x64x32-w4-g8-waves2 128x64x64-w4-g16-waves0
    128x64x128-w8-g4-waves0 128x128x32-w4-g16-waves2 128x128x32-w8-g16-waves0 128x128x32-w8-g16-waves2
    128x128x64-w4-g16-waves0 128x128x64-w8-g8-waves0 128x128x128-w8-g16-waves0 128x256x32-w4-g16-waves2
    128x256x64-w8-g4-waves0
    256x64x64-w8-g4-waves0 256x128x32-w4-g4-waves2 256x128x32-w8-g16-waves0 256x128x64-w8-g4-waves0
    256x256x64-w8-g4-waves0
"""


def mm(num_stages: int = BACKEND_STAGES) -> tuple[Config, ...]:
    """Returns the rows of ``mm``, which have no stage count of their own."""
    rows = (map(int, re.findall(r"\d+", row)) for row in MM.split())
    return tuple(
        Config(m, n, k, num_stages, warps, group_m=group, vendor=options(waves_per_eu=waves))
        for m, n, k, warps, group, waves in rows
    )


FREE = options(0)  # attention leaves the matrix instruction to the compiler

FLEX_FWD = tuple(
    FlexConfig(m, n, 1, warps, vendor=FREE) for m in (16, 64, 128) for n in (16, 32, 64, 128) for warps in (4, 8)
)

FLEX_BWD = tuple(
    FlexConfig(m, n, 1, warps, vendor=options(edge))
    for m in (16, 32, 64)
    for n in (32, 64, 128)
    if n % m == 0
    for warps in ((4, 8) if n >= 128 else (4,))
    for edge in (0, 16)
)

FLEX_DECODE = tuple(FlexDecodeConfig(n, 1, warps, vendor=FREE) for warps in (4, 8) for n in (32, 64, 128))

#: Config of attention forward by (dtype, head dimension). For fp16 heads of 256, four warps where bf16 has eight, as
#: listed.
FLEX_FWD_DEFAULTS = by_head_dim(
    fp32=tuple(FlexConfig(m, n, 1, 4, vendor=FREE) for m, n in ((128, 32), (128, 32), (64, 16))),
    bf16=tuple(FlexConfig(m, n, 1, 8, vendor=FREE) for m, n in ((128, 64), (128, 64), (32, 64))),
    fp16=tuple(FlexConfig(m, n, 1, w, vendor=FREE) for m, n, w in ((128, 64, 8), (128, 64, 8), (32, 64, 4))),
)

# Exhaustive spaces.

WARPS = (4, 8)
FLEX_WARPS = (2, 4, 8)
GROUPS = (4, 8, 16)
MATRIX_EDGES = (0, 16)
WAVES = (0, 2)


def all_mm(num_stages: int = BACKEND_STAGES) -> tuple[Config, ...]:
    """Rows with one stage, which is not pipelined, and with ``num_stages``."""
    edges = (base.EDGES,) * 3
    space = itertools.product(*edges, _stages(num_stages), WARPS, GROUPS, MATRIX_EDGES, WAVES)
    return tuple(
        Config(m, n, k, stages, warps, group_m=group, vendor=options(edge, waves))
        for m, n, k, stages, warps, group, edge, waves in space
    )


def _stages(num_stages: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((1, num_stages)))


def _flex_options(num_stages: int) -> list[tuple[int, int, Vendor]]:
    return [
        (stages, warps, options(edge, waves))
        for stages, warps, edge in itertools.product(_stages(num_stages), FLEX_WARPS, MATRIX_EDGES)
        for waves in (0, 8 // warps)
    ]


class RocmDevices(DeviceClass):
    """AMD's device class. Attention's defaults do not depend on the capability."""

    def finalised(self, configs: tuple[Config, ...]) -> tuple[Config, ...]:
        return finalised_rocm(configs)

    def flex_fwd_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexConfig:
        if head_dim > 256:
            return FlexConfig(32 if dtype == "fp32" else 64, 16 if dtype == "fp32" else 32, 1, 4, vendor=FREE)
        usual = FlexConfig(64, 64, 1, 4, vendor=FREE) if dtype == "fp32" else FlexConfig(128, 64, 1, 8, vendor=FREE)
        return FLEX_FWD_DEFAULTS.get((dtype, head_dim), usual)

    def flex_bwd_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexConfig:
        if dtype == "fp32" or head_dim > 256:
            return FlexConfig(16, 16, 1, 4, vendor=FREE)
        return FlexConfig(64, 128, 1, 8, vendor=FREE) if head_dim == 128 else FlexConfig(64, 64, 1, 4, vendor=FREE)

    def flex_decode_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexDecodeConfig:
        return FlexDecodeConfig(64, 1, 4, vendor=FREE)


def rocm(num_stages: int = BACKEND_STAGES) -> RocmDevices:
    """AMD's device class where the compiler's default is ``num_stages``.

    The base's rows get that stage count and AMD's options, so that rows which differ only in their stages become one.
    A sum of two products is not pipelined.
    """
    own = {"mm": mm(num_stages), "bmm": mm(num_stages)}
    attention = {"flex_fwd": FLEX_FWD, "flex_bwd": FLEX_BWD, "flex_decode": FLEX_DECODE}
    shared = {}
    for name, configs in base.PRODUCTS.items():
        with_options = (dataclasses.replace(config, vendor=options()) for config in configs)
        shared[name] = with_stages(with_options, 1 if name == "mm_plus_mm" else num_stages)
    spaces = base.spaces(functools.partial(all_mm, num_stages), _flex_options(num_stages))
    tables: dict[str, tuple[AnyConfig, ...]] = {**shared, **own, **attention}
    return RocmDevices("rocm", tables, spaces)


ROCM = rocm()
