"""A device class: the tables of one kind of device, and how its rows become candidates for one problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from conformance.heuristics import final_rows
from conformance.heuristics.configs import AnyConfig, Config, FlexConfig, FlexDecodeConfig
from conformance.heuristics.final_rows import without_two_warps
from conformance.heuristics.row_limits import pruned
from conformance.heuristics.scaled_rows import Exclusion, Size, scaled, shallower_than

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
        exhaustive space only; ``hint`` is explained at :func:`~conformance.heuristics.scaled_rows.scaled`. Raises
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
        """See :func:`conformance.heuristics.final_rows.finalised`."""
        return final_rows.finalised(configs)

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
