"""Judges a case whose problem a kernel is expected to refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.heuristics.configs import AnyConfig
from conformance.judging.case_recorder import CaseRecorder
from conformance.kernels.kernel import Kernel, Variant
from conformance.problems import Problem
from conformance.records import ReasonCode
from conformance.targets import Target


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
