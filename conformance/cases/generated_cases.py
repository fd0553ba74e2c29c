"""Which cases a test about code that Inductor generates has.

A test states what it is about, like a scenario of the catalogue::

    @generated(needs=("tma",), order=ORDERS, tma_store=[False, True])
    def test_x(inductor, target, order, tma_store):
        for run in inductor.pinned(problem, target, template("persistent TMA"), ...):
            run.exactly(2, "descriptors", dialect.created)

Its parameters are crossed in full. In the quick tier every value appears at least once, but of a :class:`Thin`
parameter only its first ones, each on one target in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cases.case_table import ATTRIBUTE, CaseTable, Selection, Test, identify
from conformance.cases.cover import cover
from conformance.targets import Target


@dataclass(frozen=True)
class Thin:
    """Values of a parameter of which the quick tier takes the first ``quick``: the others mean no other code path."""

    values: Sequence[Any]
    quick: int = 1

    def of(self, tier: str) -> Sequence[Any]:
        return self.values[: self.quick] if tier == "quick" else self.values


@dataclass(frozen=True)
class GeneratedCases:
    """The arguments of :func:`generated`."""

    needs: tuple[str, ...]
    parameters: Mapping[str, Sequence[Any] | Thin]

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """The cases of a test: every parameter, and a target."""
        targets = [
            target
            for target in generated_for(selection.targets, selection.asked_for_targets)
            if selection.has_gpu or all(target.capability(name).available for name in self.needs)
        ]
        values = {
            name: values.of(selection.tier) if isinstance(values, Thin) else values
            for name, values in self.parameters.items()
        }
        if selection.tier == "quick":
            rows = cover({**values, "target": targets}, free=("target",))
        else:
            rows = list(itertools.product(*values.values(), targets))
        table = CaseTable((*self.parameters, "target"), {})
        for *combination, target in rows:
            text = [f"{name}={identify(value)}" for name, value in zip(self.parameters, combination, strict=True)]
            table.rows["-".join([*text, target.id])] = (*combination, target)
        return table


def generated(*, needs: Sequence[str] = (), **parameters: Sequence[Any] | Thin) -> Callable[[Test], Test]:
    """Makes a test one about generated code. ``needs`` are capabilities of a target (see
    ``conformance.targets.CAPABILITIES``) without which it has no case; the rest are the test's parameters."""

    def decorate(test: Test) -> Test:
        setattr(test, ATTRIBUTE, GeneratedCases(tuple(needs), parameters))
        return test

    return decorate


def needs_of(test: Callable[..., Any]) -> tuple[str, ...]:
    """The capabilities that a test about generated code needs of its target; none for another test."""
    cases = getattr(test, ATTRIBUTE, None)
    return cases.needs if isinstance(cases, GeneratedCases) else ()


def generated_for(targets: Sequence[Target], all_of_them: bool) -> list[Target]:
    """The NVIDIA targets among ``targets``: Inductor generates code for no others. Unless the user named them
    (``all_of_them``), one that is no device needs ``inductor`` in its row of ``conformance.targets.KNOWN``."""
    nvidia = [target for target in targets if target.vendor == "nvidia"]
    return nvidia if all_of_them else [target for target in nvidia if target.is_device or target.architecture.inductor]
