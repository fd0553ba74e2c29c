"""The cases of a test about code that Inductor generates.

A test states what it is about, like a scenario of the catalogue::

    @generated(needs=("tma",), order=ORDERS, tma_store=[False, True])
    def test_x(inductor, target, order, tma_store):
        for run in inductor.pinned(problem, target, template("persistent TMA"), ...):
            run.exactly(2, "descriptors", dialect.created)

Its parameters are crossed in full. In the quick tier, and of a sampled test in the default tier, every value appears at
least once; of a :class:`Thin` parameter only its first values. Each row of such a sample is on one target. In the quick
tier that is a target of the test's first vendor that has any. A target that Inductor generates code for only if a run
asks for it shares no rows with others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cases.case_table import (
    ATTRIBUTE,
    CaseTable,
    Selection,
    Test,
    digest,
    identify,
    name_of,
    named_texts,
    parsed,
)
from conformance.cases.cover import cover
from conformance.kernels.kernel import Kernel
from conformance.targets import Target, compile_targets

#: The vendors for whose GPUs Inductor generates code here.
VENDORS = ("nvidia", "amd")


@dataclass(frozen=True)
class Thin:
    """Values of a parameter of which the quick tier takes the first ``quick``: the others mean no other code path. The
    default tier takes the first ``default``, or all."""

    values: Sequence[Any]
    quick: int = 1
    default: int | None = None

    def of(self, tier: str) -> Sequence[Any]:
        return self.values[: {"quick": self.quick, "default": self.default}.get(tier)]


@dataclass(frozen=True)
class GeneratedCases:
    """The arguments of :func:`generated`."""

    vendors: tuple[str, ...]
    needs: tuple[str, ...]
    sampled: bool
    parameters: Mapping[str, Sequence[Any] | Thin]
    name: str = ""

    def names(self, arguments: Sequence[str]) -> tuple[str, ...]:
        """See :class:`~conformance.cases.case_table.Cases`."""
        return (*self.parameters, *(["target"] if self.vendors else []))

    def table(self, selection: Selection, arguments: Sequence[str]) -> CaseTable:
        """The cases of a test: every parameter, and a target if it has vendors."""
        values = {
            name: values.of(selection.tier) if isinstance(values, Thin) else values
            for name, values in self.parameters.items()
        }
        sampled = selection.tier == "quick" or (selection.tier == "default" and self.sampled)
        rows = cover(values) if sampled else list(itertools.product(*values.values()))
        targets = self._able(generated_for(selection.targets, selection.asked_for_targets, self.vendors), selection)
        table = CaseTable(self.names(arguments), {})
        for row in rows:
            text = "-".join(f"{name}={identify(value)}" for name, value in zip(values, row, strict=True))
            if not self.vendors:
                table.rows[text] = row
            able = self._of_row(text, targets, selection) if sampled and self.vendors else targets
            for target in able if self.vendors else ():
                table.rows["-".join(filter(None, (text, target.id)))] = (*row, target)
        return table

    def rule(self, kernel: Kernel | None, tier: str) -> str:
        """See :class:`~conformance.cases.case_table.Cases`."""
        if tier != "quick" and not (tier == "default" and self.sampled):
            return "everything is crossed"
        return "every value at least once, each row on one target"

    def _able(self, targets: Sequence[Target], selection: Selection) -> list[Target]:
        """Returns the ``targets`` that can do what the test needs. With a GPU a case says what its target lacks."""
        return [
            target
            for target in targets
            if selection.has_gpu or all(target.capability(name).available for name in self.needs)
        ]

    def _of_row(self, text: str, targets: Sequence[Target], selection: Selection) -> list[Target]:
        """Returns those of ``targets`` on which a row of a sample has a case; ``text`` is that of the row."""
        usual = self._able(generated_for(compile_targets(), False, self.vendors), selection)
        shared = [target for target in usual if selection.tier != "quick" or target.vendor == usual[0].vendor]
        chosen = max(shared, key=lambda target: digest(self.name, text, target.id), default=None)
        return [target for target in targets if target == chosen or target not in usual]

    def find(self, text: str, targets: Sequence[Target], arguments: Sequence[str]) -> tuple[Any, ...] | None:
        """See :class:`~conformance.cases.case_table.Cases`."""
        columns = [
            named_texts(name, values.values if isinstance(values, Thin) else values)
            for name, values in self.parameters.items()
        ]
        if self.vendors:
            columns.append({target.id: target for target in generated_for(targets, True, self.vendors)})
        return next(parsed(text, columns), None)


def generated(
    *,
    vendors: Sequence[str] = VENDORS,
    needs: Sequence[str] = (),
    sampled: bool = False,
    **parameters: Sequence[Any] | Thin,
) -> Callable[[Test], Test]:
    """Makes a test one about generated code. ``vendors`` are those for whose targets it has cases; without any it has
    no target, because its code is for this machine's processor. ``needs`` are capabilities of a target (see
    ``conformance.targets.CAPABILITIES``) without which it has no case. Of a ``sampled`` test the default tier does not
    cross the parameters either. The rest are the test's parameters."""

    def decorate(test: Test) -> Test:
        cases = GeneratedCases(tuple(vendors), tuple(needs), sampled, parameters, name_of(test))
        setattr(test, ATTRIBUTE, cases)
        return test

    return decorate


def needs_of(test: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the capabilities that a test about generated code needs of its target; none for another test."""
    cases = getattr(test, ATTRIBUTE, None)
    return cases.needs if isinstance(cases, GeneratedCases) else ()


def generated_for(targets: Sequence[Target], all_of_them: bool, vendors: Sequence[str] = VENDORS) -> list[Target]:
    """Returns the ``targets`` for which Inductor generates code, of ``vendors`` and in their order. Unless the user
    named them (``all_of_them``), one that is no device needs ``inductor`` in its row of ``conformance.targets.KNOWN``.
    """
    ordered = [target for vendor in vendors for target in targets if target.vendor == vendor]
    return (
        ordered if all_of_them else [target for target in ordered if target.is_device or target.architecture.inductor]
    )
