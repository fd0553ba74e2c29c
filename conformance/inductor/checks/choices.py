"""Checks of the suite about choices: what Inductor offers for a lowering, and its error if there is no choice."""

from __future__ import annotations

import re
from typing import Any

import torch

from conformance.execution.compile.resources import over_limits
from conformance.inductor.compile.program import Choice, Generated
from conformance.inductor.compile.provider import Compiled
from conformance.inductor.compile.replaced_decisions import ONE_CONFIG
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.problems import DTYPES
from conformance.records import Verdict
from conformance.targets import Target

NO_CHOICE = "No choices to select"


def compiled_verdict(generated: Generated) -> Verdict:
    failure = generated.failure
    return Verdict("compiled", failure is None, failure.message if failure else "compiled")


def check_advice(generated: Generated, option: str, other: str) -> list[Verdict]:
    """The compilation failed because there was no choice, and its error names the option to change and no other."""
    failure = generated.failure
    types, message = (failure.types, failure.message) if failure else ((), "it was compiled")
    advice = re.findall(r"consider adding ATEN into (\w+)", message)
    return [
        Verdict("raised", "NoValidChoicesError" in types, f"{' <- '.join(types)}: {message}"[:300]),
        Verdict("reason", NO_CHOICE in message, message[:300]),
        Verdict("advice", set(advice) == {option}, f"{sorted(set(advice))}, {option} required"),
        Verdict("no other advice", other not in message, f"{other} has nothing to do with it"),
    ]


def check_infinite(usual: Generated, infinite: Generated) -> list[Verdict]:
    """The program compiles, and has no choice where every time is infinite."""
    notes = list(infinite.notes)
    types = infinite.failure.types if infinite.failure else ("it was compiled",)
    return [
        compiled_verdict(usual),
        Verdict("timed", bool(notes) and min(notes) > 1, f"{notes} choices, several required each time"),
        Verdict("raised", "NoValidChoicesError" in types, " <- ".join(types)),
    ]


def check_offered(generated: Generated, *, templates: bool, most: int) -> list[Verdict]:
    """Every lowering was offered ATen's implementation, and Triton's templates (``most`` of them) only if asked."""
    lowerings = len(generated.lowerings)
    verdicts = [compiled_verdict(generated), Verdict("lowerings", lowerings > 0, f"{lowerings}")]
    for number, lowering in enumerate(generated.lowerings):
        kinds = [choice.kind for choice in lowering.offered]
        triton = kinds.count("triton")
        text = f"{lowering.name}: {', '.join(choice.name for choice in lowering.offered)}"
        verdicts.append(Verdict(f"extern/{number}", "extern" in kinds, text))
        verdicts.append(Verdict(f"templates/{number}", 0 < triton <= most if templates else not triton, text))
    return verdicts


def check_layouts(generated: Generated, *, fixed: bool) -> list[Verdict]:
    """Every choice of the one lowering has a fixed layout, or every one a flexible one."""
    wanted = "FixedLayout" if fixed else "FlexibleLayout"
    lowerings = [lowering.name for lowering in generated.lowerings]
    layouts = [choice.layout for choice in generated.offered]
    return [
        compiled_verdict(generated),
        Verdict("lowerings", lowerings == ["addmm"], f"{lowerings}"),
        Verdict("layouts", bool(layouts) and set(layouts) == {wanted}, f"{layouts}, {wanted} required"),
    ]


def check_pruned(all_of_them: Generated, pruned: Generated, *, some: bool) -> list[Verdict]:
    """The pruned choices are some of all choices. ``some``: at least one must have been dropped."""
    before, after = (
        [choice.description for choice in generated.lowerings[0].offered] for generated in (all_of_them, pruned)
    )
    exceptions = pruned.counters.get("select_algorithm_num_precompilation_exceptions", 0)
    return [
        Verdict("something left", bool(after), f"{len(after)} choices"),
        Verdict("part", set(after) <= set(before), f"{len(after)} of {len(before)}"),
        Verdict("pruned", len(after) < len(before) if some else True, f"{len(after)} of {len(before)}"),
        Verdict("exceptions", exceptions == 0, f"{exceptions} choices did not compile"),
    ]


