"""Which cases a suite's test stands for: kernels x targets x dtypes x configs x its own parameters, thinned by tier.

A test states what it is about and gets one case per row::

    @scenario(where(persistent=True), order=ORDERS, tma_store=[False, True], rotate={"flatten": [False, True]})
    def test_x(conform, kernel, target, dtype, config, order, tma_store, flatten): ...

The test's own parameters are always crossed in full. dtype, config, target and ``rotate`` are

* *quick*: rotated, so that each of their values appears with some combination, and each combination appears once;
* *default*: dtypes crossed, the rest rotated several times around;
* *full* and *exhaustive*: crossed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from conformance.kernels.catalogue import catalogue
from conformance.kernels.configs import covering_sample
from conformance.kernels.kernel import Kernel, NotApplicable, Variant
from conformance.kernels.launch import Config
from conformance.problems import Gemm, Layout, addmm, itemsize, mm, scaled_mm
from conformance.targets import Target

#: Rotations of dtype, config and ``rotate`` per combination in the default tier.
DEFAULT_TURNS = 3

#: The dtypes of a scenario: a problem's dtype, with "tf32" for fp32 operands in tf32 precision.
DTYPE_NAMES = {"fp32": ("fp32", "tf32")}


@dataclass(frozen=True)
class Scenario:
    """The arguments of :func:`scenario`."""

    kernels: Callable[[Kernel], bool]
    parameters: Mapping[str, Sequence[Any]]
    rotate: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    dtypes: tuple[str, ...] | None = None
    configs: int | None = None


def scenario(
    kernels: Callable[[Kernel], bool],
    *,
    rotate: Mapping[str, Sequence[Any]] | None = None,
    dtypes: tuple[str, ...] | None = None,
    configs: int | None = None,
    **parameters: Sequence[Any],
) -> pytest.MarkDecorator:
    """Marks a test as a scenario. ``kernels`` selects from the catalogue (see :func:`where`), ``dtypes`` restricts the
    dtypes, ``configs`` takes in the quick tier only that many of each kernel's covering sample, the rest are the test's
    parameters."""
    return pytest.mark.scenario(Scenario(kernels, parameters, rotate or {}, dtypes, configs))


def where(**attributes: Any) -> Callable[[Kernel], bool]:
    """Kernels whose attributes have these values; ``operation`` asks for one of the kernel's operations."""

    def matches(kernel: Kernel) -> bool:
        for name, value in attributes.items():
            if name == "operation":
                if not kernel.operations & ({value} if isinstance(value, str) else set(value)):
                    return False
            elif getattr(kernel, name) != value:
                return False
        return True

    return matches


