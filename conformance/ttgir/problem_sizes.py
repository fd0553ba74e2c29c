"""Problems of other sizes that the code compiled for a plan serves: they reach every branch and wrap every ring.

Sizes are arguments of a launch, and the compiler knows of them only what
:mod:`conformance.execution.compile.specialisation` says, such as whether 16 divides one. So the same text runs them,
and nothing is compiled again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from conformance.execution.compile.specialisation import Specialisation, specialisation
from conformance.kernels.catalogue import get, meta_launch
from conformance.kernels.kernel import NotApplicable, Plan, Variant
from conformance.problems import Problem

#: Tiles of one program that wrap a ring of two accumulators twice.
TILES = 5
#: What a problem walks through step by step, and the block of a config that one step takes.
DEPTHS = (("K", "block_k"), ("keys", "block_n"), ("channels", "block_k"), ("length", "chunk"))
#: The same of gradients, which walk through both sides of the scores.
BOTH_DEPTHS = (("keys", "block_n"), ("queries", "block_m"))
#: What a problem is cut along into tiles, and the block of a config that one tile takes.
EDGES = (("M", "block_m"), ("N", "block_n"), ("queries", "block_m"))
#: Elements of a tensor, gaps included, past which no problem goes but where the plan's own does.
FAR = 1 << 24
#: Constants of kernels that say only whether an operand is empty: code for one that is not serves an empty one too.
EMPTINESS = {"HAS_PRODUCT"}


def problems_of(plan: Plan) -> list[Plan]:
    """Returns ``plan``, and plans of other sizes for which its compiled code is right, too.

    The loop has 0, 1, stages - 1 and stages + 2 steps, over one tile with ragged edges. The last step is ragged where
    the code allows that. One program of a persistent kernel makes more tiles than two rounds of its accumulators.
    Kernels whose loops follow several sizes, such as attention and convolutions, have their examples as well.
    """
    served = [specialisation(step, plan.target) for step in meta_launch(plan, plan.target).steps]
    plans = {_key(plan): plan}
    for choices in _choices_of_sizes(plan):
        for problem, variant in choices:
            other = _planned(plan, problem, variant)
            if other is not None and _span(other) <= max(_span(plan), FAR) and _serves(served, other):
                plans.setdefault(_key(other), other)
                break
    return list(plans.values())


def _span(plan: Plan) -> int:
    return max(int(tensor.span) for tensor in (*plan.problem.operands, *plan.problem.outputs))


def _key(plan: Plan) -> tuple[str, str]:
    return plan.problem.id, plan.variant.id


#: Ways to ask for one thing, best first.
Choices = Iterator[tuple[Problem, Variant]]


def _choices_of_sizes(plan: Plan) -> Iterator[Choices]:
    kernel, problem, stages = get(plan.kernel), plan.problem, plan.config.num_stages
    single = dataclasses.replace(plan.variant, sms=1) if kernel.persistent else plan.variant
    depths, edges = _depths(plan), _sizes(plan, EDGES)
    parts = plan.variant.splits or 1  # each walks through its part alone
    for steps in dict.fromkeys((0, 1, stages - 1, (stages + 2) * parts)) if depths else ():
        yield _of_depth(plan, steps, single, tiles=1)
    if kernel.persistent:
        yield _of_depth(plan, 2, single, tiles=TILES)
        yield _of_depth(plan, 0, single, tiles=2)
        if not any(name == "M" for name, _, _ in edges):  # its tiles are those of several groups
            yield iter([(problem, single)])
    if not any(name == "M" for name, _, _ in edges):  # its loops follow more than one size
        for shape in kernel.shapes:
            yield ((kernel.example(dtype, plan.config, shape), plan.variant) for dtype in kernel.dtype_names())


def _of_depth(plan: Plan, steps: int, variant: Variant, tiles: int) -> Choices:
    """Problems whose loop has ``steps`` steps over ``tiles`` tiles, ragged ones first, those of ``plan``'s own edges
    last."""
    problem = plan.problem
    edges = {
        name: own % block + (tiles - 1 if name != "N" else 0) * block if own % block else tiles * block
        for name, own, block in _sizes(plan, EDGES)
    }
    depths = _depths(plan)
    for one_tile in (edges, {}):
        for rest in dict.fromkeys((None, 16, 8, 0)) if steps else (0,):
            sizes = dict(one_tile)
            for name, own, block in depths:
                left = own % block if rest is None else rest % block
                sizes[name] = (steps - 1) * block + left if left else steps * block
            with contextlib.suppress(ValueError):  # a problem cannot have such sizes
                other = _altered(problem, **sizes)
                yield from ((one, variant) for one in ([other] if steps else _with_pitches(other)))


def _with_pitches(problem: Problem) -> Iterator[Problem]:
    """An empty problem, and those whose rows are as far apart as of one that is not: 16 elements, by a pad of 15."""
    names = [name for name in ("layout_a", "layout_b") if hasattr(problem, name)]
    for padded in itertools.chain.from_iterable(itertools.combinations(names, count) for count in range(3)):
        layouts: dict[str, Any] = {name: dataclasses.replace(getattr(problem, name), pad=15) for name in padded}
        yield _altered(problem, **layouts)


def _altered(problem: Any, **fields: Any) -> Problem:
    """``problem``, of any class of them, with other ``fields``. Raises ValueError for what it cannot have."""
    altered: Problem = dataclasses.replace(problem, **fields)
    return altered


def _depths(plan: Plan) -> list[tuple[str, int, int]]:
    return _sizes(plan, BOTH_DEPTHS if getattr(plan.problem, "backward", False) else DEPTHS)


def _sizes(plan: Plan, names: tuple[tuple[str, str], ...]) -> list[tuple[str, int, int]]:
    """Returns the sizes of ``names`` that the plan's problem has: name, its own size, the block that cuts it."""
    problem, sizes = plan.problem, []
    for name, block_name in names:
        own = _field(problem, name)
        block = getattr(plan.config, block_name, None) or getattr(problem, block_name, None)
        if own is not None and block:
            sizes.append((name, own, int(block)))
    return sizes


def _field(problem: Any, name: str) -> int | None:
    """The size that a problem is made with under this name; None if it has none, or only the sum of several."""
    value = getattr(problem, name, None)
    return value if isinstance(value, int) and name in {field.name for field in dataclasses.fields(problem)} else None


def _planned(plan: Plan, problem: Problem, variant: Variant) -> Plan | None:
    try:
        return get(plan.kernel).plan(problem, plan.config, plan.target, variant, estimated=False)
    except NotApplicable:
        return None


def _serves(served: list[Specialisation], other: Plan) -> bool:
    """True if the code of ``served`` runs the launches of ``other``, as far as they are not empty."""
    launches = meta_launch(other, other.target).steps
    if len(launches) != len(served) or 0 in other.grid:
        return False
    return all(
        step.empty or _same(own, specialisation(step, other.target)) for own, step in zip(served, launches, strict=True)
    )


def _same(own: Specialisation, other: Specialisation) -> bool:
    def plain(one: Specialisation) -> Specialisation:
        classes = tuple((name, text) for name, text in one.arguments if name not in EMPTINESS)
        return dataclasses.replace(one, arguments=classes)

    return plain(own) == plain(other)
