"""Asks a kernel about the plan of a case before any run: whether it takes it, and why it refuses it.

The test of a case makes its problem and variant and hands them to ``conform``. Here something else stands for
``conform``: it asks the kernel and ends the test.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn

from conformance.cases.case_table import Selection
from conformance.kernels.kernel import Kernel, Plan
from conformance.records import Reason

#: Fixtures of a test that can be asked.
FIXTURES = {"conform", "harness", "recorder"}


class Answer(BaseException):
    """The answer about a case: its first ``plan``, and the ``reason`` for which the kernel refuses it, or None. It is
    no Exception, so that no test catches it."""

    def __init__(self, reason: Reason | None, plan: Plan | None = None) -> None:
        super().__init__()
        self.reason, self.plan = reason, plan


class _CannotBeAsked(BaseException):
    """Only a run can say more."""


class _Recorder:
    """Stands for the recorder of a case. The test itself may have asked the kernel."""

    case = ""

    def not_applicable(self, reason: Reason) -> NoReturn:
        raise Answer(reason)

    def not_run(self, reason: Reason) -> NoReturn:
        raise _CannotBeAsked

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def answer(test: Callable[..., Any], values: Mapping[str, Any], selection: Selection) -> Answer | None:
    """Returns the answer about the first plan of ``test`` with these ``values``; None if it cannot be asked."""
    names = inspect.signature(test).parameters
    if set(names) - values.keys() - FIXTURES:
        return None
    fixtures = {"conform": _ask, "harness": _harness(selection), "recorder": _Recorder()}
    try:
        test(**{name: fixture for name, fixture in fixtures.items() if name in names}, **values)
    except Answer as given:
        return given
    except (
        _CannotBeAsked,
        Exception,
    ):  # a test that needs more, or a kernel whose own code fails: its case will say so
        return None
    return None


def _harness(selection: Selection) -> SimpleNamespace:
    """Stands for the harness, as far as tests ask it before they call ``conform``."""
    asked = {"tier": selection.tier, "has_gpu": selection.has_gpu, "compile_only": selection.compile_only}
    settings = SimpleNamespace(**asked, whole_tier=selection.tier in ("full", "exhaustive"), seed=0)
    return SimpleNamespace(settings=settings, targets=selection.targets)


def _ask(kernel: Kernel, problem: Any, *, config: Any, target: Any, **more: Any) -> None:
    """Stands for ``conform``: raises the answer of ``kernel``."""
    variant = more.pop("variant", None)
    named = {one.name for one in dataclasses.fields(kernel.usual_variant)}
    fields = {name: value for name, value in more.items() if name in named}
    variant = dataclasses.replace(kernel.usual_variant if variant is None else variant, **fields)
    plan = kernel.draft(problem, config, target, variant)
    raise Answer(kernel.refusal(plan), plan)
