"""Cases of a test that is asked of each kernel once: on whatever target and with whatever config the test chooses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test, identify
from conformance.cases.cover import in_turn
from conformance.cases.scenarios import ANY, contained, fitted, usable
from conformance.kernels.catalogue import catalogue, own_kernels
from conformance.kernels.kernel import Kernel, NotApplicable, Plan, Variant
from conformance.problems import Problem
from conformance.targets import Target


@dataclass(frozen=True)
class EachKernel:
    """The arguments of :func:`each_kernel`."""

    kernels: Callable[[Kernel], bool]
    parameters: Mapping[str, Sequence[str]]

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return ("kernel", *self.parameters)

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """Returns the cases by id. Every target has the same, because the test chooses one."""
        table = CaseTable(self.names(arguments), {})
        matching = [kernel for kernel in catalogue().values() if self.kernels(kernel)]
        for place, kernel in enumerate(matching):
            if selection.kernels and kernel.name not in selection.kernels:
                continue
            if selection.tier == "quick" and not kernel.core:
                continue
            start = [kernel.name] if place or not self.parameters else []  # the first was once the only one
            fitting = kernel
            with contained(kernel):
                if kernel.name not in own_kernels():
                    ways = (fitted(kernel, ANY, ANY, target) for target in selection.targets)
                    fitting = next(filter(None, ways), kernel)
            for values in itertools.product(*self.parameters.values()):
                table.rows["-".join([*start, *map(identify, values)])] = (fitting, *values)
        return table

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return self.table(Selection(tuple(targets), "full"), arguments).rows.get(text)


def first_plan(
    kernel: Kernel,
    problem: Problem,
    targets: Iterable[Target],
    variants: Sequence[Variant | None] = (None,),
    first: int = 0,
) -> Plan:
    """The plan of ``kernel`` for ``problem`` on the first of ``targets``, and with the first of its configs from number
    ``first`` on, that it takes in each of ``variants``; the plan is that of the first variant.

    Raises NotApplicable with the first reason if there is none.
    """
    refusal: NotApplicable | None = None
    for target, config in itertools.product(targets, in_turn(kernel.configs, first)):
        try:
            plan, *_ = [kernel.plan(problem, config, target, variant) for variant in variants]
            return plan
        except NotApplicable as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def each_kernel(kernels: Callable[[Kernel], bool], **parameters: Sequence[str]) -> Callable[[Test], Test]:
    """Gives a test each kernel that ``kernels`` selects from the catalogue, with each combination of ``parameters``; in
    the quick tier the kernels of the core. The test takes ``kernel`` and the parameters."""

    def decorate(test: Test) -> Test:
        setattr(test, ATTRIBUTE, EachKernel(kernels, parameters))
        return test

    return decorate


class WithoutTarget:
    """The data that :func:`each_kernel_without_target` attaches to a test."""

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return ("kernel",)

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """Returns the cases by id."""
        table = CaseTable(self.names(arguments), {})
        for kernel in catalogue().values():
            asked = kernel.offered and (not selection.kernels or kernel.name in selection.kernels)
            with contained(kernel):
                if asked and not any(usable(kernel, target) for target in selection.targets):
                    table.rows[kernel.name] = (kernel,)
        return table

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        devices = tuple(target for target in targets if target.is_device)  # a lookup adds what can only be compiled for
        return self.table(Selection(devices or tuple(targets), "full", (text,)), arguments).rows.get(text)


def each_kernel_without_target(test: Test) -> Test:
    """Gives a test each kernel of the catalogue that no target of the run takes. The test takes ``kernel``."""
    setattr(test, ATTRIBUTE, WithoutTarget())
    return test


@dataclass(frozen=True)
class EachDtype:
    """The argument of :func:`each_dtype`."""

    shown: Callable[[Kernel, str], Sequence[str]]

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return ("kernel", "dtype")

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """Returns the cases by id. Every target has the same, because the test chooses one."""
        table = CaseTable(self.names(arguments), {})
        for kernel in catalogue().values():
            if not selection.kernels or kernel.name in selection.kernels:
                with contained(kernel):
                    for dtype in self.shown(kernel, selection.tier):
                        table.rows[f"{kernel.name}-{dtype}"] = (kernel, dtype)
        return table

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        kernel = text.partition("-")[0]
        return self.table(Selection(tuple(targets), "full", (kernel,)), arguments).rows.get(text)


def each_dtype(shown: Callable[[Kernel, str], Sequence[str]]) -> Callable[[Test], Test]:
    """Gives a test each kernel of the catalogue with each dtype that ``shown`` returns for it in a tier. The test takes
    ``kernel`` and ``dtype``."""

    def decorate(test: Test) -> Test:
        setattr(test, ATTRIBUTE, EachDtype(shown))
        return test

    return decorate
