"""The cases for which a suite's test stands: kernels x targets x dtypes x configs x its own parameters, thinned by
tier.

A test states what it is about and gets one case per row::

    @scenario(where(persistent=True), order=ORDERS, tma_store=[False, True], rotate={"flatten": [False, True]})
    def test_x(conform, kernel, target, dtype, config, order, tma_store, flatten): ...

:func:`~conformance.cases.cover.cover` chooses the rows of one kernel, so that one can predict them:

* *quick*: every two values of two of the test's own parameters appear together, and so does every dtype, config (of a
  sample) and rotated value, each row on one target. There are at least as many rows as the longest of these lists has
  values. Targets take turns: each kernel of a test, and each test of a file, begins one target later. A kernel beyond
  the core has one of the rows, which is also chosen in turn, unless the test asks for ``every_row``: then it has each
  value, and need not have every two together. addmm gets one row in tests marked ``any_epilogue``, because mm already
  covers its loop. Where a test asks the same of all kernels, those beyond the core are ``taking_turns``: one in
  :data:`TURNS` has a case. A sweep has, beyond the core, one row for each config: dtypes and shape classes take turns.
  Of a third-party kernel it has each of them;
* *default*, on every target: each combination of the test's own parameters, and each rotated value, appears with every
  dtype. A kernel beyond the core has every two values of two of the test's own parameters together, and each rotated
  value and size of dtype once. Configs are the usual ones of their dtype (:func:`_usual`), the same for each test: what
  is compiled for one test serves another. A sweep has every config with every dtype, or beyond the core with every size
  of dtype;
* *full* and *exhaustive*: crossed.

Below the full tier fp32 has only configs that compile within seconds (:mod:`~conformance.cases.unrolled`). In the quick
tier it has none with a kernel of ours that has no such config, and other dtypes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.cases import config_space
from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test, identify, named_texts, parsed
from conformance.cases.config_space import covering_sample
from conformance.cases.cover import cover, in_turn
from conformance.cases.unrolled import UNROLLED, within_limit
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.catalogue import catalogue, own_kernels
from conformance.kernels.families.examples import WHOLE_TILES, stored_dtype
from conformance.kernels.kernel import Kernel
from conformance.problems import itemsize
from conformance.records import Reason, ReasonCode
from conformance.targets import Target, from_elsewhere

#: Configs that each dtype of a kernel of the core has in the default tier, the same in every test but the sweep. A
#: kernel beyond the core has one.
USUAL_CONFIGS = 2

#: Of so many kernels beyond the core one has a case in the quick tier of a test in which they are taking turns.
TURNS = 4

#: The tiers in which everything is crossed.
CROSSED = ("full", "exhaustive")


#: A parameter's values: a list, how many numbers from 0, or what a kernel answers; or one of these by tier.
ValuesOfTier = int | Sequence[Any] | Callable[[Kernel], Sequence[Any]]
Values = ValuesOfTier | Mapping[str, ValuesOfTier]


def no_kernel(_: Kernel) -> bool:
    """Selects none."""
    return False


@dataclass(frozen=True)
class Scenario:
    """The arguments of :func:`scenario`."""

    kernels: Callable[[Kernel], bool]
    parameters: Mapping[str, Values]
    rotate: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dtypes: tuple[str, ...] | None = None
    configs: int | None = None
    every_config: bool | Collection[str] = False
    every_target: bool = False
    any_epilogue: bool = False
    every_row: Callable[[Kernel], bool] = no_kernel
    taking_turns: bool = False
    number: int = 0  # of scenarios before this one in its file

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all values of a case, in the order of a row."""
        return ("kernel", "target", "dtype", "config", *self.parameters, *self.rotate)

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return tuple(name for name in self.columns if name in arguments)

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """See :func:`table_of`."""
        return table_of(self, selection, arguments)

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        first = text.partition("-")[0]
        for kernel in catalogue().values():
            if self.kernels(kernel) and ("kernel" not in arguments or kernel.name == first):
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
        crossed = self.in_tier(CROSSED[0]).every_config
        dtypes = _kernel_dtypes(kernel, self)
        for tier in CROSSED if crossed else CROSSED[:1]:
            configs = _configs_by_id(kernel, target, tier if crossed else None)
            columns: dict[str, Mapping[str, Any]] = {
                "kernel": {kernel.name: kernel},
                "dtype": dict(zip(dtypes, dtypes, strict=True)),
                "config": configs,
                **{name: _texts_of_all_tiers(name, values, kernel) for name, values in self.parameters.items()},
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
                if any(_takes(kernel, *pair, target, bool(crossed)) for pair in pairs):
                    pair = row.get("dtype", ANY), row.get("config", ANY)
                    row |= {"kernel": _asked_as(kernel, *pair, target), "target": target}
                    yield tuple(row[name] for name in self.names(arguments))

    def in_tier(self, tier: str) -> Scenario:
        """Returns the scenario as it is in ``tier``: ``every_config`` is whether it has every config there."""
        every = self.every_config if isinstance(self.every_config, bool) else tier in self.every_config
        return replace(self, every_config=every)


#: By module, the names of its scenarios in their order; a module that is imported again counts the same.
_SCENARIOS: dict[str, list[str]] = defaultdict(list)


def scenario(
    kernels: Callable[[Kernel], bool],
    *,
    rotate: Mapping[str, Sequence[Any]] | None = None,
    dtypes: tuple[str, ...] | None = None,
    configs: int | None = None,
    every_config: bool | Collection[str] = False,
    every_target: bool = False,
    any_epilogue: bool = False,
    every_row: Callable[[Kernel], bool] = no_kernel,
    taking_turns: bool = False,
    **parameters: Values,
) -> Callable[[Test], Test]:
    """Makes a test a scenario.

    ``kernels`` selects from the catalogue (see :func:`where`) and ``dtypes`` restricts the dtypes; a kernel's rare ones
    have cases where they are named here. ``rotate`` are parameters that are not crossed below the full tier, neither
    with the others nor among themselves. ``configs`` takes, in the quick tier only, that many of each kernel's
    configs: those of the smallest tiles, because they are interpreted. With ``every_config`` the configs are those
    of the sweep (:mod:`~conformance.cases.config_space`), each in every tier, or in the tiers that it names; with
    ``every_target`` the quick tier has each target that takes the dtypes. With ``any_epilogue`` the test is not about
    what a kernel does with its products: of two kernels that differ in that alone the quick tier has one row with the
    second, addmm. Of kernels beyond the core that ``every_row`` selects, the quick tier has every value, too; with
    ``taking_turns`` only one in :data:`TURNS` kernels beyond the core has a row there. The rest are the test's own
    parameters: each a list of values, or the number of values, which are then numbers from 0, or a function that
    returns the values for a kernel; or a mapping from tier to one of these.
    """

    def decorate(test: Test) -> Test:
        before = _SCENARIOS[test.__module__]
        if test.__name__ not in before:
            before.append(test.__name__)
        number = before.index(test.__name__)
        cases = Scenario(
            *(kernels, parameters, rotate or {}, dtypes, configs, every_config, every_target, any_epilogue),
            *(every_row, taking_turns, number),
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


def every_kernel(kernel: Kernel) -> bool:
    """All kernels, of every family."""
    return True


def shapes_of(kernel: Kernel) -> list[str]:
    """Returns the values of a parameter "shape": the shape classes of the kernel's examples. Of a third-party kernel
    they have the class of those that take whole tiles only."""
    return list(kernel.shapes) if kernel.name in own_kernels() else kernel.example_shapes()


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


def _kernel_dtypes(kernel: Kernel, scenario: Scenario) -> list[str]:
    if scenario.dtypes is None:
        return kernel.dtype_names()
    return [name for name in (*kernel.dtype_names(), *kernel.rare_dtypes) if name in scenario.dtypes]


#: Refusals that are about the target and not about a config: a sweep has no case for them.
ABOUT_THE_TARGET = (ReasonCode.CAPABILITY, ReasonCode.DTYPE, ReasonCode.PRECISION)


@functools.cache
def _refusals(
    kernel: Kernel, dtype: str, config: AnyConfig, targets: tuple[Target, ...], estimated: bool
) -> Sequence[Reason | None]:
    """Returns the reason for which ``kernel`` refuses each of ``targets``; None where it does not. Kept, because many
    scenarios ask the same of a kernel."""
    return kernel.example_refusals(dtype, config, targets, estimated=estimated)


def _takes(kernel: Kernel, dtype: str, config: AnyConfig, target: Target, swept: bool) -> bool:
    """True if ``kernel`` has cases with these in a crossed tier of a test; ``swept``: the test has every config."""
    (reason,) = _refusals(kernel, dtype, config, (target,), not swept)
    if reason is None or (swept and reason.code not in ABOUT_THE_TARGET):
        return True
    return kernel.name not in own_kernels() and fitted(kernel, dtype, config, target) is not None


@functools.cache
def _configs_by_id(kernel: Kernel, target: Target, tier: str | None) -> Mapping[str, AnyConfig]:
    """Returns the configs of ``kernel`` by id; with a ``tier`` those that its sweep takes on ``target``, too."""
    swept = () if tier is None else config_space.space(kernel, target, tier)
    return {config.id: config for config in (*kernel.configs, *swept)}


def _texts_of_all_tiers(name: str, values: Values, kernel: Kernel) -> dict[str, Any]:
    """Returns the values of a parameter in all tiers, by their texts in a case id."""
    tiers = values if isinstance(values, Mapping) else CROSSED[:1]
    return {text: value for tier in tiers for text, value in named_texts(name, _values(values, kernel, tier)).items()}


#: By the name of a third-party kernel, what it raised when it was asked for its cases.
RAISED: dict[str, str] = {}


@contextlib.contextmanager
def contained(kernel: Kernel) -> Iterator[None]:
    """Inside, what a third-party kernel raises is noted in :data:`RAISED` and costs its own cases only."""
    try:
        yield
    except Exception as error:
        if kernel.name in own_kernels():
            raise
        RAISED.setdefault(kernel.name, f"{type(error).__name__}: {error}")


@functools.cache
def fitted(kernel: Kernel, dtype: str, config: AnyConfig, target: Target) -> Kernel | None:
    """The kernel that cases with this dtype, config and target ask, None if there are none. One of ours is asked as it
    is. A third-party kernel is asked in the shape, orders and variant that it takes (:meth:`Kernel.fitted`)."""
    if kernel.name in own_kernels():
        return kernel if kernel.example_refusal(dtype, config, target) is None else None
    dtypes = kernel.dtype_names() if dtype == ANY else [dtype]
    configs = kernel.configs if config == ANY else (config,)
    ways = (kernel.fitted(name, one, target) for name in dtypes for one in configs)
    return next((way for way in ways if way is not None), None)


def _asked_as(kernel: Kernel, dtype: str, config: AnyConfig, target: Target) -> Kernel:
    """Returns the kernel that a case with these values gets."""
    return kernel if kernel.name in own_kernels() else fitted(kernel, dtype, config, target) or kernel


def usable(kernel: Kernel, target: Target) -> bool:
    """True if a kernel takes an example of some dtype with some config on ``target``."""
    if kernel.name in own_kernels():
        return kernel.usable_on(target)
    return fitted(kernel, ANY, ANY, target) is not None


def has_case(kernel: Kernel, targets: Sequence[Target], tier: str) -> bool:
    """True if a test of :func:`every_kernel` has a case with ``kernel``."""
    return bool(_taken(Scenario(every_kernel, {}), kernel, targets, tier))


#: dtype, config and target that a kernel takes together.
Taken = tuple[str, Any, Target]

#: Stands for the dtype or the config in the rows of a test that takes none.
ANY = "any"


def _taken(scenario: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str) -> list[Taken]:
    """Returns each dtype, config and target that ``kernel`` takes together, targets innermost. From the default tier on
    a sweep also has configs that do not fit a target by estimate: compiled, they may. A whole sweep has those that the
    kernel refuses, too, unless the reason is :data:`ABOUT_THE_TARGET`."""
    if scenario.every_config:
        spaces = {target: dict.fromkeys(config_space.space(kernel, target, tier)) for target in targets}
    else:
        listed = kernel.configs if tier in CROSSED else covering_sample(kernel.configs)
        if scenario.configs and tier == "quick":
            listed = _of_least_tiles(kernel.configs, scenario.configs)
        spaces = dict.fromkeys(targets, dict.fromkeys(listed))
    listed_anywhere = dict.fromkeys(config for space in spaces.values() for config in space)
    targets_of = {config: tuple(t for t in targets if config in spaces[t]) for config in listed_anywhere}
    whole, ours = scenario.every_config and tier in CROSSED, kernel.name in own_kernels()
    estimated = tier == "quick" or not scenario.every_config

    def takes(dtype: str, config: AnyConfig, target: Target, reason: Reason | None) -> bool:
        if reason is None or (whole and reason.code not in ABOUT_THE_TARGET):
            return True
        return not ours and fitted(kernel, dtype, config, target) is not None

    taken = [
        (dtype, config, target)
        for dtype in _kernel_dtypes(kernel, scenario)
        for config, listing in targets_of.items()
        for target, reason in zip(listing, _refusals(kernel, dtype, config, listing, estimated), strict=True)
        if takes(dtype, config, target, reason)
    ]
    return taken if tier in CROSSED else _soon_compiled(kernel, taken, tier)


def rows(
    scenario: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str, unused: Collection[str] = ()
) -> list[tuple[Any, ...]]:
    """Returns the cases of one kernel: (target, dtype, config, *parameters, *rotated). Targets are innermost, because
    those that follow one another share the numbers of the interpreter.

    ``unused``: which of "dtype" and "config" the test does not take. The rows have :data:`ANY` instead.
    """
    return [
        (target, *pair, *own)
        for takers, pair, own in _groups(scenario.in_tier(tier), kernel, targets, tier, unused)
        for target in takers
    ]


#: The targets of cases that differ in nothing else, their dtype and config, and the values of the test's own parameters
#: and of those that are rotated. Groups share the last two, so that a large table holds few tuples in addition to its
#: rows.
Group = tuple[Sequence[Target], tuple[str, Any], tuple[Any, ...]]


def _groups(
    scenario: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str, unused: Collection[str]
) -> Iterable[Group]:
    """Returns the cases of :func:`rows`, in their order."""
    taken = _taken(scenario, kernel, targets, tier)
    if unused:
        taken = list(
            dict.fromkeys(
                (ANY if "dtype" in unused else dtype, ANY if "config" in unused else config, target)
                for dtype, config, target in taken
            )
        )
    if tier == "quick":
        chosen = _quick_rows(scenario, kernel, taken)
        return [((target,), (dtype, config), tuple(own)) for target, dtype, config, *own in chosen]
    combinations = list(itertools.product(*(_values(values, kernel, tier) for values in scenario.parameters.values())))
    if tier == "default":
        return _default_groups(scenario, kernel, taken, combinations)
    takers: dict[tuple[str, Any], list[Target]] = {}
    for dtype, config, target in taken:
        takers.setdefault((dtype, config), []).append(target)
    rotated = itertools.product(*scenario.rotate.values())
    values = [(*combination, *turn) for combination, turn in itertools.product(combinations, rotated)]
    by_dtype = [list(pairs) for _, pairs in itertools.groupby(takers.items(), key=lambda item: item[0][0])]
    return ((able, pair, own) for pairs in by_dtype for own in values for pair, able in pairs)


def _values(values: Values, kernel: Kernel, tier: str) -> Sequence[Any]:
    of_tier = values[tier] if isinstance(values, Mapping) else values
    if callable(of_tier):
        return of_tier(kernel)
    return range(of_tier) if isinstance(of_tier, int) else of_tier


#: The test's own parameters in a cover: their combinations count as the values of one parameter.
OWN = "own parameters"
#: Likewise :func:`_size` of the dtypes. A test has no parameter of this name.
SIZE = "size of dtype"


def _quick_rows(scenario: Scenario, kernel: Kernel, taken: Sequence[Taken]) -> list[tuple[Any, ...]]:
    """Returns a few rows in which every two values of two of the test's own parameters appear together, each with one
    target. Of a kernel beyond the core, or of one whose loop another kernel of the test shows, one of them. The targets
    of installed packages have rows of their own, and move no others."""
    theirs = [row for row in taken if from_elsewhere(row[2])]
    if theirs and len(theirs) < len(taken):
        ours = [row for row in taken if not from_elsewhere(row[2])]
        return [*_quick_rows(scenario, kernel, ours), *_quick_rows(scenario, kernel, theirs)]
    # Third-party kernels do not count, and a new one of ours comes last: neither moves the others here.
    peers = [known.name for known in own_kernels().values() if scenario.kernels(known)]
    place = (peers.index(kernel.name) if kernel.name in peers else len(peers)) + scenario.number
    if scenario.taking_turns and not kernel.core and kernel.name in peers:
        place, turn = divmod(place, TURNS)
        if turn:
            return []
    of_configs = bool(scenario.every_config) and not kernel.core and kernel.name in peers
    first = zlib.crc32(kernel.name.encode()) if of_configs else 0  # no other kernel moves it
    own = {name: in_turn(list(_values(values, kernel, "quick")), first) for name, values in scenario.parameters.items()}
    targets, dtypes, configs = (list(dict.fromkeys(row[at] for row in taken)) for at in (2, 0, 1))
    parameters = {
        **own,
        "dtype": in_turn(dtypes, first),
        "config": configs,
        **scenario.rotate,
        "target": in_turn(targets, place),
    }
    covered = cover(
        parameters,
        pairs=itertools.combinations(own, 2) if kernel.core else (),
        free=parameters.keys() - {"config"} if of_configs else () if scenario.every_target else ("target",),
        possible=_among(("dtype", "config", "target"), taken),
    )
    columns = ("target", "dtype", "config", *own, *scenario.rotate)
    chosen = [tuple(dict(zip(parameters, row, strict=True))[name] for name in columns) for row in covered]
    original = own_kernels().get(kernel.same_loop_as or "")
    shown = scenario.any_epilogue and original is not None and scenario.kernels(original)
    if (kernel.core and not shown) or scenario.every_config or scenario.every_target or scenario.every_row(kernel):
        return chosen
    return [
        (in_turn([taker for *pair, taker in taken if pair == [dtype, config]], place)[0], dtype, config, *others)
        for _, dtype, config, *others in in_turn(chosen, place)[:1]
    ]


def _default_groups(
    scenario: Scenario,
    kernel: Kernel,
    taken: Sequence[Taken],
    combinations: Sequence[tuple[Any, ...]],
) -> list[Group]:
    """Returns the cases of each target. Targets with the same configs have the same cases."""
    pairs_of: dict[Target, list[tuple[str, Any]]] = {}
    for dtype, config, target in taken:
        pairs_of.setdefault(target, []).append((dtype, config))
    targets_of: dict[tuple[tuple[str, Any], ...], list[Target]] = {}
    for target, pairs in pairs_of.items():
        if not scenario.every_config:
            targets_of.setdefault(tuple(_usual(kernel, pairs)), []).append(target)
            continue
        rows = config_space.torch_rows(kernel, target, "default")
        # rows of the installed torch's tables alone have a cover of their own, so that they move no other case
        for part in ([pair for pair in pairs if (pair[1] in rows) is only] for only in (False, True)):
            if part:
                targets_of.setdefault(tuple(part), []).append(target)
    return [
        (targets, pair, own)
        for pairs, targets in targets_of.items()
        for pair, own in _with_each_dtype(scenario, kernel, pairs, combinations)
    ]


def _usual(kernel: Kernel, pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Of ``pairs`` of a dtype and a config the usual configs of each dtype: :data:`USUAL_CONFIGS` of them, or one if
    the kernel is beyond the core. They stand evenly apart when configs are sorted by their tiles, and each dtype begins
    at another place, so that few dtypes share a config."""
    configs: dict[str, list[Any]] = {}
    for dtype, config in pairs:
        configs.setdefault(dtype, []).append(config)
    usual = []
    for dtype, able in configs.items():
        names = kernel.rare_dtypes if dtype in kernel.rare_dtypes else kernel.dtype_names()
        able.sort(key=_tile_size)
        begin = (2 * names.index(dtype) + 1) * len(able) // (2 * len(names)) if dtype != ANY else 0
        count = USUAL_CONFIGS if kernel.core else 1
        usual += [(dtype, in_turn(able, begin + number * len(able) // count)[0]) for number in range(count)]
    return list(dict.fromkeys(usual))


def _of_least_tiles(configs: Iterable[Any], count: int) -> tuple[Any, ...]:
    """Returns the config with most warps, and of these with most stages, of each of the ``count`` smallest tiles:
    little to interpret, few elements of each thread to compile, and a deep pipeline."""
    of_tile: dict[Any, Any] = {}
    for config in configs:
        best = of_tile.get(config.tile, config)
        of_tile[config.tile] = max(best, config, key=lambda config: (config.num_warps, config.num_stages))
    return tuple(sorted(of_tile.values(), key=_tile_size)[:count])


def _tile_size(config: Any) -> int:
    """Elements of a config's tile; 0 for :data:`ANY`."""
    return 0 if config == ANY else math.prod(config.tile)


def _with_each_dtype(
    scenario: Scenario, kernel: Kernel, pairs: Sequence[tuple[str, Any]], combinations: Sequence[tuple[Any, ...]]
) -> list[tuple[tuple[str, Any], tuple[Any, ...]]]:
    """A cover of the default tier, as the module's docstring describes it: a dtype and config, and the values of the
    test's own parameters and of those that are rotated.

    ``pairs`` are the dtypes and configs that go together, ``combinations`` those of the test's own parameters.
    """
    trios = [(_size(dtype), dtype, config) for dtype, config in pairs]
    taken = dict(zip((SIZE, "dtype", "config"), zip(*trios, strict=True), strict=True))
    columns = [combinations] if kernel.core else zip(*combinations, strict=True)
    own = dict(zip([OWN] if kernel.core else scenario.parameters, columns, strict=True))
    values = {name: list(dict.fromkeys(column)) for name, column in {**taken, **own, **scenario.rotate}.items()}
    together = [*itertools.combinations(own, 2)]
    if kernel.core:
        together += [(name, "dtype") for name in (*own, *scenario.rotate)]
    if scenario.every_config:
        together.append(("dtype" if kernel.core else SIZE, "config"))
    covered = cover(
        values,
        pairs=together,
        free=() if kernel.core or scenario.every_config else ("config",),
        possible=_among(tuple(taken), trios),
    )
    if kernel.core:
        return [((dtype, config), (*combination, *turn)) for _, dtype, config, combination, *turn in covered]
    return [((dtype, config), tuple(others)) for _, dtype, config, *others in covered]


def _size(dtype: str) -> int:
    """Bytes of an element of a dtype's first operand, on which most code depends; 0 for :data:`ANY`."""
    return 0 if dtype == ANY else itemsize(stored_dtype(dtype))


def _among(names: Sequence[str], taken: Iterable[tuple[Any, ...]]) -> Callable[[Mapping[str, Any]], bool]:
    """Says whether a partial row, a mapping from some names to values, can still become one of ``taken``."""
    parts = {part for row in taken for part in itertools.product(*((None, value) for value in row))}
    return lambda part: tuple(map(part.get, names)) in parts


def _soon_compiled(kernel: Kernel, taken: Sequence[Taken], tier: str) -> list[Taken]:
    """``taken`` without what takes long to compile: see :func:`~conformance.cases.unrolled.within_limit`. Rows of the
    installed torch's tables alone decide nothing about others."""
    configs: dict[Target, list[Any]] = {}
    others = any(dtype != UNROLLED for dtype, *_ in taken)
    keeps_its_least = tier != "quick" or kernel.name not in own_kernels() or not others
    for dtype, config, target in taken:
        if keeps_its_least and dtype == UNROLLED and config_space.torch_row(kernel, target, config, tier) is None:
            configs.setdefault(target, []).append(config)
    return [
        (dtype, config, target)
        for dtype, config, target in taken
        if dtype != UNROLLED
        or within_limit(kernel, kernel.example(dtype, config, kernel.usual_shape), config, configs.get(target, ()))
    ]


def _one_shape(kernel: Kernel) -> Sequence[str]:
    """One shape class that stands for all; of a third-party kernel all, because it may refuse the usual one."""
    return [kernel.usual_shape] if kernel.name in own_kernels() else shapes_of(kernel)


def table_of(scenario: Scenario, selection: Selection, arguments: Sequence[str]) -> CaseTable:
    """Returns the cases of a test with these ``arguments``. Other parameters are in no id and do not multiply the
    cases."""
    scenario = scenario.in_tier(selection.tier)
    if selection.compile_only and "shape" in scenario.parameters and scenario.every_config:
        # the examples of every shape are served by one compilation
        scenario = replace(scenario, parameters={**scenario.parameters, "shape": _one_shape})
    names = scenario.columns
    taken = [place for place, name in enumerate(names) if name in arguments]
    unused = {"dtype", "config"}.difference(arguments)
    whole = len(taken) == len(names)
    table = CaseTable(scenario.names(arguments), {})
    for kernel in catalogue().values():
        if not scenario.kernels(kernel) or (selection.kernels and kernel.name not in selection.kernels):
            continue
        text_of_pair = _Texts([name if name in arguments else None for name in ("dtype", "config")], bare=True)
        text_of_own = _Texts([name if name in arguments else None for name in names[4:]])
        start = [kernel.name] if "kernel" in arguments else []
        # by address, because a target's hash costs more than the rest of a row
        ends = {id(target): f"-{target.id}" if "target" in arguments else "" for target in selection.targets}
        with contained(kernel):
            for takers, pair, own in _groups(scenario, kernel, selection.targets, selection.tier, unused):
                middle = "-".join([*start, *text_of_pair(pair), *text_of_own(own)])
                values = {
                    middle + ends[id(target)] if middle else target.id: (
                        _asked_as(kernel, *pair, target),
                        target,
                        *pair,
                        *own,
                    )
                    for target in takers
                }
                if not whole:
                    values = {text: tuple(row[place] for place in taken) for text, row in values.items()}
                table.rows.update(values)
    return table


class _Texts:
    """The texts in an id of tuples of values, made once each. ``names`` has the name of each value, None for one that
    is in no id; it is written before the value unless ``bare``."""

    def __init__(self, names: Sequence[str | None], *, bare: bool = False) -> None:
        self._starts = [None if name is None else "" if bare else f"{name}=" for name in names]
        self._made: dict[int, tuple[tuple[Any, ...], list[str]]] = {}

    def __call__(self, values: tuple[Any, ...]) -> list[str]:
        """Returns the texts of ``values``. The same tuple has the same texts; one that is only equal may not: True
        equals 1."""
        made = self._made.get(id(values))
        if made is None:
            pairs = zip(self._starts, values, strict=True)
            # kept with its tuple, whose address could otherwise become that of another
            made = values, [start + identify(value) for start, value in pairs if start is not None]
            self._made[id(values)] = made
        return made[1]
