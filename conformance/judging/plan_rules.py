"""Judges the refusal and the grid of a plan by rules of the suite, whatever the kernel says of itself.

Rules of refusals are stated in ``families/<family>/refusals.py``, and nowhere in a kernel. A refusal that no rule
justifies is a failure: a case that a kernel does not take any more must not leave a run green. So is a plan that a
kernel accepts although a rule says that it must refuse it.

A kernel plans its own grid, and the trial compares the one that ran with it. The formulas here are a second opinion
about the plan: a program too many or too few shows even where it changes no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from conformance.families.family import family_of
from conformance.families.limits import Broken, undescribed, unstored
from conformance.heuristics.configs import AnyConfig
from conformance.judging.case_recorder import CaseRecorder
from conformance.kernels.kernel import Kernel, Plan, Variant
from conformance.kernels.refusal_rules import right_refusals, stated_limits
from conformance.problems import Problem
from conformance.records import ReasonCode
from conformance.targets import Target


def broken_by_descriptors(problem: Any, *, tma_store: bool) -> list[Broken]:
    """Returns the rules that descriptors of A and B, and of the output if ``tma_store``, break. Each has a code, the
    operand, and what is broken in bytes. Empty: a kernel with descriptors must take the problem's memory."""
    described = [problem.operand(name) for name in ("ab" if problem.has_product else "")]
    broken = [rule for operand in described if operand.numel for rule in undescribed(operand)]
    return broken + (list(unstored(problem.output)) if tma_store else [])


def accepted(kernel: Kernel, broken: Broken) -> str:
    """Returns a sentence about a kernel that takes what it must refuse."""
    _, operand, what = broken
    return f"{kernel.name} accepted operand {operand} with {what}; it must refuse that"


def overlooked(kernel: Kernel, plan: Plan) -> str | None:
    """Returns the reason why ``kernel`` must refuse ``plan``, which it accepts; None if no rule says so."""
    limits = stated_limits(kernel)
    refusal = None if limits is None else next(right_refusals(limits, plan), None)
    if refusal is None:
        return None
    code, subject = refusal
    accepted = f"{kernel.name} accepted {plan.problem.id} with {plan.config.id}"
    return f"{accepted}; it must refuse that for the reason {code.value} ({subject})"


def expect_refusal(
    conform: Callable[..., Any],
    recorder: CaseRecorder,
    kernel: Kernel,
    problem: Problem,
    *,
    config: AnyConfig,
    target: Target,
    code: ReasonCode,
    variant: Variant | None = None,
) -> None:
    """A kernel that states its limits must refuse ``problem``, in its usual variant unless one is given, for a reason
    of this ``code``. A kernel without limits may have another reason, or take the problem: then ``conform``, the
    fixture, judges it."""
    recorder.set(kernel=kernel, problem=problem, config=config, target=target)
    reason = kernel.refusal(kernel.draft(problem, config, target, variant))
    if reason is not None:
        recorder.proves_at_most("nothing", "the kernel refuses the problem, and nothing is launched")
    if kernel.limits is not None:
        accepted = f"{kernel.name} accepted {problem.id}; it must refuse that for a reason of the code {code.value}"
        recorder.verdict(
            "refused", reason is not None and reason.code is code, accepted if reason is None else str(reason)
        )
    elif reason is not None:
        recorder.verdict("refused", True, str(reason))
    else:
        conform(kernel, problem, config=config, target=target, variant=variant)


def expected_grid(kernel: Kernel, plan: Plan, reserve: int) -> tuple[int, ...] | None:
    """Returns the programs in each dimension; None for a family or a choice of splits that has no formula.

    A persistent kernel has one program for each multiprocessor that is not held back by ``reserve``, one at least, and
    never more than tiles; one whose programs share tiles has never more than blocks of K."""
    family, config = family_of(plan.problem), plan.config
    tiles = family.tiles(plan.problem, config) if family.tiles is not None else None
    if tiles is None:
        return None
    free = max((plan.variant.sms or plan.target.limits.multiprocessors or 1) - reserve, 1)
    if kernel.shares_k:
        return (min(free, math.prod(tiles[:2]) * max(-(-plan.problem.K // config.block_k), 1)),)
    if kernel.persistent:
        return (min(free, math.prod(tiles)),)
    return None if family.grid is None else family.grid(kernel, plan, tiles, free)
