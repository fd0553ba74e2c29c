"""Cases of a test that is asked of each kernel once: on whatever target and with whatever config the test chooses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test, identify
from conformance.cases.cover import in_turn
from conformance.cases.kernel_answers import ANY, contained, fitted, usable
from conformance.kernels.catalogue import catalogue, is_own
from conformance.kernels.kernel import Kernel, NotApplicable, Plan, Variant
from conformance.problems import Problem
from conformance.targets import Target, compile_targets


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
        for kernel in matching:
            if not selection.has(kernel.name):
                continue
            if selection.tier == "quick" and kernel.weight == 1:
                continue
            fitting = kernel
            with contained(kernel):
                if not is_own(kernel):
                    ways = (fitted(kernel, ANY, ANY, target) for target in selection.targets)
                    fitting = next(filter(None, ways), kernel)
            for values in itertools.product(*self.parameters.values()):
                table.rows["-".join([kernel.name, *map(identify, values)])] = (fitting, *values)
        return table

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return "kernels of weight 2 and 3" if tier == "quick" else "every kernel"

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
    """Returns the plan of ``kernel`` for ``problem`` on the first of ``targets``, with the first config that it takes
    in each of ``variants``. Configs are tried from number ``first`` on. The plan is that of the first variant.

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
    the quick tier those of weight 2 and 3. The test takes ``kernel`` and the parameters."""

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
        """The cases by id. A run of some targets has no other cases than a run of all, or of the device."""
        on_device = any(target.is_device for target in selection.targets)
        targets = selection.targets if on_device else dict.fromkeys((*compile_targets(), *selection.targets))
        table = CaseTable(self.names(arguments), {})
        for kernel in catalogue().values():
            chosen = kernel.offered and selection.has(kernel.name)
            with contained(kernel):
                if chosen and not any(usable(kernel, target) for target in targets):
                    table.rows[kernel.name] = (kernel,)
        return table

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return "every kernel that no target takes"

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
            if selection.has(kernel.name):
                with contained(kernel):
                    for dtype in self.shown(kernel, selection.tier):
                        table.rows[f"{kernel.name}-{dtype}"] = (kernel, dtype)
        return table

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return "the dtypes that the test shows of a kernel in the tier"

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
