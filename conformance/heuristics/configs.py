"""Configs: the tile sizes and compile options of one launch, one class per kernel family.

They are immutable, so that no caller can change a table. Only tile sizes, stages and warps are positional: a field that
is added later cannot take the value of another.

Estimates of what a row needs, and the number of parts of a split K, are here too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

Vendor = tuple[tuple[str, int], ...]
Way = TypeVar("Way")


class AnyConfig:
    """The base of all configs: a stable ``id``, compile ``options`` and the ``tile`` sizes.

    ``vendor`` holds options of one backend, such as AMD's ``waves_per_eu``, in the order in which they are listed.
    """

    num_stages: int
    num_warps: int
    vendor: Vendor
    #: whether warps have different work in its loops
    specialised = False
    #: whether attention has one loop over all keys
    merged = False

    @cached_property
    def tile(self) -> tuple[int, ...]:
        """The block sizes, in the order of the fields."""
        return tuple(size for name, size in vars(self).items() if name.startswith("block_"))

    @cached_property
    def id(self) -> str:
        """Stable text such as ``128x128x64-s3-w8``."""
        text = f"{'x'.join(map(str, self.tile))}-s{self.num_stages}-w{self.num_warps}"
        return text + self._id_suffix + "".join(f"-{name}{value}" for name, value in self.vendor)

    @property
    def _id_suffix(self) -> str:
        return ""

    def in_variant(self, usual: Way) -> Way:
        """``usual``, the variant of a kernel, as this config has it."""
        return usual

    @property
    def options(self) -> dict[str, int]:
        """Keyword options of the compiler."""
        return {"num_stages": self.num_stages, "num_warps": self.num_warps, **dict(self.vendor)}


@dataclass(frozen=True)
class Config(AnyConfig):
    """Config of a GEMM or convolution. GROUP_M shows in the id when it is not 8; convolutions do not use it."""

    block_m: int
    block_n: int
    block_k: int
    num_stages: int
    num_warps: int
    group_m: int = field(default=8, kw_only=True)
    vendor: Vendor = field(default=(), kw_only=True)

    @property
    def _id_suffix(self) -> str:
        return "" if self.group_m == 8 else f"-g{self.group_m}"


@dataclass(frozen=True)
class TemplateConfig(Config):
    """Config that also says in how many column blocks a tile is stored, and whether the loops over tiles and over k are
    one."""

    epilogue_subtile: int = field(default=1, kw_only=True)
    flatten: bool = field(default=True, kw_only=True)

    @property
    def _id_suffix(self) -> str:
        return f"{super()._id_suffix}-sub{self.epilogue_subtile}-{'flat' if self.flatten else 'nested'}"

    def in_variant(self, usual: Way) -> Way:
        return dataclasses.replace(usual, epilogue_subtile=self.epilogue_subtile, flatten=self.flatten)  # type: ignore[type-var]


@dataclass(frozen=True)
class ChainedConfig(Config):
    """Config of a product that multiplies ``chain`` k-blocks in each turn of its loop."""

    chain: int = field(default=2, kw_only=True)

    @property
    def _id_suffix(self) -> str:
        return f"{super()._id_suffix}-chain{self.chain}"


@dataclass(frozen=True)
class BatchConfig(Config):
    """Config of a batch of products whose tiles have several ``matrices`` each."""

    matrices: int = field(default=2, kw_only=True)

    @property
    def _id_suffix(self) -> str:
        return f"{super()._id_suffix}-z{self.matrices}"


@dataclass(frozen=True)
class DepthwiseConfig(AnyConfig):
    """Config of a depthwise convolution: ``block_m`` output positions by ``block_n`` output channels of all groups."""

    block_m: int
    block_n: int
    num_stages: int
    num_warps: int
    vendor: Vendor = field(default=(), kw_only=True)


@dataclass(frozen=True)
class SpecialisedConfig(Config):
    """Config that says in which ``loop`` warps have different work, and which operands are loaded by descriptors.

    ``loop``: "inner" is that over k, "outer" that over tiles with the other inside it, "flat" the two as one.
    ``described``: "ab", "a", "b", or "" where both operands are loaded by pointers.
    """

    loop: str = field(default="outer", kw_only=True)
    described: str = field(default="ab", kw_only=True)

    @property
    def _id_suffix(self) -> str:
        loads = f"tma.{self.described}" if self.described else "pointers"
        return f"{super()._id_suffix}-{self.loop}-{loads}"


@dataclass(frozen=True)
class FlexConfig(AnyConfig):
    """Config of attention forward (queries x keys per step) or backward. Backward, ``block_m`` is the query block of
    dK/dV and the key block of dQ. ``block_n`` is the key block of dK/dV and the query block of dQ."""

    block_m: int
    block_n: int
    num_stages: int
    num_warps: int
    vendor: Vendor = field(default=(), kw_only=True)


@dataclass(frozen=True)
class SpecialisedFlexConfig(FlexConfig):
    """Config of attention forward that says whether the loops over keys are warp-specialised, and whether there is one
    loop. ``merged`` handles blocks that all queries see in the loop for those with a mask. The id of a specialised one
    ends with "-one" or "-several", the loops that it has."""

    specialised: bool = field(default=True, kw_only=True)
    merged: bool = field(default=False, kw_only=True)

    @property
    def _id_suffix(self) -> str:
        loops = "-one" if self.merged else "-several" if self.specialised else ""
        return ("-specialised" if self.specialised else "") + loops


@dataclass(frozen=True)
class FlexBackwardConfig(FlexConfig):
    """Config of attention backward with blocks of its own for dQ: ``block_m2`` queries by ``block_n2`` keys."""

    block_m2: int = field(kw_only=True)
    block_n2: int = field(kw_only=True)


@dataclass(frozen=True)
class FlexDecodeConfig(AnyConfig):
    """Config of attention with few queries: ``block_n`` keys per step."""

    block_n: int
    num_stages: int
    num_warps: int
    vendor: Vendor = field(default=(), kw_only=True)


@dataclass(frozen=True)
class LinearAttentionConfig(AnyConfig):
    """Config of linear attention: ``block_t`` positions per step, and ``block_v`` columns of v per program."""

    block_t: int
    block_v: int
    num_stages: int
    num_warps: int
    vendor: Vendor = field(default=(), kw_only=True)


@dataclass(frozen=True)
class RowConfig(AnyConfig):
    """Config of a function of rows: ``block_m`` rows per program, and ``block_n`` columns per step."""

    block_m: int
    block_n: int
    num_stages: int
    num_warps: int
    vendor: Vendor = field(default=(), kw_only=True)


#: 32-bit registers that one thread of an NVIDIA GPU can address, and threads of a warp there.
REGISTERS_PER_THREAD, WARP_SIZE = 255, 32


def shared_memory(config: Config, dtype_size: int) -> int:
    """Estimated bytes of shared memory: one tile of A and one of B, of ``dtype_size`` bytes an element, per stage.

    The accumulator's staging, descriptors and barriers are not counted, and both operands have one size.
    """
    return dtype_size * config.block_k * (config.block_m + config.block_n) * config.num_stages


def accumulator_registers(config: Config) -> int:
    """32-bit registers that each thread needs for the accumulator alone, rounded up."""
    return -(-config.block_m * config.block_n // (WARP_SIZE * config.num_warps))


def pruned(configs: Iterable[Config], dtype_size: int | None, shared_memory_limit: int | None) -> tuple[Config, ...]:
    """Returns the rows whose estimates fit ``shared_memory_limit`` (bytes per block) and a thread's registers.

    Raises ValueError without a positive ``dtype_size`` and limit: no estimate can be made then.
    """
    for name, value in (("dtype_size", dtype_size), ("shared_memory_limit", shared_memory_limit)):
        if value is None or value < 1:
            raise ValueError(
                f"{name} is {value!r}: an exhaustive space is pruned by bytes. Give the bytes of one element of an "
                "operand as dtype_size, and the target's limits.shared_memory as shared_memory_limit"
            )
    assert dtype_size is not None
    assert shared_memory_limit is not None
    return tuple(
        config
        for config in configs
        if shared_memory(config, dtype_size) <= shared_memory_limit
        and accumulator_registers(config) <= REGISTERS_PER_THREAD
    )


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
