"""The configs that heuristics pick for one problem: rows that are scaled to its size, and attention's defaults.

The sweep over listed rows (:mod:`~conformance.cases.config_space`) makes problems for each row. Here it is the other
way round: a problem selects rows, and each row that is not listed runs on a problem that selects it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cases import config_space
from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test
from conformance.cases.cover import cover
from conformance.cases.kernel_answers import ABOUT_THE_TARGET, contained
from conformance.cases.unrolled import UNROLLED, within_limit
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import Conv
from conformance.families.examples import stored_dtype
from conformance.families.gemm.problem import Gemm
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import AnyConfig, Config
from conformance.heuristics.device_class import HEAD_DIMS, DeviceClass, Symbolic, by_hint
from conformance.heuristics.lookup import flex_default, for_target
from conformance.kernels.catalogue import catalogue
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import Problem
from conformance.records import Reason
from conformance.targets import Target

#: M, N and K of a product that is smaller than most tiles, so that most rows are scaled down to it.
SMALL = (17, 64, 48)

#: Values of M for each of which an autotuner looks for a config, if M is known only when the kernel runs.
HINTS = (64, 256, 4096)

#: N and K of the product with such an M: no listed tile is wider or deeper, so that M alone scales the rows.
WIDE = 256

#: A config and the size that selects it, as the ids of cases say it: "17x64x48", or "d128" for a head dim of 128.
ConfigAndSize = tuple[AnyConfig, str]

#: A problem that selects a config, and its size.
Choice = tuple[Problem, str]


@dataclass(frozen=True)
class SelectedRows:
    """The cases of a test of rows that problems select: kernel, target, dtype, config and size.

    The quick tier has none of them, the default tier a cover of each target's rows, the tiers above it all. The cover
    holds every dtype, every extent of a block in each dimension, every number of stages and of warps, and every head
    dim; of fp32 it holds what compiles within seconds. A row that the limits of a target refuse is a case above the
    default tier only, as in the sweep over listed rows.
    """

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return NAMES

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """The cases by id; ``arguments`` are those of the test and hold all of :data:`NAMES`."""
        chosen = [kernel for kernel in catalogue().values() if selection.has(kernel.name)]
        cases = []
        for kernel in chosen:
            with contained(kernel):
                cases += [(kernel, *row) for row in rows(kernel, selection.targets, selection.tier)]
        ids = [
            f"{kernel.name}-{dtype}-{config.id}-size={size}-{target.id}"
            for kernel, target, dtype, config, size in cases
        ]
        return CaseTable(NAMES, dict(zip(ids, cases, strict=True)))

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return _RULES.get(tier, "every row that a problem selects")

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        name, target_id = text.partition("-")[0], text.rpartition("-")[2]
        chosen = tuple(target for target in targets if target.id == target_id)
        return self.table(Selection(chosen, "full", (name,)), arguments).rows.get(text)


_RULES = {"quick": "no row that a problem selects", "default": "a sample of the rows of each kernel and target"}

#: Arguments of the test.
NAMES = ("kernel", "target", "dtype", "config", "size")


def every_selected_row(test: Test) -> Test:
    """Gives ``test`` the cases of :class:`SelectedRows`."""
    setattr(test, ATTRIBUTE, SelectedRows())
    return test


def rows(kernel: Kernel, targets: Sequence[Target], tier: str) -> list[tuple[Target, str, AnyConfig, str]]:
    """(target, dtype, config, size) of the cases of one kernel. Targets are innermost: they share numbers."""
    if tier == "quick":
        return []
    dtypes = kernel.dtype_names()
    takers: dict[tuple[str, ConfigAndSize], list[Target]] = {}
    for target in targets:
        usable = _usable(kernel, dtypes, target, refused=tier != "default")
        if tier == "default":
            soon_compiled = _soon_compiled(kernel, usable, target)
            usable = [row for (row,) in cover({"row": soon_compiled}, shown={"row": _traits})]
        for row in usable:
            takers.setdefault(row, []).append(target)
    by_dtype = sorted(takers.items(), key=lambda item: dtypes.index(item[0][0]))
    return [(target, dtype, *row) for (dtype, row), able in by_dtype for target in able]


def _usable(kernel: Kernel, dtypes: Sequence[str], target: Target, *, refused: bool) -> list[tuple[str, ConfigAndSize]]:
    """(dtype, row) of every row that ``kernel`` takes on ``target``; with ``refused`` those too that it refuses for
    another reason than the target itself."""
    rows = [(dtype, row) for dtype in dtypes for row in selected(kernel, dtype, target)]
    reasons = [_judged(kernel, dtype, target)[row][1] for dtype, row in rows]
    return [
        row
        for row, reason in zip(rows, reasons, strict=True)
        if reason is None or (refused and reason.code not in ABOUT_THE_TARGET)
    ]


def _soon_compiled(
    kernel: Kernel, rows: Sequence[tuple[str, ConfigAndSize]], target: Target
) -> list[tuple[str, ConfigAndSize]]:
    """``rows`` without what takes long to compile: see :func:`~conformance.cases.unrolled.within_limit`."""
    configs = [row[0] for dtype, row in rows if dtype == UNROLLED]
    return [
        (dtype, row)
        for dtype, row in rows
        if within_limit(kernel, selected(kernel, dtype, target)[row], row[0], configs)
    ]


def _traits(item: tuple[str, ConfigAndSize]) -> set[Hashable]:
    dtype, (config, size) = item
    traits: set[Hashable] = {("dtype", dtype), ("stages", config.num_stages), ("warps", config.num_warps)}
    if not isinstance(config, Config):
        traits.add(("size", size))
    return traits | {(f"block {dimension}", edge) for dimension, edge in enumerate(config.tile)}


def _refusal(kernel: Kernel, problem: Problem, config: AnyConfig, target: Target, variant: Variant) -> Reason | None:
    return kernel.refusal(kernel.draft(problem, config, target, variant))


@functools.cache
def selected(kernel: Kernel, dtype: str, target: Target) -> Mapping[ConfigAndSize, Problem]:
    """Returns the rows that problems of the sweep select for ``kernel`` and no table lists. Each has the problem that
    it runs on, the smallest that selects it and that ``kernel`` takes. ``dtype`` is a scenario's name of a dtype.

    For attention these are the defaults; a listed config is among them if it is the default for a head dim that the
    sweep over listed rows does not use. Empty for a kernel without a heuristics' table and for other classes of
    problems.
    """
    if kernel.table is None:
        return {}
    return {row: problem for row, (problem, _) in _judged(kernel, dtype, target).items()}


#: A problem, and why a kernel refuses it with the config of a row; None if it takes it.
Judged = tuple[Problem, Reason | None]


@functools.cache
def _judged(kernel: Kernel, dtype: str, target: Target) -> Mapping[ConfigAndSize, Judged]:
    """Returns the rows of :func:`selected` for a ``kernel`` with a table."""
    problem = kernel.example(dtype, kernel.configs[0])
    if isinstance(problem, Attention):
        return _defaults(kernel, dtype, target, problem.head_dim)
    if not isinstance(problem, (Gemm, Conv, GroupedGemm)):
        return {}
    selecting = _selecting(kernel, dtype, for_target(target))
    variant = kernel.example_variant()
    return dict(_smallest(kernel, config, target, variant, choices) for config, choices in selecting.items())


def _defaults(kernel: Kernel, dtype: str, target: Target, usual_head_dim: int) -> dict[ConfigAndSize, Judged]:
    rows: dict[ConfigAndSize, Judged] = {}
    listed = config_space.listed_space(kernel, target, "full")
    for head_dim in HEAD_DIMS:
        config = flex_default(target, str(kernel.table), head_dim, stored_dtype(dtype))
        if config not in listed or head_dim != usual_head_dim:
            problem = kernel.example(dtype, config)
            assert isinstance(problem, Attention)
            problem = dataclasses.replace(problem, head_dim=head_dim)
            rows[config, f"d{head_dim}"] = problem, _refusal(kernel, problem, config, target, kernel.example_variant())
    return rows


def _smallest(
    kernel: Kernel, config: AnyConfig, target: Target, variant: Variant, choices: Sequence[Choice]
) -> tuple[ConfigAndSize, Judged]:
    """Returns the row of the first of ``choices`` that ``kernel`` takes; of the first of all if it takes none."""
    first: Reason | None = None
    for problem, size in choices:
        reason = _refusal(kernel, problem, config, target, variant)
        if reason is None:
            return (config, size), (problem, None)
        first = first or reason
        if reason.code in ABOUT_THE_TARGET:  # another size is refused for the same reason
            break
    problem, size = choices[0]
    return (config, size), (problem, first)


@functools.cache
def _selecting(kernel: Kernel, dtype: str, device_class: DeviceClass) -> Mapping[AnyConfig, Sequence[Choice]]:
    """Returns the configs that problems of the sweep select and no table lists. Each has the problems that select it,
    with the text of their size, smallest first. They are the same on all targets of a device class."""
    listed = set(config_space.listed_rows(kernel, device_class))
    selecting: dict[AnyConfig, list[Choice]] = {}
    for problem in sorted(_products(kernel, dtype, device_class), key=lambda item: math.prod(size_of(kernel, item))):
        size = size_of(kernel, problem)
        choice = problem, "x".join(map(str, size))
        for config in _tried(kernel, size, device_class):
            if config not in listed:
                selecting.setdefault(config, []).append(choice)
    return selecting


def _products(kernel: Kernel, dtype: str, device_class: DeviceClass) -> list[Problem]:
    """Returns the products or convolutions of the sweep, one of each size. They are those of the listed rows in every
    shape class. Products also have a small one, and those whose M is known only when the kernel runs."""
    table = kernel.table
    assert table is not None
    listed = config_space.listed_rows(kernel, device_class)
    problems: list[Problem] = [kernel.example(dtype, config, shape) for config in listed for shape in kernel.shapes]
    if isinstance(kernel, GemmFamily):
        unknown = Symbolic(expected=max(HINTS))
        hints = by_hint(lambda hint: device_class.candidates(table, unknown, WIDE, WIDE, hint=hint), HINTS)
        sizes = [SMALL, *((hint, WIDE, WIDE) for hint in hints if hint is not None)]
        problems += [kernel.problem(dtype, m, n, k * _parts(kernel)) for m, n, k in sizes]
    return list({size_of(kernel, problem): problem for problem in reversed(problems)}.values())


def candidates(kernel: Kernel, problem: Problem, target: Target) -> tuple[Config, ...]:
    """Returns the configs that an autotuner tries with ``kernel`` for ``problem``, a product or convolution, on
    ``target``."""
    return _tried(kernel, size_of(kernel, problem), for_target(target))


def _tried(kernel: Kernel, size: tuple[int, int, int], device_class: DeviceClass) -> tuple[Config, ...]:
    names = [name for name in (kernel.table, kernel.extra_table) if name in device_class.tables]
    return _of_tables(device_class, tuple(map(str, names)), size)


@functools.cache
def _of_tables(device_class: DeviceClass, tables: Sequence[str], size: tuple[int, int, int]) -> tuple[Config, ...]:
    return tuple(dict.fromkeys(config for table in tables for config in device_class.candidates(table, *size)))


def size_of(kernel: Kernel, problem: Problem) -> tuple[int, int, int]:
    """Returns M, N and K to which heuristics scale the rows of ``kernel`` for ``problem``. They are those of a product,
    of one part if K is split, or of the largest group. A convolution is a product of positions and channels."""
    if isinstance(problem, Gemm):
        return problem.M, problem.N, problem.K // _parts(kernel)
    if isinstance(problem, Conv):
        positions = problem.batch * math.prod(problem.out_size)
        return positions, problem.out_channels // problem.groups, problem.channels // problem.groups
    if isinstance(problem, GroupedGemm):
        largest = max(problem.sizes)
        m, n, k = (largest if extent is None else extent for extent in (problem.M, problem.N, problem.K))
        return m, n, k
    raise TypeError(f"{problem.id} is of class {type(problem).__name__}: a product or convolution is required")


def _parts(kernel: Kernel) -> int:
    return kernel.example_variant().splits or 1