def problem_for(kernel: Kernel, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
    """A problem of the kernel's operation; dtype "tf32" means fp32 operands in tf32 precision."""
    if dtype == "tf32":
        dtype, fields = "fp32", {**fields, "precision": "tf32"}
    operation = next(name for name in ("mm", "addmm", "scaled_mm") if name in kernel.operations)
    return {"mm": mm, "addmm": addmm, "scaled_mm": scaled_mm}[operation](M, N, K, dtype, **fields)


def ragged(config: Config, dtype: str, *, aligned: bool) -> tuple[int, int, int]:
    """(M, N, K) with 2 x 2 tiles and 4 k-blocks of ``config``, the last of each ragged. ``aligned`` keeps rows of every
    order at multiples of 16 bytes, as descriptors need; otherwise the sizes are odd where they can be."""
    step = 16 // itemsize("fp32" if dtype == "tf32" else dtype) if aligned else 1

    def side(block: int) -> int:
        """Just below 7/4 of a block; a block and a step where that is no more than one block."""
        return max(7 * block // 4 // step * step - step, block + step)

    return side(config.block_m), side(config.block_n), 3 * config.block_k + step


def _kernel_dtypes(kernel: Kernel, scene: Scenario) -> list[str]:
    names = [name for dtype in kernel.dtypes for name in DTYPE_NAMES.get(dtype, (dtype,))]
    return [name for name in names if scene.dtypes is None or name in scene.dtypes]


def takes(kernel: Kernel, dtype: str, config: Config, target: Target) -> bool:
    """Whether the kernel takes a plain problem of this dtype with this config on this target."""
    try:
        kernel.plan(problem_for(kernel, dtype, *ragged(config, dtype, aligned=True)), config, target)
    except NotApplicable:
        return False
    return True


def rows(scene: Scenario, kernel: Kernel, targets: Sequence[Target], tier: str) -> list[tuple[Any, ...]]:
    """(target, dtype, config, *parameters, *rotated) of one kernel, targets innermost so that they share numbers."""
    combinations = list(itertools.product(*scene.parameters.values())) or [()]
    space = kernel.configs if tier in ("full", "exhaustive") else covering_sample(kernel.configs)
    space = space[: scene.configs] if scene.configs and tier == "quick" else space
    rotated = list(itertools.product(*scene.rotate.values())) or [()]
    usable = {
        dtype: [
            (config, able)
            for config in space
            if (able := [target for target in targets if takes(kernel, dtype, config, target)])
        ]
        for dtype in _kernel_dtypes(kernel, scene)
    }
    dtypes = [dtype for dtype, configs in usable.items() if configs]
    found: dict[tuple[Any, ...], None] = {}
    for dtype, config, able, combination, turn in _chosen(dtypes, usable, combinations, rotated, tier):
        found |= {(target, dtype, config, *combination, *turn): None for target in able}
    return list(found)


def _chosen(
    dtypes: Sequence[str],
    usable: Mapping[str, Sequence[tuple[Config, list[Target]]]],
    combinations: Sequence[tuple[Any, ...]],
    rotated: Sequence[tuple[Any, ...]],
    tier: str,
) -> Iterable[tuple[str, Config, list[Target], tuple[Any, ...], tuple[Any, ...]]]:
    if not dtypes:
        return
    if tier in ("full", "exhaustive"):
        for dtype, combination, turn in itertools.product(dtypes, combinations, rotated):
            for config, able in usable[dtype]:
                yield dtype, config, able, combination, turn
        return
    most = max(len(configs) for configs in usable.values())
    if tier == "quick":
        for index in range(max(len(combinations), len(dtypes), most, len(rotated))):
            # The quotient keeps dtype, config and rotation from repeating in step with the combinations.
            lap = index // len(combinations)
            dtype = dtypes[(index + lap) % len(dtypes)]
            config, able = usable[dtype][index % len(usable[dtype])]
            others = able[1:]
            sampled = able[:1] + ([others[index % len(others)]] if others else [])
            yield dtype, config, sampled, combinations[index % len(combinations)], rotated[(index + lap) % len(rotated)]
        return
    for number, dtype in enumerate(dtypes):
        for index in range(max(DEFAULT_TURNS * len(combinations), most, len(rotated))):
            lap = index // len(combinations)
            config, able = usable[dtype][(index + lap + number) % len(usable[dtype])]
            turn = rotated[(index + lap + number) % len(rotated)]
            yield dtype, config, able, combinations[index % len(combinations)], turn


def identify(value: Any) -> str:
    """The text of one parameter in a case id."""
    if isinstance(value, (Kernel,)):
        return value.name
    if isinstance(value, (Target, Config, Layout, Gemm, Variant)):
        return value.id or "plain"
    if isinstance(value, tuple):
        return ".".join(identify(item) for item in value)
    return str(value)


def parametrize(metafunc: pytest.Metafunc, targets: Sequence[Target], tier: str, kernels: Sequence[str]) -> None:
    """Gives a test marked as a scenario its cases. A test without the mark is left alone."""
    marker = metafunc.definition.get_closest_marker("scenario")
    if marker is None:
        return
    scene: Scenario = marker.args[0]
    names = ("kernel", "target", "dtype", "config", *scene.parameters, *scene.rotate)
    asked = [name for name in names if name in metafunc.fixturenames]
    cases: dict[tuple[Any, ...], str] = {}
    for kernel in catalogue().values():
        if not scene.kernels(kernel) or (kernels and kernel.name not in kernels):
            continue
        for row in rows(scene, kernel, targets, tier):
            values = dict(zip(names, (kernel, *row), strict=True))
            text = [
                f"{identify(v)}" if n in ("kernel", "dtype", "config") else f"{n}={identify(v)}"
                for n, v in values.items()
                if n in asked and n != "target"
            ]
            if "target" in asked:
                text.append(values["target"].id)
            cases.setdefault(tuple(values[name] for name in asked), "-".join(text))
    if cases:
        metafunc.parametrize(asked, list(cases), ids=list(cases.values()))
    else:  # left to itself, pytest would make a skip of it
        metafunc.parametrize(asked, [pytest.param(*[None] * len(asked), id="none", marks=pytest.mark.no_case)])
