"""A device class: its tables, how rows are scaled to a problem, and how they become configs that are launched."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from conformance.heuristics.configs import AnyConfig, Config, FlexConfig, FlexDecodeConfig, pruned

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


#: The smallest tile edge of a matrix product, and the smallest BLOCK_K of one with 8-bit integers.
LEAST_EDGE, LEAST_INT8_DEPTH = 16, 32

Exclusion = Callable[[int, int, int], bool]
T = TypeVar("T")


@dataclass(frozen=True)
class Symbolic:
    """A size that is known only when the kernel runs; ``expected`` elements are assumed."""

    expected: int


Size = int | Symbolic


def scaled(
    configs: Iterable[Config],
    m: Size,
    n: Size,
    k: Size,
    *,
    scale: float = 1,
    int8: bool = False,
    exclude: Exclusion | None = None,
    hint: int | None = None,
) -> tuple[Config, ...]:
    """``configs`` with blocks cut down to an (m, k) by (k, n) product, in their order.

    A block of ``edge`` elements becomes one of max(min(int(edge * scale), P), floor). P is the next power of two of the
    product's size in that dimension, at least the floor. The floor is 16, and 32 for BLOCK_K if ``int8``. A row is left
    out if ``exclude`` is true of its three new blocks. A symbolic size is taken to be ``hint``, or without a hint what
    is expected of it. For a convolution m, n and k are batch x output positions, output channels and input channels.
    """
    floors = (LEAST_EDGE, LEAST_EDGE, LEAST_INT8_DEPTH if int8 else LEAST_EDGE)
    bounds = [max(next_power_of_2(_count(size, hint)), floor) for size, floor in zip((m, n, k), floors, strict=True)]
    return _cut_down(tuple(configs), tuple(bounds), floors, scale, exclude)


@functools.lru_cache(maxsize=4096)  # many products have the same bounds
def _cut_down(
    configs: tuple[Config, ...],
    bounds: tuple[int, ...],
    floors: tuple[int, ...],
    scale: float,
    exclude: Exclusion | None,
) -> tuple[Config, ...]:
    rows = []
    for config in configs:
        edges = zip(config.tile, bounds, floors, strict=True)
        block_m, block_n, block_k = (max(min(int(edge * scale), bound), floor) for edge, bound, floor in edges)
        if exclude is None or not exclude(block_m, block_n, block_k):
            rows.append(dataclasses.replace(config, block_m=block_m, block_n=block_n, block_k=block_k))
    return tuple(rows)


def by_hint(candidates: Callable[[int | None], tuple[T, ...]], hints: Iterable[int]) -> dict[int | None, tuple[T, ...]]:
    """``candidates(hint)`` by hint: for no hint (None) first, then for each of ``hints``.

    A hint is left out if one before it gives the same candidates. If all sizes are known, every hint is.
    """
    groups: dict[int | None, tuple[T, ...]] = {None: candidates(None)}
    for hint in hints:
        group = candidates(hint)
        if group not in groups.values():
            groups[hint] = group
    return groups


def shallower_than(configs: Iterable[Config], k: Size) -> tuple[Config, ...]:
    """Returns the rows with BLOCK_K below ``k``. A sum of two products takes no others, because the compiler crashed
    when BLOCK_K was K (triton issue 1298). No row is below a symbolic ``k``."""
    return tuple(config for config in configs if isinstance(k, int) and config.block_k < k)


def next_power_of_2(number: int) -> int:
    """The least power of two that is not below ``number``; 1 for zero.

    >>> next_power_of_2(48), next_power_of_2(64), next_power_of_2(0)
    (64, 64, 1)
    """
    return 1 << max(number - 1, 0).bit_length()


def _count(size: Size, hint: int | None) -> int:
    if isinstance(size, int):
        return size
    return size.expected if hint is None else hint


Tables = Mapping[str, tuple[AnyConfig, ...]]
Space = Callable[[], tuple[AnyConfig, ...]]
Capability = tuple[int, int]

#: Tables of kernels that load through descriptors and loop over tiles.
PERSISTENT = ("persistent_mm", "scaled_persistent_mm", "persistent_fp8")

#: Head dims, in elements, by which attention's defaults differ. Three were measured on an A100 and an H100; one lies
#: between them and one beyond them.
HEAD_DIMS = (64, 96, 128, 256, 512)
MEASURED_HEAD_DIMS = (64, 128, 256)


def by_head_dim(**configs: tuple[FlexConfig, ...]) -> dict[tuple[str, int], FlexConfig]:
    """(dtype, head dim) -> config, from one config for each of ``MEASURED_HEAD_DIMS`` by dtype."""
    return {
        (dtype, head_dim): config
        for dtype, row in configs.items()
        for head_dim, config in zip(MEASURED_HEAD_DIMS, row, strict=True)
    }


@dataclass(frozen=True, eq=False)
class DeviceClass:
    """Tables and defaults of one kind of device.

    ``tables`` holds the listed rows by the name of their table, ``spaces`` the functions that enumerate the exhaustive
    ones. ``scale`` multiplies the edges of every tile, before they are cut down to the problem's size. ``excluded``
    holds, by table, a function of the scaled edges (m, n, k) that is true for tiles that are never used. A vendor makes
    an instance with its own tables, which may hold those of :data:`conformance.heuristics.base.TABLES`, and a subclass
    to change the methods.
    """

    name: str
    tables: Tables
    spaces: Mapping[str, Space] = field(default_factory=dict)
    scale: float = 1
    excluded: Mapping[str, Exclusion] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Read-only copies: a caller who changes a dictionary or list later does not change what is tested.
        tables = {name: tuple(configs) for name, configs in self.tables.items()}
        for name, value in (("tables", tables), ("spaces", self.spaces), ("excluded", self.excluded)):
            object.__setattr__(self, name, MappingProxyType(dict(value)))

    def table(self, name: str) -> tuple[AnyConfig, ...]:
        """Returns the listed rows of the table ``name``. Raises KeyError if there is no such table."""
        if name not in self.tables:
            raise KeyError(f"device class {self.name!r} has no table {name!r}: use one of {', '.join(self.tables)}")
        return self.tables[name]

    def exhaustive(self, name: str) -> tuple[AnyConfig, ...]:
        """Returns the enumerated rows for the table ``name``. Raises KeyError if it has no exhaustive space."""
        if name not in self.spaces:
            raise KeyError(
                f"device class {self.name!r} has no exhaustive space {name!r}: use one of {', '.join(self.spaces)}"
            )
        return self.spaces[name]()

    def rows(self, name: str) -> tuple[AnyConfig, ...]:
        """The listed rows of a kernel whose table is ``name``. For "mixed_mm" the rows of "mm" come first. PyTorch 2.6
        tries both for operands of two dtypes in its default search, later releases in the exhaustive one. Raises
        KeyError if there is no such table."""
        return self.table("mm") + self.table(name) if name == "mixed_mm" else self.table(name)

    def candidates(
        self,
        name: str,
        m: Size,
        n: Size,
        k: Size,
        *,
        exhaustive: bool = False,
        dtype_size: int | None = None,
        shared_memory: int | None = None,
        hint: int | None = None,
    ) -> tuple[Config, ...]:
        """The configs that an autotuner tries for an (m, k) by (k, n) product with a kernel whose table is ``name``.

        The listed rows, or the enumerated ones if ``exhaustive``, are scaled to the product, limited if ``exhaustive``,
        and finalised. Rows of "mm_plus_mm" are not scaled: a tile may exceed the product in M and N, never in K.
        ``dtype_size`` (bytes of an operand's element) and ``shared_memory`` (bytes per block) are needed for an
        exhaustive space only; ``hint`` is explained at :func:`~conformance.heuristics.device_class.scaled`. Raises
        ValueError for a table of attention and KeyError for one that does not exist.
        """
        configs = _of_products(name, self.exhaustive(name) if exhaustive else self.rows(name))
        if name in PERSISTENT:
            configs = without_two_warps(configs)
        if name == "mm_plus_mm":
            configs = shallower_than(configs, k)
        else:
            int8, exclude = name == "int8_mm", self.excluded.get(name)
            configs = scaled(configs, m, n, k, scale=self.scale, int8=int8, exclude=exclude, hint=hint)
        if exhaustive:
            configs = pruned(configs, dtype_size, shared_memory)
        return self.finalised(configs)

    def finalised(self, configs: tuple[Config, ...]) -> tuple[Config, ...]:
        """See :func:`conformance.heuristics.device_class.finalised`."""
        return finalised(configs)

    def flex_default(self, name: str, head_dim: int, dtype: str, capability: Capability) -> AnyConfig:
        """The config of attention with the table ``name`` ("flex_fwd", "flex_bwd" or "flex_decode") without a search;
        with one it is tried after the listed rows.

        ``head_dim`` is in elements, ``dtype`` a short name such as "bf16", ``capability`` CUDA's (major, minor), which
        is ``divmod(arch, 10)`` of a target; other device classes ignore it. Raises KeyError for another table.
        """
        defaults: dict[str, Callable[[int, str, Capability], AnyConfig]] = {
            "flex_fwd": self.flex_fwd_default,
            "flex_bwd": self.flex_bwd_default,
            "flex_decode": self.flex_decode_default,
        }
        if name not in defaults:
            raise KeyError(f"table {name!r} is not of attention: use one of {', '.join(defaults)}")
        return defaults[name](head_dim, dtype, capability)

    def flex_fwd_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexConfig:
        """Config of attention forward without a search; see :meth:`flex_default`."""
        if head_dim <= 256:
            return FlexConfig(64, 64, 3, 4) if dtype == "fp32" else FlexConfig(128, 64, 3, 4)
        return FlexConfig(32, 16, 3, 4) if dtype == "fp32" else FlexConfig(64, 32, 3, 4)

    def flex_bwd_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexConfig:
        """Config of attention backward without a search; see :meth:`flex_default`."""
        return FlexConfig(16, 16, 1, 4)

    def flex_decode_default(self, head_dim: int, dtype: str, capability: Capability) -> FlexDecodeConfig:
        """Config of attention with few queries without a search; see :meth:`flex_default`."""
        return FlexDecodeConfig(64, 1, 2)


def _of_products(name: str, configs: tuple[AnyConfig, ...]) -> tuple[Config, ...]:
    others = [config for config in configs if not isinstance(config, Config)]
    if others:
        raise ValueError(
            f"table {name!r} holds {others[0]!r}, which has no BLOCK_M, BLOCK_N and BLOCK_K to scale: "
            "attention has flex_default"
        )
    return tuple(config for config in configs if isinstance(config, Config))
