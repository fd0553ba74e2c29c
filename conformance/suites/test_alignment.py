"""Kernels refuse what a descriptor cannot describe. Without the check, the damage is seen and recorded."""

import dataclasses

import pytest

from conformance.cases.each_kernel import each_kernel
from conformance.cases.scenarios import ragged, scenario, where
from conformance.execution.trial.unchecked_trials import unchecked_trial
from conformance.families.limits import DESCRIPTOR_BYTES
from conformance.judging.plan_rules import accepted, broken_by_descriptors
from conformance.kernels import catalogue
from conformance.kernels.kernel import NoApplicableKernel, Variant
from conformance.kernels.refusal_rules import objection
from conformance.problems import Layout, itemsize
from conformance.records import Reason, ReasonCode

#: fault -> (operand, reason code, rule that the refusal must state)
FAULTS = {
    "a-base": ("a", ReasonCode.ALIGNMENT_BASE, "16-byte boundary"),
    "a-pitch": ("a", ReasonCode.ALIGNMENT_PITCH, "multiple of 16"),
    "b-base": ("b", ReasonCode.ALIGNMENT_BASE, "16-byte boundary"),
    "b-pitch": ("b", ReasonCode.ALIGNMENT_PITCH, "multiple of 16"),
    "out-base": ("out", ReasonCode.ALIGNMENT_BASE, "16-byte boundary"),
    "out-pitch": ("out", ReasonCode.ALIGNMENT_PITCH, "multiple of 16"),
    "out-extent": ("out", ReasonCode.ALIGNMENT_EXTENT, "multiples of 16 bytes"),
    "a-inner-stride": ("a", ReasonCode.LAYOUT, "unit"),
}


def misaligned(kernel, dtype, config, fault, off=1):
    """A problem with exactly one fault: bases and pitches off by ``off`` elements, or an inner extent short by so many.
    With no fault if that is None."""
    M, N, K = ragged(kernel, config, dtype, aligned=True)
    if fault is None:
        return kernel.problem(dtype, M, N, K)
    if fault == "out-extent":
        N -= off
    plain = kernel.problem(dtype, M, N, K)
    name, kind = fault.split("-", 1)
    fields = {"layout_a": plain.layout_a, "layout_b": plain.layout_b, "layout_out": plain.layout_out}
    if fault == "out-extent":
        step = 16 // min(itemsize(plain.output_dtype), itemsize(plain.dtype))
        fields["layout_out"] = Layout(pad=off + step)
        if plain.layout_b.order == "row":
            fields["layout_b"] = Layout(pad=off)
    changes = {"base": {"offset": off}, "pitch": {"pad": off}, "inner-stride": {"step": 2}}.get(kind, {})
    key = f"layout_{name}"
    fields[key] = dataclasses.replace(fields[key], **changes)
    return dataclasses.replace(plain, **fields)


@scenario(where(descriptors=True), fault=list(FAULTS), descriptors=["device", "host"], configs=2)
def test_refusal_names_operand_bytes_and_rule(conform, recorder, kernel, target, dtype, config, fault, descriptors):
    """The kernel's refusal, and the same reason in what the catalogue raises when nothing else applies."""
    problem = misaligned(kernel, dtype, config, fault)
    operand, code, rule = FAULTS[fault]
    variant = Variant(descriptors=descriptors, tma_store=True)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target, options={"variant": variant.id})
    reason = kernel.refusal(kernel.draft(problem, config, target, variant))
    judged = kernel.limits is not None
    if reason is None and not judged:  # it copes, and must then be right
        conform(kernel, problem, config=config, target=target, variant=variant)
        return
    if reason is None or (reason.code, reason.subject) != (code, operand):
        sound = kernel.draft(misaligned(kernel, dtype, config, None), config, target, variant)
        if already := kernel.refusal(sound):  # it has nothing to refuse of a variant that it does not take at all
            recorder.not_applicable(already)
    recorder.proves_at_most("nothing", "a refusal is judged, and no kernel is run")
    broken = broken_by_descriptors(problem, tma_store=True)
    recorder.verdict("refused", reason is not None, accepted(kernel, broken[0]) if reason is None else str(reason))
    if reason is not None and judged:  # one without limits may need more than alignment, and say so in its own words
        # fp8 kernels take unit inner strides only, and say so before any descriptor is considered.
        recorder.verdict(
            "typed", (reason.code, reason.subject) == (code, operand), f"{code.value} of {operand} expected"
        )
        recorder.verdict("rule", rule in reason.detail and any(c.isdigit() for c in reason.detail), reason.detail)
    kernels = {**catalogue.own_kernels(), kernel.name: kernel}  # what other packages take is no affair of this kernel
    try:
        catalogue.select(problem, target, variant, kernels)
        carried = None
    except NoApplicableKernel as error:
        carried = error.reasons
    recorder.verdict(
        "in NoApplicableKernel", carried is not None and carried.get(kernel.name) is not None, str(carried)
    )
    complete = carried is not None and carried.keys() == kernels.keys()
    recorder.verdict("every kernel gives its reason", complete, str(sorted(carried or ())))


