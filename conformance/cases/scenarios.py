"""Which cases a suite's test stands for: kernels x targets x dtypes x configs x its own parameters, thinned by tier.

A test states what it is about and gets one case per row::

    @scenario(where(persistent=True), order=ORDERS, tma_store=[False, True], rotate={"flatten": [False, True]})
    def test_x(conform, kernel, target, dtype, config, order, tma_store, flatten): ...

The test's own parameters are crossed in full with the kernels of the core, and above the quick tier with all. dtype,
config, target and ``rotate`` are

* *quick*: rotated, so that each combination appears once with a kernel of the core, on one target: the first target of
  the run with every other kernel, the rest in turn with the others. Each kernel beyond the core takes
  :data:`QUICK_TURNS` of them, other ones for each kernel, on one target;
* *default*: dtypes crossed, the rest rotated several times around;
* *full* and *exhaustive*: crossed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.cases import config_space
from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test, identify
from conformance.heuristics.configs import AnyConfig, Config
from conformance.heuristics.row_sample import covering_sample
from conformance.kernels.catalogue import catalogue
from conformance.kernels.examples import stored_dtype
from conformance.kernels.kernel import Kernel
from conformance.problems import itemsize
from conformance.records import ReasonCode
from conformance.targets import Target

#: Rotations of dtype, config and ``rotate`` per combination in the default tier, for kernels of the core.
DEFAULT_TURNS = 3

#: The dtype that no matrix unit multiplies: its products are unrolled, which takes a large tile many times as long to
#: compile as any other dtype. The quick tier sweeps it with the smallest tile.
UNROLLED = "fp32"

#: Combinations that a kernel beyond the core takes of a topic in the quick tier: the topic is covered by the core, and
#: other kernels take other ones.
QUICK_TURNS = 1


#: A parameter's values: a list, how many numbers from 0 by tier, or what a kernel answers.
Values = Sequence[Any] | Mapping[str, int] | Callable[[Kernel], Sequence[Any]]


@dataclass(frozen=True)
class Scenario:
    """The arguments of :func:`scenario`."""

    kernels: Callable[[Kernel], bool]
    parameters: Mapping[str, Values]
    rotate: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dtypes: tuple[str, ...] | None = None
    configs: int | None = None
    every_config: bool = False
    every_target: bool = False

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """See :func:`table_of`."""
        return table_of(self, selection, arguments)


def scenario(
    kernels: Callable[[Kernel], bool],
    *,
    rotate: Mapping[str, Sequence[Any]] | None = None,
    dtypes: tuple[str, ...] | None = None,
    configs: int | None = None,
    every_config: bool = False,
    every_target: bool = False,
    **parameters: Values,
) -> Callable[[Test], Test]:
    """Makes a test a scenario. ``kernels`` selects from the catalogue (see :func:`where`), ``dtypes`` restricts the
    dtypes, ``configs`` takes in the quick tier only that many of each kernel's covering sample, ``every_config`` makes
    each of the sample appear in every tier and ``every_target`` each target (that takes all of ``dtypes``), the rest
    are the test's parameters. A parameter given as a mapping from tier to count takes that many numbers from 0, one
    given as a function what it returns for a kernel."""
    scene = Scenario(kernels, parameters, rotate or {}, dtypes, configs, every_config, every_target)

    def decorate(test: Test) -> Test:
        setattr(test, ATTRIBUTE, scene)
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
            elif getattr(kernel, name) != value:
                return False
        return True

    return matches


def every_kernel(kernel: Kernel) -> bool:
    """All kernels, of every family."""
    return True


def shapes_of(kernel: Kernel) -> list[str]:
    """The values of a parameter "shape": the shape classes of the kernel's examples."""
    return list(kernel.shapes)