def check_fits(generated: Generated, target: Target) -> list[Verdict]:
    """The one kernel of a template was compiled and stays within the target's limits."""
    kernels = [kernel for kernel in generated.kernels if kernel.kind == "template"]
    verdicts = [Verdict("kernels", len(kernels) == 1, f"{len(kernels)} templates, 1 required")]
    for kernel in kernels:
        if kernel.artefact is None:
            verdicts.append(Verdict("fits", False, kernel.error))
        else:
            excess = "; ".join(over_limits(kernel.artefact.resources, target))
            verdicts.append(Verdict("fits", not excess, excess or str(kernel.artefact.resources)))
    return verdicts


def check_exhaustive(generated: Generated) -> list[Verdict]:
    """ATen's implementation and the one config are offered."""
    kinds = [[choice.kind for choice in lowering.offered] for lowering in generated.lowerings]
    verdicts = [compiled_verdict(generated), Verdict("offered", kinds == [["extern", "triton"]], f"{kinds}")]
    for choice in generated.offered:
        if choice.kind == "triton":
            numbers = {name: choice.numbers.get(name) for name in ONE_CONFIG}
            verdicts.append(Verdict("config", numbers == dict(ONE_CONFIG), f"{numbers}, {dict(ONE_CONFIG)} required"))
    return verdicts


def check_triton_alone(generated: Generated) -> list[Verdict]:
    """One Triton kernel computes the product: a template's, or a pointwise one in releases that prefer that."""
    return [
        Verdict("kernels", len(generated.kernels) == 1, ", ".join(kernel.name for kernel in generated.kernels)),
        in_source("source/no extern", exactly(0, r"\bextern_kernels\.\w+\("), generated.modules[-1], "module"),
    ]


def check_not_contiguous(generated: Generated) -> list[Verdict]:
    """No choice makes the second operand contiguous first, and nothing in the modules does."""
    offered = [choice.name for choice in generated.offered]
    contiguous = [name for name in offered if "contiguous" in name]
    named = [number for number, text in enumerate(generated.modules) if re.search("contiguous_(add)?mm", text)]
    return [
        compiled_verdict(generated),
        Verdict("choices", bool(offered), f"{len(offered)} choices"),
        Verdict("not offered", not contiguous, ", ".join(contiguous)),
        Verdict("not generated", not named, f"modules {named}"),
    ]


def check_contiguous(generated: Generated, name: str) -> list[Verdict]:
    """The choice ``name`` is offered. Its function copies the second operand into rows, and the product reads the
    copy."""
    offered = [choice.name for choice in generated.offered]
    directives = rf"""
        CHECK: def {{{{{name}_\d+}}}}(args):
        CHECK: {{{{{name}_\d+_buf0 = empty_strided_cuda\(\(\w+, (\w+)\), \(\1, 1\)}}}}
        CHECK: {{{{triton_poi_\w+\.run\({name}_\d+_b_1, {name}_\d+_buf0,}}}}
        CHECK: {{{{extern_kernels\.\w+\(.*, {name}_\d+_buf0,}}}}
    """
    return [
        compiled_verdict(generated),
        Verdict("offered", any(choice.startswith(name) for choice in offered), f"{name} among {', '.join(offered)}"),
        in_source("source/copy", directives, generated.modules[-1], "module"),
    ]


def check_output(
    compiled: Compiled, executor: Any, *, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None
) -> list[Verdict]:
    """One call of the compiled function returns one tensor of ``shape``, ``dtype`` and ``strides`` (in elements)."""
    tensors = []
    for operand in compiled.program.operands:
        memory = torch.zeros(operand.span, dtype=DTYPES[operand.dtype], device=executor.device)
        tensors.append(memory.as_strided(operand.shape, operand.strides))
    outputs, _ = compiled.call(tensors, executor, observe=False)
    verdicts = [Verdict("outputs", len(outputs) == 1, f"{len(outputs)}, 1 required")]
    for out in outputs[:1]:
        verdicts.append(Verdict("shape", tuple(out.shape) == shape, f"{tuple(out.shape)}, {shape} required"))
        verdicts.append(Verdict("dtype", out.dtype == DTYPES[dtype], f"{out.dtype}, {DTYPES[dtype]} required"))
        if strides is not None:
            verdicts.append(Verdict("strides", out.stride() == strides, f"{out.stride()}, {strides} required"))
    return verdicts


def tile(choice: Choice) -> int:
    """Elements of both operands that all stages of a choice hold."""
    numbers = choice.numbers
    return (numbers["BLOCK_M"] + numbers["BLOCK_N"]) * numbers["BLOCK_K"] * numbers.get("num_stages", 1)
