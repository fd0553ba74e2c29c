"""The configs that a sweep takes of each kernel on each target, by tier."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from conformance.cases.cover import cover
from conformance.heuristics.configs import AnyConfig, Config, pruned
from conformance.heuristics.device_class import PERSISTENT, DeviceClass, without_two_warps
from conformance.heuristics.lookup import for_target
from conformance.inductor.tables import live
from conformance.kernels.catalogue import is_own
from conformance.kernels.kernel import Kernel
from conformance.problems import itemsize
from conformance.targets import Target

#: M, N and K of a product to which no row is scaled down.
LARGE = 4096


def space(kernel: Kernel, target: Target, tier: str) -> tuple[AnyConfig, ...]:
    """Returns the configs of ``kernel`` on ``target`` in a sweep: those of :func:`listed_space`. Above the quick tier
    it adds rows that stand in the installed torch's own tables alone. In the default tier these are the rows that show
    something new.
    """
    listed, more = listed_space(kernel, target, tier), torch_rows(kernel, target, tier)
    if not more:
        return listed
    return (*listed, *(_new_in(more, for_target(target), kernel) if tier == "default" else more))


def _new_in(more: Iterable[AnyConfig], tables: DeviceClass, kernel: Kernel) -> Iterator[AnyConfig]:
    """Returns the rows of ``more`` that are no row here with other options of the backend, and one row for each new
    option."""
    seen = {trait for config in listed_rows(kernel, tables) for trait in _whole_traits(config)}
    for config in more:
        new = _whole_traits(config) - seen
        if new:
            seen |= new
            yield config


def _whole_traits(config: AnyConfig) -> set[Hashable]:
    return {dataclasses.replace(config, vendor=()).id, *config.vendor}  # type: ignore[type-var]


def torch_row(kernel: Kernel, target: Target, config: AnyConfig, tier: str) -> str | None:
    """Returns the place of ``config`` if the sweep takes it from the installed torch's tables alone, such as "cuda
    mm_configs: 128x256x64-s4-w8"; None for a config of the tables here."""
    return torch_rows(kernel, target, tier).get(config)


@functools.cache
def torch_rows(kernel: Kernel, target: Target, tier: str) -> Mapping[AnyConfig, str]:
    """Returns the configs of ``kernel`` on ``target`` that stand in the installed torch's tables and not in those here,
    with their places. None in the quick tier, and none where they cannot be read, which the suite ``live_tables``
    tells."""
    if tier == "quick" or kernel.table is None or target.device_class is not None:
        return {}
    tables = for_target(target)
    devices = _devices()
    device = live.device_of(tables.name, target.arch, devices)
    rows = live.configs(device, _patterns(kernel, live.LISTED, kernel.torch_tables))
    if tier == "exhaustive":
        enumerated = live.configs(device, _patterns(kernel, live.ENUMERATED, kernel.torch_spaces))
        fitting = dict.fromkeys(_fitting(kernel, target, tuple(enumerated)))
        rows |= {config: enumerated.get(config, "scaled") for config in fitting if config not in rows}
    own_rows = {*listed_rows(kernel, tables), *(listed_space(kernel, target, tier) if tier == "exhaustive" else ())}
    name = live.device_name(tables.name, target.arch)
    return {config: f"{name} {place}" for config, place in rows.items() if config not in own_rows}


def torch_tables(kernels: Iterable[Kernel]) -> set[str]:
    """Returns the patterns of those tables of torch's whose rows ``kernels`` take."""
    return {
        pattern
        for kernel in kernels
        for pattern in (
            *_patterns(kernel, live.LISTED, kernel.torch_tables),
            *_patterns(kernel, live.ENUMERATED, kernel.torch_spaces),
        )
    }


def _patterns(kernel: Kernel, usual: Mapping[str, tuple[str, ...]], own: tuple[str, ...] | None) -> tuple[str, ...]:
    tables = (kernel.table, kernel.extra_table)
    return tuple(pattern for table in tables if table for pattern in usual.get(table, ())) if own is None else own


