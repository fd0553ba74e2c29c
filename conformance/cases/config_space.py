"""The configs that a sweep takes of each kernel on each target, by tier."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from conformance.cases.cover import cover, in_turn
from conformance.heuristics.configs import AnyConfig, Config
from conformance.heuristics.cuda import CUDA
from conformance.heuristics.device_class import DeviceClass
from conformance.heuristics.lookup import for_target
from conformance.kernels.catalogue import own_kernels
from conformance.kernels.kernel import Kernel
from conformance.problems import itemsize
from conformance.targets import Target

#: M, N and K of a product to which no row is scaled down.
LARGE = 4096


def space(kernel: Kernel, target: Target, tier: str) -> tuple[AnyConfig, ...]:
    """The configs of ``kernel`` on ``target`` in a sweep: the listed rows of the target's device class (a sample of
    them below the full tier), and in the exhaustive tier its enumerated space too, less what cannot fit."""
    if kernel.table is None:
        return kernel.configs
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
    sample = covering_sample(listed)
    if tier == "quick":
        # one class is shown whole; of another, whose rows are mostly the same with options of its own, one row
        sample = _share(kernel, target, sample)[: None if tables is CUDA else 1]
        more = more if tables is CUDA else ()
    return tuple(dict.fromkeys((*sample, *covering_sample(more))))


def listed_rows(kernel: Kernel, tables: DeviceClass) -> tuple[AnyConfig, ...]:
    """The rows that ``tables`` lists for ``kernel``, which has a table: its own and those it takes beside."""
    assert kernel.table is not None
    return tuple(dict.fromkeys((*tables.rows(kernel.table), *tables.tables.get(kernel.extra_table or "", ()))))


def covering_sample(configs: Sequence[AnyConfig]) -> tuple[AnyConfig, ...]:
    """A sample of ``configs`` in which every tile size, stage count and warp count of the table appears."""
    return tuple(config for (config,) in cover({"config": configs}, shown=_traits))


def _traits(config: AnyConfig) -> set[Hashable]:
    return {("tile", config.tile), ("stages", config.num_stages), ("warps", config.num_warps)}


def _share(kernel: Kernel, target: Target, sample: tuple[AnyConfig, ...]) -> tuple[AnyConfig, ...]:
    """Every n-th row of ``sample``, for the n kernels that share its table and run on ``target``; at least
    two rows. A kernel from elsewhere shares with ours and takes nothing from them."""
    sharing = [
        other.name
        for other in {**own_kernels(), kernel.name: kernel}.values()
        if other.table == kernel.table and (other.name == kernel.name or other.usable_on(target))
    ]
    place = sharing.index(kernel.name)
    part = sample[place :: len(sharing)]
    return part if len(part) > 1 else tuple(in_turn(sample, place)[:2])
