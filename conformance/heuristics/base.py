"""The base's tables: every device class lists these rows unless it has its own."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from conformance.heuristics.configs import AnyConfig, Config, FlexConfig, FlexDecodeConfig, Vendor
from conformance.heuristics.device_class import DeviceClass, Space, Tables, without_two_warps

# Rows of products and convolutions are written as the ids that cases show: BLOCK_M x BLOCK_N x BLOCK_K, then how many
# stages and warps. GROUP_M is 8.


def _rows(ids: str) -> tuple[Config, ...]:
    """Returns the configs with these ids."""
    return tuple(Config(*map(int, re.findall(r"\d+", row))) for row in ids.split())


MM = _rows(
    """
    32x32x16-s1-w2 32x32x128-s2-w4 32x64x32-s5-w8
    64x32x32-s5-w8 64x32x128-s5-w4 64x64x16-s2-w4 64x64x32-s2-w4 64x64x64-s3-w8 64x64x128-s5-w4 64x128x32-s3-w4
    64x128x32-s4-w8 64x128x64-s3-w4 64x128x128-s4-w4
    128x64x32-s3-w4 128x64x32-s4-w8 128x128x32-s2-w8 128x128x32-s3-w4 128x128x64-s3-w4 128x128x64-s5-w8
    """
)

#: Tried in addition to ``MM`` where a learned heuristic ranks the rows.
EXTRA_MM = _rows(
    """
    16x32x16-s3-w2 16x32x32-s4-w2 16x32x32-s5-w2
    64x64x128-s3-w4
    128x64x32-s2-w2 128x64x64-s3-w8 128x64x128-s4-w8 128x128x32-s4-w4 128x128x64-s3-w8 128x128x64-s5-w4
    """
)

INT8_MM = _rows(
    """
    64x64x32-s2-w4 64x128x32-s3-w4 128x64x32-s3-w4 64x128x32-s4-w8 128x64x32-s4-w8 64x32x32-s5-w8 32x64x32-s5-w8
    128x128x32-s2-w8 64x64x64-s3-w8 128x256x128-s3-w8 256x128x128-s3-w8
    """
)

#: For small M: tried in addition to ``MM``.
MIXED_MM = _rows("16x128x256-s3-w4 16x128x256-s5-w8")

PERSISTENT_MM = _rows(
    """
    128x256x64-s3-w8 128x128x64-s3-w8 128x128x128-s3-w8 128x128x128-s3-w4 128x128x64-s4-w8 128x128x64-s5-w8
    256x128x64-s4-w8 128x128x64-s5-w4
    """
)

#: 17 large tiles, then 16- and 32-row tiles with 2 to 6 stages: two warps up to 64 columns, four above.
SCALED_MM = _rows(
    """
    128x256x32-s3-w8 256x128x32-s3-w8 256x64x32-s4-w4 64x256x32-s4-w4 128x128x32-s4-w4 128x64x32-s4-w4
    64x128x32-s4-w4 128x32x32-s4-w4 64x32x32-s5-w2 256x128x128-s3-w8 256x64x128-s4-w4 64x256x128-s4-w4
    128x128x128-s4-w4 128x64x64-s4-w4 64x128x64-s4-w4 128x32x64-s4-w4 64x32x64-s5-w2
    """
) + tuple(
    Config(m, n, k, stages, 2 if n <= 64 else 4)
    for stages in (2, 3, 4, 5, 6)
    for m in (16, 32)
    for k in (32, 64)
    for n in (32, 64, 128, 256)
)

SCALED_PERSISTENT_MM = _rows(
    """
    128x128x64-s3-w8 128x128x128-s3-w8 128x128x128-s4-w8 128x128x128-s4-w4 128x128x128-s3-w4 128x128x128-s5-w4
    128x128x128-s5-w8 128x128x128-s6-w8 128x128x64-s4-w8
    """
)

#: The last two rows are the harness's own: wide tiles, fastest for fp8 on an H200.
PERSISTENT_FP8 = SCALED_PERSISTENT_MM + _rows("128x256x128-s3-w8 128x256x128-s4-w8")

MM_PLUS_MM = _rows(
    """
    64x64x32-s2-w4 64x64x32-s3-w8 64x64x32-s4-w16 64x32x32-s4-w8 32x64x32-s4-w8 128x128x32-s1-w8 64x64x64-s1-w8
    32x32x128-s1-w8 64x64x16-s2-w4 32x32x16-s1-w2
    """
)

#: Convolutions have no GROUP_M: their programs are not reordered.
CONV = _rows(
    """
    64x256x16-s2-w4 256x64x16-s2-w4 1024x16x16-s1-w8 128x128x32-s2-w8 64x64x32-s2-w4 64x256x32-s2-w8 256x64x32-s2-w8
    """
)

# Attention. Columns: BLOCK_M, BLOCK_N, num_stages, num_warps; with few queries BLOCK_N, num_stages, num_warps.

FLEX_FWD = (
    FlexConfig(128, 64, 3, 4),
    FlexConfig(128, 128, 3, 4),
    FlexConfig(128, 128, 2, 8),
    FlexConfig(64, 128, 3, 4),
    FlexConfig(64, 64, 3, 4),
)

FLEX_BWD = tuple(
    FlexConfig(m, n, stages, warps)
    for m in (32, 64)
    for n in (32, 64, 128)
    if n % m == 0
    for stages in (1, 3, 4, 5)
    for warps in ((4, 8) if n >= 128 else (4,))
)

FLEX_DECODE = (FlexDecodeConfig(64, 3, 2), FlexDecodeConfig(32, 3, 2), FlexDecodeConfig(128, 3, 2))

PRODUCTS: Mapping[str, tuple[Config, ...]] = MappingProxyType(
    {
        "mm": MM,
        "bmm": MM,
        "extra_mm": EXTRA_MM,
        "int8_mm": INT8_MM,
        "mixed_mm": MIXED_MM,
        "persistent_mm": PERSISTENT_MM,
        "scaled_mm": SCALED_MM,
        "scaled_persistent_mm": SCALED_PERSISTENT_MM,
        "persistent_fp8": PERSISTENT_FP8,
        "mm_plus_mm": MM_PLUS_MM,
        "conv": CONV,
    }
)

TABLES: Tables = MappingProxyType({**PRODUCTS, "flex_fwd": FLEX_FWD, "flex_bwd": FLEX_BWD, "flex_decode": FLEX_DECODE})

# Exhaustive spaces.

EDGES = (16, 32, 64, 128, 256)
STAGES = (1, 2, 3, 4, 5)
WARPS = (2, 4, 8)
FLEX_STAGES = (1, 3, 4, 5)
#: Table -> its class of config, and the tiles of its exhaustive space.
FLEX_TILES: Mapping[str, tuple[type[FlexConfig] | type[FlexDecodeConfig], tuple[tuple[int, ...], ...]]] = {
    "flex_fwd": (FlexConfig, tuple(itertools.product((16, 32, 64, 128), (32, 64, 128)))),
    "flex_bwd": (FlexConfig, tuple(t for t in itertools.product((16, 32, 64, 128), repeat=2) if t[1] % t[0] == 0)),
    "flex_decode": (FlexDecodeConfig, ((16,), (32,), (64,), (128,))),
}


def all_mm() -> tuple[Config, ...]:
    return tuple(itertools.starmap(Config, itertools.product(EDGES, EDGES, EDGES, STAGES, WARPS)))


def spaces(
    mm: Callable[[], tuple[Config, ...]], flex_options: Iterable[tuple[int, int, Vendor]]
) -> Mapping[str, Space]:
    """The exhaustive spaces by the name of their table.

    ``mm`` enumerates that of products; attention's have each tile with each (num_stages, num_warps, vendor options).
    """
    options = tuple(flex_options)

    def flex(name: str) -> tuple[AnyConfig, ...]:
        make, tiles = FLEX_TILES[name]
        return tuple(make(*tile, *rest, vendor=vendor) for tile, (*rest, vendor) in itertools.product(tiles, options))

    attention = {name: functools.partial(flex, name) for name in FLEX_TILES}
    return MappingProxyType({"mm": mm, "bmm": mm, "persistent_mm": lambda: without_two_warps(mm()), **attention})


SPACES = spaces(all_mm, itertools.product(FLEX_STAGES, WARPS, ((),)))

BASE = DeviceClass("base", TABLES, SPACES)
