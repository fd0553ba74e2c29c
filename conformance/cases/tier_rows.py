"""Chooses the rows of one kernel in one test, by tier: the budgets, and one cover that fills them.

The choice depends on the kernel and the test alone: no other kernel, test, package or target moves a row.
``docs/configs.md`` states the rules for users.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from conformance.cases import config_space
from conformance.cases.asked_tests import answer
from conformance.cases.case_table import Selection, digest, identify
from conformance.cases.config_space import covering_sample
from conformance.cases.cover import cover, in_turn
from conformance.cases.kernel_answers import ANY, Taken, asked_as, soon_compiled, takers, without
from conformance.cases.replaced_rows import Replacement
from conformance.families.examples import stored_dtype
from conformance.kernels.catalogue import is_own
from conformance.kernels.kernel import Kernel
from conformance.kernels.refusal_rules import objection
from conformance.problems import itemsize
from conformance.targets import Target, known_targets, sharing_targets

if TYPE_CHECKING:
    from conformance.cases.scenarios import Scenario

#: The tiers in which everything is crossed.
CROSSED = ("full", "exhaustive")

#: Rows that the quick tier has of a kernel in a test, at most, by the kernel's weight. None: as many as show every two
#: values of the test's parameters together.
ROWS: Mapping[int, int | None] = {3: None, 2: 2, 1: 1}
#: The same in a test of every config.
SWEPT_ROWS: Mapping[int, int | None] = {3: 8, 2: 4, 1: 4}

#: Configs that each dtype of a kernel has in the default tier. They are the same in every test but the sweep, so that
#: what is compiled for one test serves another.
USUAL_CONFIGS: Mapping[int, int] = {3: 2, 2: 2, 1: 1}

#: dtype, config, and the values of the test's own parameters and of those that it rotates.
Row = tuple[Any, ...]

#: The targets of cases that differ in nothing else, with their dtype and config. The values are those of the test's own
#: parameters, and of those that are rotated. Groups share the last two, so that a large table holds few tuples and many
#: rows.
Group = tuple[Sequence[Target], tuple[str, Any], tuple[Any, ...]]


def groups(
    scenario: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str, unused: Collection[str] = ()
) -> Iterable[Group]:
    """The cases of ``kernel`` in ``tier``. ``unused``: which of "dtype" and "config" the test does not take."""
    if tier == "quick":
        return _quick_groups(scenario, kernel, targets, unused)
    accepted = without(_taken(scenario, kernel, targets, tier), unused)
    combinations = list(itertools.product(*(scenario.values(name, kernel, tier) for name in scenario.parameters)))
    if tier == "default":
        return _default_groups(scenario, kernel, accepted, combinations)
    able: dict[tuple[str, Any], list[Target]] = {}
    for dtype, config, target in accepted:
        able.setdefault((dtype, config), []).append(target)
    rotated = itertools.product(*scenario.rotate.values())
    values = [(*combination, *turn) for combination, turn in itertools.product(combinations, rotated)]
    by_dtype = [list(pairs) for _, pairs in itertools.groupby(able.items(), key=lambda item: item[0][0])]
    return ((able, pair, own) for pairs in by_dtype for own in values for pair, able in pairs)


def _taken(scenario: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str) -> list[Taken]:
    """Each dtype, config and target that ``kernel`` takes together, targets innermost. From the default tier on a sweep
    also has configs that do not fit a target by estimate. A whole sweep has those that the kernel refuses, too."""
    swept = scenario.sweeps(tier)
    if swept:
        spaces = {target: dict.fromkeys(config_space.space(kernel, target, tier)) for target in targets}
    else:
        listed = kernel.configs if tier in CROSSED else covering_sample(kernel.configs)
        if scenario.configs and tier == "quick":
            listed = _of_least_tiles(kernel.configs, scenario.configs)
        spaces = dict.fromkeys(targets, dict.fromkeys(listed))
    listed_anywhere = dict.fromkeys(config for space in spaces.values() for config in space)
    targets_of = {config: tuple(t for t in targets if config in spaces[t]) for config in listed_anywhere}
    options = {"estimated": tier == "quick" or not swept, "refused": swept and tier in CROSSED}
    accepted = [
        (dtype, config, target)
        for dtype in scenario.dtypes_of(kernel)
        for config, listing in targets_of.items()
        for target in takers(kernel, dtype, config, listing, **options)
    ]
    return accepted if tier in CROSSED else soon_compiled(kernel, accepted, tier)


class _Asked:
    """Asks a third-party kernel about the rows of one test in a tier; of others it asks nothing."""

    def __init__(self, scenario: Scenario, kernel: Kernel, tier: str) -> None:
        self._scenario, self._kernel, self._tier = scenario, kernel, tier
        self._replacement: Replacement | None = None

    def replaced(self, rows: list[Row], accepted: Sequence[Taken]) -> list[Row]:
        """Returns ``rows``, those that the kernel refuses replaced as far as possible. ``accepted`` are the dtypes and
        configs that it takes, and a target, on which it is asked."""
        scenario, kernel = self._scenario, self._kernel
        if is_own(kernel) or scenario.test is None or not rows:
            return rows
        target, pairs = accepted[0][2], dict.fromkeys((dtype, config) for dtype, config, _ in accepted)
        values = {
            "dtype": [dtype for dtype, _ in pairs],
            "config": [config for _, config in pairs],
            **{name: scenario.values(name, kernel, self._tier) for name in scenario.parameters},
            **scenario.rotate,
        }
        columns = {name: list(column) for name, column in values.items()}
        for name, column in zip(columns, zip(*rows, strict=True), strict=True):
            columns[name] = list(dict.fromkeys((*columns[name], *column)))
        if self._replacement is None:
            self._replacement = Replacement()
        return self._replacement(
            rows, columns, lambda row: self._takes(row, target), lambda row: (row[0], row[1]) in pairs
        )

    def _takes(self, row: Row, target: Target) -> bool:
        """False if the kernel refuses the plan of ``row`` on ``target``, and may do so."""
        scenario, (dtype, config, *own) = self._scenario, row
        assert scenario.test is not None
        kernel = asked_as(self._kernel, dtype, config, target)
        names = inspect.signature(scenario.test).parameters
        values = dict(zip(scenario.columns, (kernel, target, dtype, config, *own), strict=True))
        selection = Selection((target,), self._tier)
        given = answer(scenario.test, {name: value for name, value in values.items() if name in names}, selection)
        if given is None or given.reason is None:
            return True
        return given.plan is not None and objection(kernel, given.plan, given.reason) is not None


# The quick tier


def _quick_groups(
    scenario: Scenario, kernel: Kernel, targets: Sequence[Target], unused: Collection[str]
) -> list[Group]:
    """The rows that targets share, each on one of them, and the rows of each target that shares none."""
    if _left_to_others(scenario, kernel):
        return []
    sharing = sharing_targets() if shares(scenario, kernel) else ()
    chosen: list[Group] = []
    asked = _Asked(scenario, kernel, "quick")
    for group in (sharing, *((target,) for target in targets if target not in sharing)):
        if not group or set(targets).isdisjoint(group):
            continue
        rivals = sharing if group != sharing and group[0] in known_targets() else ()
        accepted = without(_taken(scenario, kernel, group, "quick"), unused)
        if accepted:
            chosen += _placed(scenario, kernel, accepted, rivals, asked)
    return [group for group in chosen if group[0][0] in targets]


def shares(scenario: Scenario, kernel: Kernel) -> bool:
    """Returns whether targets share the rows of the quick tier, each on one of them.

    A third-party kernel has its rows on every target, because its owner may run any of them alone.
    """
    return not scenario.every_target and is_own(kernel)


def _left_to_others(scenario: Scenario, kernel: Kernel) -> bool:
    """True if the test names other kernels of weight 1 for the quick tier."""
    return kernel.weight == 1 and is_own(kernel) and not scenario.quick(kernel)


def _placed(
    scenario: Scenario, kernel: Kernel, accepted: Sequence[Taken], rivals: Sequence[Target], asked: _Asked
) -> list[Group]:
    """The rows of ``accepted``, each on the target with the largest digest of those that take its dtype and config.

    A row is left out if one of ``rivals`` has a larger digest. So a built-in target that shares no rows has about as
    many as one that does. A device, or a target of a package, has no rivals. Rows that the kernel refuses are replaced
    if targets share none.
    """
    placed: list[Group] = []
    rows = quick_rows(scenario, kernel, accepted)
    for dtype, config, *own in rows if shares(scenario, kernel) else asked.replaced(rows, accepted):
        able = [target for *pair, target in accepted if pair == [dtype, config]]
        row = (scenario.name, kernel.name, dtype, identify(config), *map(identify, own))
        winner = max((*able, *rivals), key=lambda target: digest(*row, target.id))
        if winner in able:
            placed.append(([winner], (dtype, config), tuple(own)))
    return placed


def quick_rows(scenario: Scenario, kernel: Kernel, accepted: Sequence[Taken]) -> list[Row]:
    """The rows that fill the budget of ``kernel`` in a test, without their targets.

    A kernel of weight 3 begins with the first value of each parameter. Another begins with values that the names of
    kernel, test and parameter decide, so that kernels with one row show different values.
    """
    swept = scenario.sweeps("quick")
    values = {
        **{name: list(scenario.values(name, kernel, "quick")) for name in scenario.parameters},
        "dtype": list(dict.fromkeys(row[0] for row in accepted)),
        "config": list(dict.fromkeys(row[1] for row in accepted)),
        **scenario.rotate,
    }
    if kernel.weight < 3 or not shares(scenario, kernel):
        place = [] if shares(scenario, kernel) else [accepted[0][2].id]
        values = {
            name: in_turn(list(column), digest(scenario.name, kernel.name, name, *place))
            for name, column in values.items()
        }
    pairs = itertools.combinations(scenario.parameters, 2) if kernel.weight > 1 else ()
    covered = cover(
        values,
        pairs=() if scenario.every_target else pairs,
        free=values.keys() - {"config"} if swept and kernel.weight == 1 and is_own(kernel) else (),
        possible=_among(("dtype", "config"), [row[:2] for row in accepted]),
        shown={"config": config_space.traits} if swept else {},
        budget=budget(scenario, kernel),
    )
    order = ("dtype", "config", *scenario.parameters, *scenario.rotate)
    return [tuple(dict(zip(values, row, strict=True))[name] for name in order) for row in covered]


def budget(scenario: Scenario, kernel: Kernel) -> int | None:
    """Returns how many rows the quick tier has of ``kernel`` in a test, at most; None for no limit. If targets do not
    share them (:func:`shares`), each target has as many. A sweep of a third-party kernel shows all that its configs
    show: it may take no other test."""
    if scenario.every_target:
        return 1
    if scenario.every_row(kernel) or (scenario.sweeps("quick") and not is_own(kernel)):
        return None
    return (SWEPT_ROWS if scenario.sweeps("quick") else ROWS)[kernel.weight]


def rule(scenario: Scenario, kernel: Kernel, tier: str) -> str:
    """Says in a clause how ``tier`` chooses among the rows of ``kernel``."""
    weight = f"{kernel.name} has weight {kernel.weight}"
    if tier in CROSSED:
        return "everything is crossed"
    if tier == "default":
        if scenario.sweeps(tier):
            return (
                f"{weight}: every config of the sample with every {'dtype' if kernel.weight > 1 else 'size of dtype'}"
            )
        shows = "each combination with every dtype" if kernel.weight > 1 else "every two values together"
        return f"{weight}: {shows}, {USUAL_CONFIGS[kernel.weight]} configs of a dtype"
    if _left_to_others(scenario, kernel):
        return f"{weight}, and others of weight 1 stand for it in this test"
    rows = budget(scenario, kernel)
    if rows is None:
        shows = "every two values together" if kernel.weight > 1 else "every value"
    else:
        shows = f"at most {rows} row{'s' if rows > 1 else ''}"
    return f"{weight}: {shows}{', each on one target' if shares(scenario, kernel) else ' on each target'}"


def _of_least_tiles(configs: Iterable[Any], count: int) -> tuple[Any, ...]:
    """Returns the config with most warps, and of these with most stages, of each of the ``count`` smallest tiles. They
    have little to interpret, few elements of each thread to compile, and a deep pipeline."""
    of_tile: dict[Any, Any] = {}
    for config in configs:
        best = of_tile.get(config.tile, config)
        of_tile[config.tile] = max(best, config, key=lambda config: (config.num_warps, config.num_stages))
    return tuple(sorted(of_tile.values(), key=_tile_size)[:count])


def _tile_size(config: Any) -> int:
    """Elements of a config's tile; 0 for :data:`ANY`."""
    return 0 if config == ANY else math.prod(config.tile)


