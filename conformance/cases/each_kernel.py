"""Cases of a test that is asked of each kernel once: on whatever target and with whatever config the test chooses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
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
class KernelCases:
    """The cases of each kernel of the catalogue. ``rows(kernel, selection)`` yields the values of each: the kernel as
    the test gets it, and those of ``parameters``. Every target has the same, because the test chooses one. ``rules``
    says in a clause how a tier chooses."""

    parameters: tuple[str, ...]
    rows: Callable[[Kernel, Selection], Iterable[tuple[Any, ...]]]
    rules: Callable[[str], str]

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return ("kernel", *self.parameters)

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """See :class:`~conformance.cases.case_table.Cases`."""
        table = CaseTable(self.names(arguments), {})
        for kernel in catalogue().values():
            if selection.has(kernel.name):
                with contained(kernel):
                    table.rows.update({"-".join(map(identify, row)): row for row in self.rows(kernel, selection)})
        return table

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return self.rules(tier)

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        devices = tuple(target for target in targets if target.is_device)  # a lookup adds what can only be compiled for
        selection = Selection(devices or tuple(targets), "full", (text.partition("-")[0],))
        return self.table(selection, arguments).rows.get(text)

    def __call__(self, test: Test) -> Test:
        """Gives ``test`` these cases."""
        setattr(test, ATTRIBUTE, self)
        return test


def each_kernel(kernels: Callable[[Kernel], bool], **parameters: Sequence[str]) -> KernelCases:
    """Gives a test each kernel that ``kernels`` selects from the catalogue, with each combination of ``parameters``; in
    the quick tier those of weight 2 and 3. The test takes ``kernel`` and the parameters."""

    def rows(kernel: Kernel, selection: Selection) -> Iterable[tuple[Any, ...]]:
        if not kernels(kernel) or (selection.tier == "quick" and kernel.weight == 1):
            return ()
        return itertools.product([_fitted_anywhere(kernel, selection.targets)], *parameters.values())

    return KernelCases(
        tuple(parameters), rows, lambda tier: "kernels of weight 2 and 3" if tier == "quick" else "every kernel"
    )


def _fitted_anywhere(kernel: Kernel, targets: Iterable[Target]) -> Kernel:
    with contained(kernel):
        if not is_own(kernel):
            return next(filter(None, (fitted(kernel, ANY, ANY, target) for target in targets)), kernel)
    return kernel


def each_dtype(shown: Callable[[Kernel, str], Sequence[str]]) -> KernelCases:
    """Gives a test each kernel of the catalogue with each dtype that ``shown`` returns for it in a tier. The test takes
    ``kernel`` and ``dtype``."""
    return KernelCases(
        ("dtype",),
        lambda kernel, selection: ((kernel, dtype) for dtype in shown(kernel, selection.tier)),
        lambda tier: "the dtypes that the test shows of a kernel in the tier",
    )


def _without_target(kernel: Kernel, selection: Selection) -> Iterator[tuple[Kernel]]:
    """Yields ``kernel`` if no target takes it. A run of some targets has no other cases than a run of all, or of the
    device."""
    on_device = any(target.is_device for target in selection.targets)
    targets = selection.targets if on_device else dict.fromkeys((*compile_targets(), *selection.targets))
    if kernel.offered and not any(usable(kernel, target) for target in targets):
        yield (kernel,)


#: Gives a test each kernel of the catalogue that no target of the run takes. The test takes ``kernel``.
each_kernel_without_target = KernelCases((), _without_target, lambda tier: "every kernel that no target takes")


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