def ragged(config: Config, dtype: str, *, aligned: bool) -> tuple[int, int, int]:
    """(M, N, K) with 2 x 2 tiles and 4 k-blocks of ``config``, the last of each ragged. ``aligned`` keeps rows of every
    order at multiples of 16 bytes, as descriptors need; otherwise the sizes are odd where they can be."""
    step = 16 // itemsize(stored_dtype(dtype)) if aligned else 1

    def side(block: int) -> int:
        """Just below 7/4 of a block; a block and a step where that is no more than one block."""
        return max(7 * block // 4 // step * step - step, block + step)

    return side(config.block_m), side(config.block_n), 3 * config.block_k + step


def _kernel_dtypes(kernel: Kernel, scene: Scenario) -> list[str]:
    return [name for name in kernel.dtype_names() if scene.dtypes is None or name in scene.dtypes]


Usable = Mapping[str, Sequence[tuple[AnyConfig, list[Target]]]]

#: dtype, config, targets, combination of the test's own parameters, values of ``rotate``.
Choice = tuple[str, AnyConfig, list[Target], tuple[Any, ...], tuple[Any, ...]]


#: Refusals that are about the target and not about a config: a sweep has no case for them.
ABOUT_THE_TARGET = (ReasonCode.CAPABILITY, ReasonCode.DTYPE, ReasonCode.PRECISION)


def _usable(scene: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str) -> Usable:
    """For each dtype the configs that come into question, each with the targets on which the kernel takes it. In a
    whole sweep a config that a target's limits refuse is a case too."""
    if scene.every_config:
        spaces = {target: dict.fromkeys(config_space.space(kernel, target, tier)) for target in targets}
    else:
        listed = kernel.configs if tier in ("full", "exhaustive") else covering_sample(kernel.configs)
        listed = listed[: scene.configs] if scene.configs and tier == "quick" else listed
        spaces = dict.fromkeys(targets, dict.fromkeys(listed))
    whole = scene.every_config and tier in ("full", "exhaustive")

    def able(dtype: str, config: AnyConfig) -> list[Target]:
        reasons = {
            target: kernel.example_refusal(dtype, config, target) for target in targets if config in spaces[target]
        }
        return [
            target
            for target, reason in reasons.items()
            if reason is None or (whole and reason.code not in ABOUT_THE_TARGET)
        ]

    configs = dict.fromkeys(config for known in spaces.values() for config in known)
    return {
        dtype: [(config, found) for config in configs if (found := able(dtype, config))]
        for dtype in _kernel_dtypes(kernel, scene)
    }


def _values(values: Values, kernel: Kernel, tier: str) -> Sequence[Any]:
    if callable(values):
        return values(kernel)
    return range(values[tier]) if isinstance(values, Mapping) else values


def rows(scene: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str) -> list[tuple[Any, ...]]:
    """(target, dtype, config, *parameters, *rotated) of one kernel, targets innermost so that they share numbers."""
    values = [_values(given, kernel, tier) for given in scene.parameters.values()]
    combinations = list(itertools.product(*values)) or [()]
    rotated = list(itertools.product(*scene.rotate.values())) or [()]
    usable = _usable(scene, kernel, targets, tier)
    dtypes = [dtype for dtype, configs in usable.items() if configs]
    if scene.every_config and tier in ("quick", "default"):
        chosen = _swept(dtypes, usable, combinations, rotated, tier)
    elif tier == "quick":
        turns = _quick_turns(kernel, max(len(combinations), len(dtypes), len(rotated)))
        chosen = _turned(dtypes, usable, combinations, rotated, turns, _sharing(scene, kernel, len(turns)))
    else:
        chosen = _crossed(dtypes, usable, combinations, rotated, tier, kernel.core)
    found: dict[tuple[Any, ...], None] = {}
    for dtype, config, able, combination, turn in chosen:
        found |= {(target, dtype, config, *combination, *turn): None for target in able}
    return list(found)


#: Which of the targets that take a combination show it in the quick tier, by the number of the turn.
Sharing = Callable[[Sequence[Target], int], Sequence[Target]]


def _sharing(scene: Scenario, kernel: Kernel, turns: int) -> Sharing:
    """How the targets share the turns of one kernel in the quick tier."""
    if scene.every_target:
        return lambda able, index: able[index % turns :: turns]
    if not kernel.core:
        return _rotated
    core = [known.name for known in catalogue().values() if scene.kernels(known) and known.core]
    return functools.partial(_first_or_other, place=core.index(kernel.name))


def _quick_turns(kernel: Kernel, turns: int) -> range:
    """Which turns of the rotation the quick tier takes of one kernel."""
    if kernel.core:
        return range(turns)
    others = [known.name for known in catalogue().values() if not known.core]
    first = QUICK_TURNS * (1 + others.index(kernel.name))
    return range(first, first + min(turns, QUICK_TURNS))


def _swept(
    dtypes: Sequence[str],
    usable: Usable,
    combinations: Sequence[tuple[Any, ...]],
    rotated: Sequence[tuple[Any, ...]],
    tier: str,
) -> Iterable[Choice]:
    """Every config of a sample: in the quick tier with one of the dtypes that take it, on one target (the smallest tile
    with :data:`UNROLLED`, the others without), otherwise with each of them on all; the rest is rotated so that it keeps
    in step with neither."""
    if tier == "quick":
        configs = dict.fromkeys(config for dtype in dtypes for config, _ in usable[dtype])
        unrolled = [config for config, _ in usable.get(UNROLLED, ())]
        least = min(unrolled, key=lambda config: math.prod(config.tile), default=None)
        for index, config in enumerate(configs):
            takers = [(dtype, able) for dtype in dtypes for known, able in usable[dtype] if known == config]
            takers = [taker for taker in takers if (taker[0] == UNROLLED) == (config == least)] or takers
            dtype, able = takers[index % len(takers)]
            turn = index + index // len(combinations)
            others = combinations[turn % len(combinations)], rotated[turn % len(rotated)]
            yield dtype, config, _rotated(able, turn), *others
        return
    for number, dtype in enumerate(dtypes):
        count = len(usable[dtype])
        for index in range(max(len(combinations), count, len(rotated))):
            config, able = usable[dtype][index % count]
            turn = index + index // count + number
            yield dtype, config, able, combinations[turn % len(combinations)], rotated[turn % len(rotated)]


def _rotated(able: Sequence[Target], index: int) -> list[Target]:
    """One of the targets, another one for each index; none of none."""
    return [able[index % len(able)]] if able else []


def _first_or_other(able: Sequence[Target], index: int, place: int) -> list[Target]:
    """The first target for every other kernel of the core (this is number ``place``), so that it shows a combination
    with one of two; one of the others, another for each index and kernel, with the rest."""
    on_first = (index + index // 2 + place) % 2 == 0  # not in step with a parameter of two values
    return _rotated(able[:1] if on_first or len(able) == 1 else able[1:], index // 2 + place)


def _turned(
    dtypes: Sequence[str],
    usable: Usable,
    combinations: Sequence[tuple[Any, ...]],
    rotated: Sequence[tuple[Any, ...]],
    turns: range,
    sharing: Sharing,
) -> Iterable[Choice]:
    """The quick tier."""
    for index in turns if dtypes else ():
        # The quotient keeps dtype, config and rotation from repeating in step with the combinations.
        lap = index // len(combinations) if len(combinations) > 1 else 0
        dtype = dtypes[(index + lap) % len(dtypes)]
        config, able = usable[dtype][index % len(usable[dtype])]
        turn = rotated[(index + lap) % len(rotated)]
        yield dtype, config, list(sharing(able, index)), combinations[index % len(combinations)], turn


def _crossed(
    dtypes: Sequence[str],
    usable: Usable,
    combinations: Sequence[tuple[Any, ...]],
    rotated: Sequence[tuple[Any, ...]],
    tier: str,
    core: bool,
) -> Iterable[Choice]:
    """The tiers above quick."""
    if tier in ("full", "exhaustive"):
        for dtype, combination, turn in itertools.product(dtypes, combinations, rotated):
            for config, able in usable[dtype]:
                yield dtype, config, able, combination, turn
        return
    for number, dtype in enumerate(dtypes):
        configs = len(usable[dtype]) if core else 1
        for index in range(max((DEFAULT_TURNS if core else 1) * len(combinations), configs, len(rotated))):
            lap = index // len(combinations)
            config, able = usable[dtype][(index + lap + number) % len(usable[dtype])]
            turn = rotated[(index + lap + number) % len(rotated)]
            yield dtype, config, able, combinations[index % len(combinations)], turn


def table_of(scene: Scenario, selection: Selection, arguments: Sequence[str]) -> CaseTable:
    """The cases of a test that takes ``arguments``; what it does not take is in no id, and makes no second case."""
    if selection.compile_only and scene.every_config:  # the examples of every shape are served by one compilation
        scene = replace(scene, parameters={**scene.parameters, "shape": lambda kernel: [kernel.usual_shape]})
    names = ("kernel", "target", "dtype", "config", *scene.parameters, *scene.rotate)
    asked = [name for name in names if name in arguments]
    cases: dict[tuple[Any, ...], str] = {}
    for kernel in catalogue().values():
        if not scene.kernels(kernel) or (selection.kernels and kernel.name not in selection.kernels):
            continue
        for row in rows(scene, kernel, selection.targets, selection.tier):
            values = dict(zip(names, (kernel, *row), strict=True))
            text = [
                f"{identify(v)}" if n in ("kernel", "dtype", "config") else f"{n}={identify(v)}"
                for n, v in values.items()
                if n in asked and n != "target"
            ]
            if "target" in asked:
                text.append(values["target"].id)
            cases.setdefault(tuple(values[name] for name in asked), "-".join(text))
    return CaseTable(tuple(asked), {text: values for values, text in cases.items()})