# The default tier

#: The test's own parameters in a cover: their combinations count as the values of one parameter.
OWN = "own parameters"
#: Likewise :func:`size_of` the dtypes. A test has no parameter of this name.
SIZE = "size of dtype"


def _default_groups(
    scenario: Scenario,
    kernel: Kernel,
    accepted: Sequence[Taken],
    combinations: Sequence[tuple[Any, ...]],
) -> list[Group]:
    """The cases of each target. Targets with the same configs have the same cases."""
    pairs_of: dict[Target, list[tuple[str, Any]]] = {}
    for dtype, config, target in accepted:
        pairs_of.setdefault(target, []).append((dtype, config))
    targets_of: dict[tuple[tuple[str, Any], ...], list[Target]] = {}
    for target, pairs in pairs_of.items():
        if not scenario.sweeps("default"):
            targets_of.setdefault(tuple(_usual(kernel, pairs)), []).append(target)
            continue
        rows = config_space.torch_rows(kernel, target, "default")
        # rows of the installed torch's tables alone have a cover of their own, so that they move no other case
        for part in ([pair for pair in pairs if (pair[1] in rows) is only] for only in (False, True)):
            if part:
                targets_of.setdefault(tuple(part), []).append(target)
    chosen: list[Group] = []
    asked = _Asked(scenario, kernel, "default")
    for able, on in targets_of.items():
        covered: list[Row] = [(*pair, *own) for pair, own in _with_each_dtype(scenario, kernel, able, combinations)]
        covered = asked.replaced(covered, [(*pair, on[0]) for pair in able])
        chosen += [(on, (dtype, config), tuple(own)) for dtype, config, *own in covered]
    return chosen


