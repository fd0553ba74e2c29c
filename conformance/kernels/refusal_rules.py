"""Says whether a kernel that states its limits may refuse a plan, by the rules of the plan's family."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from conformance.families.family import family_of
from conformance.families.limits import KernelLimits, capabilities
from conformance.kernels.kernel import Kernel, Plan
from conformance.records import Reason, ReasonCode


def stated_limits(kernel: Kernel) -> KernelLimits | None:
    """Returns the limits of ``kernel`` with its operations and all its dtypes; None if it states no limits."""
    if kernel.limits is None:
        return None
    dtypes = (*kernel.dtypes, *kernel.rare_dtypes, *kernel.limits.dtypes)
    return dataclasses.replace(kernel.limits, operations=kernel.operations, dtypes=dtypes)


def right_refusals(limits: KernelLimits, plan: Plan) -> Iterator[tuple[ReasonCode, str]]:
    """Yields the codes and subjects for which a kernel with these ``limits`` must refuse ``plan``."""
    if plan.problem.op not in limits.operations:
        yield ReasonCode.OPERATION, plan.problem.op
        yield from ((ReasonCode.CAPABILITY, name) for name in capabilities(plan, limits))
        return
    for code, rule in (family_of(plan.problem).refusals or {}).items():
        yield from ((code, subject) for subject in rule(plan, limits))


def objection(kernel: Kernel, plan: Plan, reason: Reason) -> str | None:
    """Returns the reason why ``kernel`` may not refuse ``plan`` for ``reason``; None if a rule justifies it, and for a
    kernel that states no limits."""
    limits = stated_limits(kernel)
    if limits is None or (reason.code, reason.subject) in right_refusals(limits, plan):
        return None
    return (
        f"{kernel.name} refuses {plan.problem.id} with {plan.config.id}: {reason}. By the suite's rule it must take it"
    )