@functools.cache
def _devices() -> Mapping[str, live.Device]:
    try:
        return live.installed()
    except live.TablesUnread as error:
        warnings.warn(f"rows of torch's own tables are not swept: {error}", stacklevel=1)
        return {}


def _fitting(kernel: Kernel, target: Target, enumerated: tuple[AnyConfig, ...]) -> tuple[AnyConfig, ...]:
    """Returns the ``enumerated`` configs that can fit ``target``, final as :meth:`DeviceClass.candidates` has them.
    Attention's are not estimated."""
    products = tuple(config for config in enumerated if isinstance(config, Config))
    if not products:
        return enumerated
    if kernel.table in PERSISTENT:
        products = without_two_warps(products)
    size = min(itemsize(dtype) for dtype in kernel.dtypes)
    return for_target(target).finalised(pruned(products, size, target.limits.shared_memory))


def listed_space(kernel: Kernel, target: Target, tier: str) -> tuple[AnyConfig, ...]:
    """Returns the configs of ``kernel`` on ``target`` by the tables here, less what cannot fit. They are the listed
    rows of the target's device class (a sample of them below the full tier). The exhaustive tier has the enumerated
    space, too."""
    if kernel.table is None:
        few = tier == "quick" and kernel.weight < 3 and is_own(kernel)
        return forms(kernel.configs) if few else kernel.configs
    tables = for_target(target)
    listed = tables.rows(kernel.table)
    if tier == "exhaustive" and kernel.table in tables.spaces:
        enumerated = tables.exhaustive(kernel.table)
        if isinstance(enumerated[0], Config):
            size, memory = min(itemsize(dtype) for dtype in kernel.dtypes), target.limits.shared_memory
            enumerated = tables.candidates(
                kernel.table, LARGE, LARGE, LARGE, exhaustive=True, dtype_size=size, shared_memory=memory
            )
        listed = tuple(dict.fromkeys((*listed, *enumerated)))
    more = tables.tables.get(kernel.extra_table or "", ())
    if tier == "full":
        return listed_rows(kernel, tables)
    if tier == "exhaustive":
        return tuple(dict.fromkeys((*listed, *more)))
    sample, more = (covering_sample(rows, extents=tier == "quick") for rows in (listed, more))
    return tuple(dict.fromkeys((*sample, *more)))


def listed_rows(kernel: Kernel, tables: DeviceClass) -> tuple[AnyConfig, ...]:
    """Returns the rows that ``tables`` lists for ``kernel``, which has a table: its own and those of its second
    table."""
    assert kernel.table is not None
    return tuple(dict.fromkeys((*tables.rows(kernel.table), *tables.tables.get(kernel.extra_table or "", ()))))


def traits(config: AnyConfig) -> set[Hashable]:
    """Returns what a row of a table shows: the extents of its tile, stages, warps, and what its id says after them."""
    return {*enumerate(config.tile), ("stages", config.num_stages), ("warps", config.num_warps), *_form(config)}


def covering_sample(configs: Sequence[AnyConfig], *, extents: bool = False) -> tuple[AnyConfig, ...]:
    """Returns a sample of ``configs`` in which every tile, stage count and warp count of the table appears; with
    ``extents`` every extent of a tile, in place of every tile."""

    def shown(config: AnyConfig) -> set[Hashable]:
        tile: Iterable[Hashable] = enumerate(config.tile) if extents else [("tile", config.tile)]
        return {*tile, ("stages", config.num_stages), ("warps", config.num_warps)}

    return tuple(config for (config,) in cover({"config": configs}, shown={"config": shown}))


def forms(configs: Sequence[AnyConfig]) -> tuple[AnyConfig, ...]:
    """A sample of ``configs`` in which everything appears that their ids say after tile, stages and warps: it decides
    how a kernel works."""
    return tuple(config for (config,) in cover({"config": configs}, shown={"config": _form}))


def _form(config: AnyConfig) -> list[str]:
    return config.id.split("-")[3:]