def _usual(kernel: Kernel, pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Of ``pairs`` of a dtype and a config the usual configs of each dtype. They stand evenly apart when configs are
    sorted by their tiles, and each dtype begins at another place, so that few dtypes share a config."""
    configs: dict[str, list[Any]] = {}
    for dtype, config in pairs:
        configs.setdefault(dtype, []).append(config)
    usual = []
    for dtype, able in configs.items():
        names = kernel.rare_dtypes if dtype in kernel.rare_dtypes else kernel.dtype_names()
        able.sort(key=_tile_size)
        begin = (2 * names.index(dtype) + 1) * len(able) // (2 * len(names)) if dtype != ANY else 0
        count = USUAL_CONFIGS[kernel.weight]
        usual += [(dtype, in_turn(able, begin + number * len(able) // count)[0]) for number in range(count)]
    return list(dict.fromkeys(usual))


def _with_each_dtype(
    scenario: Scenario, kernel: Kernel, pairs: Sequence[tuple[str, Any]], combinations: Sequence[tuple[Any, ...]]
) -> list[tuple[tuple[str, Any], tuple[Any, ...]]]:
    """A cover of the default tier: a dtype and config, and the values of the test's own parameters and of those that
    are rotated. ``pairs`` are the dtypes and configs that go together, ``combinations`` those of the own parameters.

    A kernel of weight 1 shows every two own values together, and each rotated value and size of dtype once. A heavier
    one shows each combination, and each rotated value, with every dtype.
    """
    heavy, swept = kernel.weight > 1, scenario.sweeps("default")
    trios = [(size_of(dtype), dtype, config) for dtype, config in pairs]
    by_name = dict(zip((SIZE, "dtype", "config"), zip(*trios, strict=True), strict=True))
    columns = [combinations] if heavy else zip(*combinations, strict=True)
    own = dict(zip([OWN] if heavy else scenario.parameters, columns, strict=True))
    values = {name: list(dict.fromkeys(column)) for name, column in {**by_name, **own, **scenario.rotate}.items()}
    together = [*itertools.combinations(own, 2)]
    if heavy:
        together += [(name, "dtype") for name in (*own, *scenario.rotate)]
    if swept:
        together.append(("dtype" if heavy else SIZE, "config"))
    covered = cover(
        values,
        pairs=together,
        free=() if heavy or swept else ("config",),
        possible=_among(tuple(by_name), trios),
    )
    if heavy:
        return [((dtype, config), (*combination, *turn)) for _, dtype, config, combination, *turn in covered]
    return [((dtype, config), tuple(others)) for _, dtype, config, *others in covered]


def size_of(dtype: str) -> int:
    """Bytes of an element of a dtype's first operand, on which most code depends; 0 for :data:`ANY`."""
    return 0 if dtype == ANY else itemsize(stored_dtype(dtype))


def _among(names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> Callable[[Mapping[str, Any]], bool]:
    """Says whether a partial row, a mapping from some names to values, can still become one of ``rows``."""
    parts = {part for row in rows for part in itertools.product(*((None, value) for value in row))}
    return lambda part: tuple(map(part.get, names)) in parts
