"""Finds what a kernel takes and refuses, and the kernels of installed packages that have no case at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from conformance.cases.case_table import Selection
from conformance.cases.kernel_answers import RAISED, fitted
from conformance.cases.lookup import case_ids
from conformance.cases.scenarios import has_case
from conformance.kernels.catalogue import catalogue, meta_launch, origin, outside_kernels
from conformance.kernels.kernel import Kernel, Plan, ways
from conformance.problems import Problem
from conformance.records import ExecutorName
from conformance.targets import Target

#: Values that a sentence names.
NAMED = 3

#: What was asked for, by the names "dtype", "config", "target", "variant", "shape" and "orders": the values of each.
Asked = defaultdict[str, dict[str, None]]


@dataclass
class Answers:
    """The answers of a kernel about its examples: what it takes, and by the start of a sentence what it refuses so; and
    the plans that cases will have, one for each dtype, config and target that it takes."""

    accepted: Asked = field(default_factory=lambda: defaultdict(dict))
    refused: dict[str, Asked] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)

    @property
    def refusals(self) -> list[str]:
        """A sentence for each typed reason, with what was refused for it."""
        return [f"{reason} [{listed(asked, NAMED)}]" for reason, asked in self.refused.items()]


def answers(kernel: Kernel, targets: Sequence[Target]) -> Answers:
    """Asks ``kernel`` about its examples on ``targets``: of every dtype with every config, and with one config in every
    shape, order and variant."""
    collected, first = Answers(), dict[str, str]()
    for way, dtype, plan in _asked(kernel, targets, collected.plans):
        reason = way.refusal(plan)
        if reason is None:
            of = collected.accepted
        else:
            kind = f"{reason.code.value} {'' if reason.subject == plan.config.id else reason.subject}"
            of = collected.refused.setdefault(first.setdefault(kind, str(reason)), defaultdict(dict))
        values = {"dtype": dtype, "config": plan.config.id, "target": plan.target.id}
        values |= {"shape": way.usual_shape, "orders": orders_of(plan.problem), "variant": plan.variant.id or "plain"}
        for name, value in values.items():
            of[name][value] = None
    return collected


def _asked(kernel: Kernel, targets: Sequence[Target], accepted: list[Plan]) -> Iterator[tuple[Kernel, str, Plan]]:
    """The kernel as it is asked, the name of the dtype, and the plan. Adds to ``accepted`` the plans of cases."""
    for target in targets:
        for dtype in kernel.dtype_names():
            fits = {config: fitted(kernel, dtype, config, target) for config in kernel.configs}
            tried = next((config for config, way in fits.items() if way is not None), kernel.configs[0])
            nearest = fits[tried] or kernel  # of a config that it refuses, it names what is wrong with that config
            for config, fit in fits.items():
                for way in ways(kernel) if config == tried else (fit or nearest,):
                    problem = way.example(dtype, config, way.usual_shape)
                    yield way, dtype, way.draft(problem, config, target, way.example_variant())
                if fit is not None:
                    problem = fit.example(dtype, config, fit.usual_shape)
                    accepted.append(fit.draft(problem, config, target, fit.example_variant()))


def without_case(selection: Selection) -> dict[str, str]:
    """By the name of each third-party kernel that ``selection`` has no case of, a text with all its refusals. For
    one that cannot be asked for all its cases, a text with what it raised."""
    texts = {}
    chosen = {name: kernel for name, kernel in outside_kernels().items() if name in (selection.kernels or catalogue())}
    for _ in case_ids(replace(selection, kernels=tuple(chosen))) if chosen else ():
        pass  # fills RAISED
    for name, kernel in chosen.items():
        if name in RAISED:
            texts[name] = f"{name}, by {origin(name)}, lacks cases: when it was asked for them it raised {RAISED[name]}"
        elif not has_case(kernel, selection.targets, selection.tier):
            reasons = answers(kernel, selection.targets).refusals or ["it compiles slowly: choose the full tier"]
            lines = "".join(f"\n  {reason}" for reason in reasons)
            targets = few((target.id for target in selection.targets), NAMED)
            texts[name] = f"{name}, by {origin(name)}, has no case on {targets}. It refuses every example:{lines}"
    return texts


def fault_of(kernel: Kernel, plan: Plan) -> str:
    """Returns the error of making the launch of ``plan``, which ``kernel`` takes, without memory; empty if there is
    none."""
    try:
        accepted = kernel.plan(plan.problem, plan.config, plan.target, plan.variant)
        meta_launch(accepted, plan.target)
        kernel.contract(accepted, ExecutorName.DEVICE)
        kernel.features(accepted)
    except (Exception, SystemExit) as error:  # a stranger's code
        return f"{type(error).__name__}: {error}"
    return ""


def orders_of(problem: Problem) -> str:
    """The orders of A and B in memory, such as "row.col"; empty for a problem that is no product."""
    layouts = [getattr(problem, name, None) for name in ("layout_a", "layout_b")]
    return ".".join(layout.order for layout in layouts if layout is not None)


def listed(asked: Asked, most: int) -> str:
    """The values of each name, ``most`` of them at most."""
    return "; ".join(f"{name} {few(values, most)}" for name, values in asked.items() if any(values))


def few(values: Iterable[str], most: int) -> str:
    """Returns the first of ``values``, ``most`` of them at most, and the number of the others."""
    words = list(values)
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")