@scenario(
    where(descriptors=True),
    fault=[fault for fault in FAULTS if not fault.endswith("inner-stride")],
    descriptors=["device", "host"],
    configs=1,
)
@pytest.mark.proves_at_most("nothing", "refusals are judged, and no kernel is run")
def test_each_residue_of_an_alignment(recorder, kernel, target, dtype, config, fault, descriptors):
    """A kernel takes what lies on 16 bytes and refuses each other residue, by rules that are not its own."""
    variant = Variant(descriptors=descriptors, tma_store=True)
    recorder.set(kernel=kernel, config=config, target=target, options={"variant": variant.id})
    sound = kernel.draft(misaligned(kernel, dtype, config, None), config, target, variant)
    if already := kernel.refusal(sound):
        recorder.not_applicable(already)
    operand, code, _ = FAULTS[fault]
    size = itemsize(sound.problem.operand(operand).dtype)
    for off in range(2 * DESCRIPTOR_BYTES // size):
        plan = kernel.draft(misaligned(kernel, dtype, config, fault, off), config, target, variant)
        passed, text = judge_refusal(kernel, plan, kernel.refusal(plan))
        recorder.verdict(f"{code.value} of {off * size} bytes", passed, text)


def judge_refusal(kernel, plan, reason):
    """Returns whether ``reason`` (None for a plan that is taken) is right, and a text.

    A plan that breaks a rule of descriptors must be refused. The refusal states a broken rule, or another rule of the
    family justifies it: a tensor map of Triton 3.2 has no pitch. A kernel without limits may refuse more, and may copy
    what no descriptor describes.
    """
    broken = broken_by_descriptors(plan.problem, tma_store=True)
    if reason is None:
        return (kernel.limits is None, accepted(kernel, broken[0])) if broken else (True, "taken")
    stated = (reason.code, reason.subject) in {(code, operand) for code, operand, _ in broken}
    unjustified = None if stated else objection(kernel, plan, reason)
    return unjustified is None, unjustified or str(reason)


@pytest.mark.slow(8)
@each_kernel(where(operation="mm", descriptors=True), fault=["a-base", "a-pitch", "b-pitch", "out-extent"])
def test_forced_past_the_check(harness, recorder, kernel, fault):
    """Without the refusal, in a process of its own on a device, the damage must be seen. The record keeps its kind."""
    target, config = harness.first_target(kernel), kernel.configs[min(1, len(kernel.configs) - 1)]
    problem = misaligned(kernel, "bf16" if "bf16" in kernel.dtypes else kernel.dtypes[0], config, fault)
    variant = Variant(tma_store=fault.startswith("out"), sms=3)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target, options={"variant": variant.id})
    if reason := kernel.example_refusal(problem.dtype, config, target):
        recorder.not_applicable(reason)
    if not harness.settings.has_gpu:
        detail = "what a device does with a misaligned descriptor needs a device"
        recorder.not_run(Reason(ReasonCode.NO_DEVICE, fault, detail))
    plan = kernel.plan(problem, config, target, variant, unchecked=True)
    with recorder.timed("run"):
        seen = unchecked_trial(plan, seed=harness.settings.seed)
    recorder.set(executor="device", observed={"forced": seen.kind, "detail": seen.text})
    recorder.verdict("damage seen", seen.kind != "clean", f"{fault}: {seen.kind}: {seen.text}")
