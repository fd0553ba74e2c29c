"""Refusals are judged by rules of the harness: too strict, too lax, and for a reason that is stated nowhere."""

from __future__ import annotations

import copy
import dataclasses
import functools

import pytest

from conformance import targets
from conformance.families.family import REGISTERED
from conformance.families.gemm.problem import mm
from conformance.judging.case_recorder import CaseEnded
from conformance.judging.conform import conform, refused
from conformance.judging.plan_rules import accepted, broken_by_descriptors, overlooked
from conformance.kernels import catalogue
from conformance.kernels.kernel import Variant
from conformance.kernels.refusal_rules import objection, right_refusals, stated_limits
from conformance.problems import Layout
from conformance.records import ConformanceFailure, Reason, ReasonCode, Status
from conformance.suites.test_alignment import judge_refusal, misaligned
from conformance.suites.test_config_space import unjustified_refusals

HOPPER = targets.find("sm_90")
TMA = catalogue.get("mm_persistent_tma")
CONFIG = TMA.configs[0]
STORED = Variant(tma_store=True)


def draft(problem, variant=STORED):
    return TMA.draft(problem, CONFIG, HOPPER, variant)


def refusal(problem, variant=STORED):
    return TMA.refusal(draft(problem, variant))


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("fault", ["a-base", "a-pitch", "b-pitch", "out-base", "out-pitch", "out-extent"])
def test_the_kernel_refuses_each_residue_but_0(dtype, fault):
    size = {"fp16": 2, "fp32": 4}[dtype]
    for off in range(32 // size):
        problem = misaligned(TMA, dtype, CONFIG, fault, off)
        assert bool(broken_by_descriptors(problem, tma_store=True)) == bool(off * size % 16)
        passed, text = judge_refusal(TMA, draft(problem), refusal(problem))
        assert passed, text


def test_a_refusal_that_is_too_strict_or_too_lax_by_one_residue():
    """Kernels that ask for 32 bytes, or for 8, are seen in the residue that they get wrong."""
    eight = misaligned(TMA, "fp16", CONFIG, "a-pitch", 4)  # 8 bytes past a multiple of 16
    passed, text = judge_refusal(TMA, draft(eight), None)
    assert not passed
    assert text.startswith("mm_persistent_tma accepted operand a with a pitch of ")
    assert text.endswith("bytes, no multiple of 16; it must refuse that")
    sixteen = misaligned(TMA, "fp16", CONFIG, "a-pitch", 8)
    strict = Reason(ReasonCode.ALIGNMENT_PITCH, "a", "rows of a are no multiple of 32 bytes apart")
    passed, text = judge_refusal(TMA, draft(sixteen), strict)
    assert not passed
    assert text.endswith("By the suite's rule it must take it")
    wrong_operand = dataclasses.replace(refusal(eight), subject="b")
    assert not judge_refusal(TMA, draft(eight), wrong_operand)[0]


def test_a_kernel_whose_tensor_maps_have_no_pitch_may_refuse_what_is_aligned():
    """The rule of its own justifies that, of this kernel and of no other, and for a pitch alone."""
    legacy = catalogue.get("mm_legacy_tma_persistent")
    no_pitch = Reason(ReasonCode.LAYOUT, "a", "rows of a are 200 elements long and 208 apart")
    sixteen = misaligned(TMA, "fp16", CONFIG, "a-pitch", 8)  # 16 bytes past the end of a row
    plain = misaligned(TMA, "fp16", CONFIG, None)
    for kernel, problem, right in ((legacy, sixteen, True), (TMA, sixteen, False), (legacy, plain, False)):
        assert judge_refusal(kernel, kernel.draft(problem, CONFIG, HOPPER, STORED), no_pitch)[0] == right


def test_a_missing_refusal_says_what_was_accepted():
    broken = (ReasonCode.ALIGNMENT_PITCH, "a", "a pitch of 100 bytes, no multiple of 16")
    text = "mm_persistent_tma accepted operand a with a pitch of 100 bytes, no multiple of 16; it must refuse that"
    assert accepted(TMA, broken) == text


UNJUSTIFIED = [
    Reason(ReasonCode.ALIGNMENT_BASE, "a", "too strict"),
    Reason(ReasonCode.CAPABILITY, "tma", "too strict"),
    Reason(ReasonCode.DTYPE, "a", "too strict"),
    Reason(ReasonCode.PRECISION, "tf32", "too strict"),
    Reason(ReasonCode.LAYOUT, "b", "too strict"),
    Reason(ReasonCode.CONFIG, "block size", "too strict"),
    Reason(ReasonCode.CONFIG, "variant", "too strict"),
    Reason(ReasonCode.CONFIG, "a word of its own", "new"),
    Reason(ReasonCode.EXTENT, "a", "too strict"),
    Reason(ReasonCode.OPERATION, "mm", "too strict"),
]


class _Recorder:
    def __init__(self):
        self.verdicts = []

    def verdict(self, *verdict):
        self.verdicts.append(verdict)

    def not_applicable(self, reason):
        raise CaseEnded(Status.NOT_APPLICABLE, reason)


@pytest.mark.parametrize("reason", UNJUSTIFIED, ids=str)
def test_a_refusal_that_no_rule_justifies_fails_the_case(reason):
    draft = TMA.draft(mm(64, 64, 64), CONFIG, HOPPER, STORED)
    assert objection(TMA, draft, reason)
    recorder = _Recorder()
    with pytest.raises(ConformanceFailure, match="refusal: mm_persistent_tma refuses mm-64x64x64"):
        refused(recorder, TMA, draft, reason)
    assert [(check, passed) for check, passed, _ in recorder.verdicts] == [("refusal", False)]


def test_a_justified_refusal_leaves_the_case_not_applicable():
    problem = mm(64, 64, 64, layout_a=Layout(pad=1))
    draft = TMA.draft(problem, CONFIG, HOPPER)
    with pytest.raises(CaseEnded):
        refused(_Recorder(), TMA, draft, TMA.refusal(draft))


def test_a_kernel_without_limits_may_refuse_what_it_likes():
    class Theirs(type(TMA)):
        limits = None

    theirs = Theirs("theirs", "mm", "persistent_mm")
    with pytest.raises(CaseEnded):
        refused(_Recorder(), theirs, theirs.draft(mm(64, 64, 64), CONFIG, HOPPER), UNJUSTIFIED[0])


def test_an_example_that_a_kernel_newly_refuses_is_seen():
    """Such a config would have no case at all, and no case would say so."""

    class Strict(type(TMA)):
        def _config(self, plan):
            if plan.config.block_m > 64:
                return Reason(ReasonCode.CONFIG, "block size", "too large")
            return super()._config(plan)

    assert not list(unjustified_refusals(TMA, [HOPPER]))
    strict = Strict("mm_persistent_tma", "mm", "persistent_mm")
    assert any("By the suite's rule it must take it" in text for text in unjustified_refusals(strict, [HOPPER]))


@functools.cache
def one_of_each_family():
    """Returns a kernel of each family with a plan that it accepts, by the class of the plan's problem."""
    plans = {}
    for kernel in catalogue.own_kernels().values():
        for target in map(targets.find, ("sm_90", "sm_100")):
            draft = kernel.draft(
                kernel.example(kernel.dtype_names()[0], kernel.configs[0]),
                kernel.configs[0],
                target,
                kernel.example_variant(),
            )
            kind = next(kind for kind in REGISTERED if isinstance(draft.problem, kind))
            if kernel.refusal(draft) is None:
                plans.setdefault(kind, (kernel, draft))
    return plans


FAMILIES = [kind for kind in REGISTERED if kind.__module__.startswith("conformance.")]


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
def test_wrong_refusals_of_a_kernel_are_caught_in_each_family(kind):
    """A wrong code, a refusal that no limit asks for, a refusal that is missing, and a limit that the kernel lacks."""
    kernel, plan = one_of_each_family()[kind]
    assert overlooked(kernel, plan) is None
    unusual = dataclasses.replace(plan, variant=Variant(epilogue_subtile=4, splits=3, implied_dtype=True, static=True))
    right = kernel.refusal(unusual)
    assert (right.code, right.subject) == (ReasonCode.CONFIG, "variant")
    assert objection(kernel, unusual, right) is None
    for wrong in (
        dataclasses.replace(right, code=ReasonCode.EXTENT),
        dataclasses.replace(right, subject="another subject"),
    ):
        assert "must take it" in objection(kernel, unusual, wrong)
    assert "must take it" in objection(kernel, plan, right), "no limit asks for it"
    assert "it must refuse that for the reason config (variant)" in overlooked(kernel, unusual), "as if it were taken"
    needing = copy.copy(kernel)
    needing.limits = dataclasses.replace(kernel.limits, needs=("tma",))
    on_ampere = dataclasses.replace(plan, target=targets.find("sm_80"))
    assert "capability (tma)" in overlooked(needing, on_ampere), "the kernel does not refuse what its limits say"


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
def test_each_code_of_a_family_has_a_rule_that_holds_for_an_accepted_plan(kind):
    kernel, plan = one_of_each_family()[kind]
    rules = REGISTERED[kind].refusals
    of_dtypes = {ReasonCode.DTYPE} if len(kernel.dtypes) > 1 else set()
    assert {ReasonCode.CAPABILITY, ReasonCode.CONFIG} | of_dtypes <= set(rules)
    assert list(right_refusals(stated_limits(kernel), plan)) == []


def test_each_kernel_of_the_package_states_its_limits():
    assert [kernel.name for kernel in catalogue.own_kernels().values() if kernel.limits is None] == []


def test_a_kernel_that_takes_what_it_must_refuse_fails_its_case():
    class Lax(type(TMA)):
        def refusal(self, plan):
            return None

    lax, recorder = Lax("lax", "mm", "persistent_mm"), _Recorder()
    recorder.set = recorder.run_created = recorder.run_judged = lambda *arguments, **fields: None
    with pytest.raises(ConformanceFailure, match=r"must refuse that for the reason alignment-pitch \(a\)"):
        conform(None, recorder, lax, mm(64, 64, 64, layout_a=Layout(pad=1)), config=CONFIG, target=HOPPER)
    assert [(check, passed) for check, passed, _ in recorder.verdicts] == [("refusal", False)]
