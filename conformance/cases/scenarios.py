"""The cases for which a suite's test stands: kernels x targets x dtypes x configs x its own parameters, thinned by
tier.

A test states what it is about and gets one case per row::

    @scenario(where(persistent=True), order=ORDERS, tma_store=[False, True], rotate={"flatten": [False, True]})
    def test_x(conform, kernel, target, dtype, config, order, tma_store, flatten): ...

:mod:`~conformance.cases.tier_rows` chooses the rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.cases import config_space, tier_rows
from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test, identify, name_of, named_texts, parsed
from conformance.cases.kernel_answers import ANY, asked_as, contained, takers
from conformance.cases.tier_rows import CROSSED
from conformance.families.examples import WHOLE_TILES, stored_dtype
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.catalogue import catalogue, is_own
from conformance.kernels.kernel import Kernel
from conformance.problems import itemsize
from conformance.targets import Target

#: A parameter's values: a list, how many numbers from 0, or what a kernel answers; or one of these by tier.
ValuesOfTier = int | Sequence[Any] | Callable[[Kernel], Sequence[Any]]
Values = ValuesOfTier | Mapping[str, ValuesOfTier]


def every_kernel(kernel: Kernel) -> bool:
    """All kernels, of every family."""
    return True


def no_kernel(_: Kernel) -> bool:
    """Selects none."""
    return False


@dataclass(frozen=True)
class Scenario:
    """The arguments of :func:`scenario`, and the ``name`` of the test, such as "test_scaling.test_scales"."""

    kernels: Callable[[Kernel], bool]
    parameters: Mapping[str, Values]
    rotate: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dtypes: tuple[str, ...] | None = None
    configs: int | None = None
    every_config: bool | Collection[str] = False
    every_target: bool = False
    every_row: Callable[[Kernel], bool] = no_kernel
    quick: Callable[[Kernel], bool] = every_kernel
    name: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all values of a case, in the order of a row."""
        return ("kernel", "target", "dtype", "config", *self.parameters, *self.rotate)

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return tuple(name for name in self.columns if name in arguments)

    def sweeps(self, tier: str) -> bool:
        """True if it has every config in ``tier``."""
        return self.every_config if isinstance(self.every_config, bool) else tier in self.every_config

    def dtypes_of(self, kernel: Kernel) -> list[str]:
        """The dtypes of its cases with ``kernel``."""
        if self.dtypes is None:
            return kernel.dtype_names()
        return [name for name in (*kernel.dtype_names(), *kernel.rare_dtypes) if name in self.dtypes]

    def values(self, name: str, kernel: Kernel, tier: str) -> Sequence[Any]:
        """The values of the test's own parameter ``name`` in ``tier``."""
        values = self.parameters[name]
        of_tier = values[tier] if isinstance(values, Mapping) else values
        if callable(of_tier):
            return of_tier(kernel)
        return range(of_tier) if isinstance(of_tier, int) else of_tier

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """The cases of a test with these ``arguments``. Other parameters are in no id and do not multiply the cases."""
        names, tier = self.columns, selection.tier
        places = [place for place, name in enumerate(names) if name in arguments]
        unused = {"dtype", "config"}.difference(arguments)
        table = CaseTable(self.names(arguments), {})
        for kernel in catalogue().values():
            if not self.kernels(kernel) or not selection.has(kernel.name):
                continue
            # the examples of every shape are served by one compilation
            usual = kernel.usual_shape if self._compiles_one_shape(kernel, selection) else None
            text_of_pair = _Texts([name if name in arguments else None for name in ("dtype", "config")], bare=True)
            text_of_own = _Texts([name if name in arguments else None for name in names[4:]])
            start = [kernel.name] if "kernel" in arguments else []
            # by address, because a target's hash costs more than the rest of a row
            ends = {id(target): f"-{target.id}" if "target" in arguments else "" for target in selection.targets}
            with contained(kernel):
                for able, pair, own in tier_rows.groups(self, kernel, selection.targets, tier, unused):
                    if usual is not None and usual not in own:
                        continue
                    middle = "-".join([*start, *text_of_pair(pair), *text_of_own(own)])
                    values = {
                        middle + ends[id(target)] if middle else target.id: (
                            *(asked_as(kernel, *pair, target), target),
                            *(*pair, *own),
                        )
                        for target in able
                    }
                    if len(places) < len(names):
                        values = {text: tuple(row[place] for place in places) for text, row in values.items()}
                    table.rows.update(values)
        return table

    def _compiles_one_shape(self, kernel: Kernel, selection: Selection) -> bool:
        """True for a crossed sweep that only compiles. A third-party kernel may refuse the usual shape."""
        swept = selection.tier in CROSSED and self.sweeps(selection.tier) and "shape" in self.parameters
        return swept and selection.compile_only and is_own(kernel)

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        one = catalogue().get(text.partition("-")[0])
        for kernel in catalogue().values() if "kernel" not in arguments else [one] if one else []:
            if self.kernels(kernel):
                with contained(kernel):
                    for target in targets:
                        if "target" not in arguments or text.endswith(target.id):
                            for row in self._rows_with(text, kernel, target, arguments):
                                return row
        return None

    def _rows_with(
        self, text: str, kernel: Kernel, target: Target, arguments: Sequence[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Yields the rows of ``kernel`` on ``target`` with this ``text``, whatever their tier."""
        swept, dtypes = self.sweeps(CROSSED[0]), self.dtypes_of(kernel)
        for tier in CROSSED if swept else CROSSED[:1]:
            configs = _configs_by_id(kernel, target, tier if swept else None)
            columns: dict[str, Mapping[str, Any]] = {
                "kernel": {kernel.name: kernel},
                "dtype": dict(zip(dtypes, dtypes, strict=True)),
                "config": configs,
                **{name: self._texts(name, kernel) for name in self.parameters},
                **{name: named_texts(name, values) for name, values in self.rotate.items()},
                "target": {target.id: target},
            }
            columns = {name: column for name, column in columns.items() if name in arguments}
            for values in parsed(text, list(columns.values())):
                row = dict(zip(columns, values, strict=True))
                pairs = itertools.product(
                    [row["dtype"]] if "dtype" in row else dtypes,
                    [row["config"]] if "config" in row else configs.values(),
                )
                if any(takers(kernel, *pair, (target,), estimated=not swept, refused=swept) for pair in pairs):
                    pair = row.get("dtype", ANY), row.get("config", ANY)
                    row |= {"kernel": asked_as(kernel, *pair, target), "target": target}
                    yield tuple(row[name] for name in self.names(arguments))

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return tier_rows.rule(self, kernel, tier) if kernel is not None else "every row counts once"

    def _texts(self, name: str, kernel: Kernel) -> dict[str, Any]:
        """Returns the values of a parameter in all tiers, by their texts in a case id."""
        values = self.parameters[name]
        tiers = values if isinstance(values, Mapping) else CROSSED[:1]
        return {
            text: value for tier in tiers for text, value in named_texts(name, self.values(name, kernel, tier)).items()
        }


def scenario(
    kernels: Callable[[Kernel], bool],
    *,
    rotate: Mapping[str, Sequence[Any]] | None = None,
    dtypes: tuple[str, ...] | None = None,
    configs: int | None = None,
    every_config: bool | Collection[str] = False,
    every_target: bool = False,
    every_row: Callable[[Kernel], bool] = no_kernel,
    quick: Callable[[Kernel], bool] = every_kernel,
    **parameters: Values,
) -> Callable[[Test], Test]:
    """Makes a test a scenario.

    ``kernels`` selects from the catalogue (see :func:`where`) and ``dtypes`` restricts the dtypes; a kernel's rare ones
    have cases where they are named here. The rest are the test's own parameters. Each is a list of values, the number
    of values (then numbers from 0), or a function that returns the values for a kernel. It may also be a mapping from
    tier to one of these. ``rotate`` are further parameters, which are not crossed below the full tier, neither with the
    others nor among themselves. With ``every_config`` the configs are those of the sweep
    (:mod:`~conformance.cases.config_space`), in every tier, or in the tiers that it names.

    For the quick tier alone: ``configs`` takes that many of each kernel's configs, those of the smallest tiles, because
    they are interpreted. Kernels that ``every_row`` selects have as many rows as show every value. Of kernels of weight
    1 only those that ``quick`` selects have rows. Where a test asks the same of all kernels, some stand for the others.
    With ``every_target`` each target has one row.
    """

    def decorate(test: Test) -> Test:
        cases = Scenario(
            *(
                kernels,
                parameters,
                rotate or {},
                dtypes,
                configs,
                every_config,
                every_target,
                every_row,
                quick,
                name_of(test),
            )
        )
        setattr(test, ATTRIBUTE, cases)
        return test

    return decorate


def where(*, family: str = "gemm", **attributes: Any) -> Callable[[Kernel], bool]:
    """Kernels of ``family`` whose attributes have these values; ``operation`` asks for one of their operations."""

    def matches(kernel: Kernel) -> bool:
        if kernel.family != family:
            return False
        for name, value in attributes.items():
            if name == "operation":
                if not kernel.operations & ({value} if isinstance(value, str) else set(value)):
                    return False
            elif getattr(kernel, name, None) != value:  # a third-party kernel may lack what its family has
                return False
        return True

    return matches


def named(*names: str) -> Callable[[Kernel], bool]:
    """Kernels with these names."""
    return lambda kernel: str(kernel.name) in names


def shapes_of(kernel: Kernel) -> list[str]:
    """The values of a parameter "shape": the shape classes of the kernel's examples. Of a third-party kernel they
    have the class of those that take whole tiles only."""
    return list(kernel.shapes) if is_own(kernel) else kernel.example_shapes()


def ragged(kernel: Kernel, config: Config, dtype: str, *, aligned: bool) -> tuple[int, int, int]:
    """Returns the usual (M, N, K) of a scenario: 2 x 2 tiles and 4 k-blocks of ``config``, the last of each ragged.

    So each program sees tails in both directions, and the loop has whole blocks before its ragged one. With ``aligned``
    the rows of every order are multiples of 16 bytes, as descriptors need. Otherwise the sizes are odd where they can
    be, so that no dimension is a multiple of a tile or of 16. M and N differ also where their blocks do not. For a
    kernel that takes whole tiles only, none is ragged.
    """
    if kernel.usual_shape == WHOLE_TILES:
        return 2 * config.block_m, 2 * config.block_n, 4 * config.block_k
    step = 16 // itemsize(stored_dtype(dtype)) if aligned else 1

    def side(block: int, quarters: int) -> int:
        """Just below so many quarters of a block; a block and a step where that is no more than one block."""
        return max(quarters * block // 4 // step * step - step, block + step)

    return side(config.block_m, 7), side(config.block_n, 6), 3 * config.block_k + step


def has_case(kernel: Kernel, targets: Sequence[Target], tier: str) -> bool:
    """True if a test of :func:`every_kernel` has a case with ``kernel``."""
    return any(True for _ in tier_rows.groups(Scenario(every_kernel, {}), kernel, targets, tier))


@functools.cache
def _configs_by_id(kernel: Kernel, target: Target, tier: str | None) -> Mapping[str, AnyConfig]:
    """Returns the configs of ``kernel`` by id; with a ``tier`` those that its sweep takes on ``target``, too."""
    swept = () if tier is None else config_space.space(kernel, target, tier)
    return {config.id: config for config in (*kernel.configs, *swept)}


class _Texts:
    """The texts in an id of tuples of values, made once each. ``names`` has the name of each value, None for one that
    is in no id; it is written before the value unless ``bare``."""

    def __init__(self, names: Sequence[str | None], *, bare: bool = False) -> None:
        self._starts = [None if name is None else "" if bare else f"{name}=" for name in names]
        self._made: dict[int, tuple[tuple[Any, ...], list[str]]] = {}

    def __call__(self, values: tuple[Any, ...]) -> list[str]:
        """Returns the texts of ``values``. The same tuple has the same texts; one that is only equal may not: True
        equals 1."""
        entry = self._made.get(id(values))
        if entry is None:
            pairs = zip(self._starts, values, strict=True)
            # kept with its tuple, whose address could otherwise become that of another
            entry = values, [start + identify(value) for start, value in pairs if start is not None]
            self._made[id(values)] = entry
        return entry[1]
