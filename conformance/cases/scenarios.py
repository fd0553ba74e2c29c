"""The cases for which a suite's test stands: kernels x targets x dtypes x configs x its own parameters, thinned by
tier.

A test states what it is about and gets one case per row::

    @scenario(where(persistent=True), order=ORDERS, tma_store=[False, True], rotate={"flatten": [False, True]})
    def test_x(conform, kernel, target, dtype, config, order, tma_store, flatten): ...

:mod:`~conformance.cases.tier_rows` chooses the rows.
"""

from __future__ import annotations

import dataclasses
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


def not_own(kernel: Kernel) -> bool:
    """Third-party kernels."""
    return not is_own(kernel)


@dataclass(frozen=True)
class Scenario:
    """The arguments of :func:`scenario`, and the ``name`` of the ``test``, such as "test_scaling.test_scales"."""

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
    test: Callable[..., Any] | None = None

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
        middle_names = [name for name in names if name != "target"]
        unused = {"dtype", "config"}.difference(arguments)
        table = CaseTable(self.names(arguments), {})
        for kernel in catalogue().values():
            if not self.kernels(kernel) or not selection.has(kernel.name):
                continue
            # the examples of every shape are served by one compilation
            usual = kernel.usual_shape if self._compiles_one_shape(kernel, selection) else None
            with contained(kernel):
                for able, pair, own in tier_rows.groups(self, kernel, selection.targets, tier, unused):
                    if usual is not None and usual not in own:
                        continue
                    texts = [kernel.name, *map(identify, pair), *map("{}={}".format, names[4:], map(identify, own))]
                    middle = [text for name, text in zip(middle_names, texts, strict=True) if name in arguments]
                    for target in able:
                        text = "-".join([*middle, target.id] if "target" in arguments or not middle else middle)
                        row = (asked_as(kernel, *pair, target), target, *pair, *own)
                        table.rows[text] = tuple(row[place] for place in places)
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
        choices = (kernels, parameters, rotate or {}, dtypes, configs, every_config, every_target, every_row, quick)
        setattr(test, ATTRIBUTE, Scenario(*choices, name_of(test), test))
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


#: Kernels of products that run a device function of another kernel, on fewer operands or without its further work. The
#: other stands for them where a suite is about every index of that code.
SAME_CODE = frozenset(
    {
        *("addmm", "scaled_mm", "contiguous_mm", "bmm", "mixed_mm", "mm_persistent_tma", "scaled_mm_persistent_tma"),
        *("mm_fp64", "fp8_bmm"),
        *("mm_blackwell_ws", "scaled_mm_blackwell_ws"),
    }
)


def has_own_code(kernel: Kernel) -> bool:
    """True if a kernel multiplies matrices, or batches of them, with device code that no other kernel shows. A
    third-party kernel does."""
    return kernel.family in ("gemm", "split-k") and kernel.name not in SAME_CODE


def unlike_blocks(config: Config, group_m: int) -> Config:
    """Returns ``config`` with bands of ``group_m`` tile rows and three blocks that differ. BLOCK_N is 64 at most, and
    half of it if BLOCK_M is the same. BLOCK_K is the first of 32, 64 and 128 that differs from both."""
    block_n = min(config.block_n, 64)
    block_n = block_n // 2 if block_n == config.block_m else block_n
    block_k = next(size for size in (32, 64, 128) if size not in (config.block_m, block_n))
    return dataclasses.replace(config, block_n=block_n, block_k=block_k, group_m=group_m)


#: Fills that show what was read and written, inside the operands and outside. The quick tier has all fills in
#: ``transposition``, and of scaled products in ``scaling``.
QUICK_FILLS = ("transparent", "randn")


def quick_fills(tier: str) -> tuple[str, ...] | None:
    """Returns the fills for a suite that is about which elements are read and written; None stands for all that its
    problem has."""
    return QUICK_FILLS if tier == "quick" else None
