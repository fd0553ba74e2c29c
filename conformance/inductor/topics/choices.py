"""Inductor's choices: functions of ``a`` (M x K) and ``b`` (K x N), and products whose K is split. Checks are about
what is offered for a lowering, and the error if there is no choice."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.execution.compile.kernel_figures import over_limits
from conformance.inductor.compile.program import Choice, Decision, Generated
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.compile.replaced_decisions import ONE_CONFIG, replacing
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.inductor.tuning.max_autotune import compiling
from conformance.problems import DTYPES
from conformance.records import Check, CheckKind, Verdict
from conformance.targets import Target


def sin_mm(a: Tensor, b: Tensor) -> Tensor:
    """A product of a computed operand; exact where that is empty."""
    return torch.sin(a) @ b


def relu_mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(a @ b)


def relu_transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """Of ``a`` as K x M."""
    return torch.relu(a.transpose(0, 1) @ b)


def transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """Of ``a`` as K x M."""
    return a.transpose(0, 1) @ b


def stacked_mm(a: Tensor, b: Tensor) -> Tensor:
    """Twice the rows of ``a``: with a dynamic number of them, M is an expression."""
    return torch.cat((a, a)) @ b


def stacked_columns(a: Tensor, b: Tensor) -> Tensor:
    """32 times the rows of ``a``."""
    return torch.cat([a] * 32) @ b


def wide_bmm(a: Tensor, b: Tensor) -> Tensor:
    """The output is fp32; fp64 stays, so that the same function is its own reference."""
    return torch.bmm(a, b) if a.dtype == torch.float64 else torch.bmm(a, b, out_dtype=torch.float32)


def matrix_addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The bias is a matrix."""
    return torch.addmm(bias, a, b)


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
    layout = "FixedLayout" if fixed else "FlexibleLayout"
    lowerings = [lowering.name for lowering in generated.lowerings]
    layouts = [choice.layout for choice in generated.offered]
    return [
        compiled_verdict(generated),
        Verdict("lowerings", lowerings == ["addmm"], f"{lowerings}"),
        Verdict("layouts", bool(layouts) and set(layouts) == {layout}, f"{layouts}, {layout} required"),
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
    compiled: CompiledProgram,
    executor: Any,
    *,
    shape: tuple[int, ...],
    dtype: str,
    strides: tuple[int, ...] | None = None,
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


DECOMPOSED = re.compile(r"^decompose_k_mm_(\d+)_split_\d+$")


def wide_bmm_call() -> str:
    """Returns the call by which a generated module runs ATen's bmm with an output of another dtype."""
    choice = getattr(importlib.import_module("torch._inductor.kernel.bmm"), "aten_bmm_dtype", None)
    return rf"\bextern_kernels\.{re.escape(choice.name if choice is not None else 'bmm_dtype')}\("


def mirrored(m: int, n: int, k: int, dtype: str, seed: int = 0) -> dict[str, Tensor]:
    """Returns A (M x K) and B (K x N) whose products cancel in mirrored places of K, except for a few.

    So every sum is a whole number that even bf16 holds, however long K is. A part of K that is lost, added twice or
    multiplied by another part still changes the result.
    """
    return dict(_mirrored(m, n, k, dtype, seed))


@functools.lru_cache(maxsize=1)
def _mirrored(m: int, n: int, k: int, dtype: str, seed: int) -> Mapping[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    half = k // 2
    a = 2.0 * torch.randint(0, 2, (m, k), generator=generator) - 1
    b = torch.randint(-2, 3, (k, n), generator=generator).float()
    a[:, k - half :] = -a[:, :half].flip(1)
    b[k - half :] = b[:half].flip(0)
    few = torch.randperm(half, generator=generator)[:24]
    a[:, few] += torch.randint(-1, 2, (m, len(few)), generator=generator)
    return {"a": a.to(DTYPES[dtype]), "b": b.to(DTYPES[dtype])}


def splits_of(generated: Generated) -> tuple[list[int], bool]:
    """Returns the split of each choice of the first lowering that splits K. The second value says whether all their
    names have the known form."""
    names = [choice.name for choice in generated.lowerings[0].offered if "decompose_k" in choice.name]
    matches = [DECOMPOSED.match(name) for name in names]
    return [int(match[1]) for match in matches if match], all(matches)


def check_splits(generated: Generated, m: int, n: int, k: int, *, most: int, some: bool) -> list[Verdict]:
    """Between 1 and ``most`` splits are offered if ``some`` is true, otherwise none.

    Each split is offered once, divides K and lies in [2, min(K / M, K / N)].
    """
    splits, named = splits_of(generated)
    right = [split for split in splits if k % split == 0 and 2 <= split <= min(k // m, k // n)]
    amount = 1 <= len(splits) <= most if some else not splits
    return [
        compiled_verdict(generated),
        Verdict("names", named, f"{[choice.name for choice in generated.lowerings[0].offered][:4]}"),
        Verdict("number", amount, f"{len(splits)} splits: {splits}"),
        Verdict("splits", right == splits and len(set(splits)) == len(splits), f"{splits} of K = {k}"),
    ]


def check_decomposed(generated: Generated, m: int, n: int) -> list[Verdict]:
    """One call of ATen's multiplies the parts into fp32, and a generated kernel adds them up. The module holds no
    template."""
    module = generated.modules[-1]
    names = [choice.name for choice in generated.left]
    name, split = next((match[0], match[1]) for match in map(DECOMPOSED.match, names) if match)
    checks = {
        "bmm": exactly(1, wide_bmm_call()),
        "parts": exactly(1, rf"empty_strided_cuda\(\({split}, {m}, {n}\), \([^)]*\), torch\.float32\)"),
        "function": exactly(1, rf"^def {name}\("),
        "no template": exactly(0, r"\btriton_tem_"),
        "kernels": exactly(len(generated.kernels), r"\btriton_\w+_fused_\w*\d+\.run\("),
    }
    verdicts = [Verdict("has kernels", bool(generated.kernels), f"{len(generated.kernels)} kernels")]
    return verdicts + [in_source(f"source/{check}", directives, module) for check, directives in checks.items()]


def check_not_decomposed(generated: Generated) -> list[Verdict]:
    """No splitting of K is offered, and nothing of it is in the module."""
    module = generated.modules[-1]
    offered = [choice.name for choice in generated.lowerings[0].offered if "decompose_k" in choice.name]
    return [
        Verdict("offered", not offered, ", ".join(offered)),
        in_source("source/no bmm", exactly(0, wide_bmm_call()), module),
        in_source("source/no decompose_k", exactly(0, "decompose_k"), module),
    ]


def check_symbolic(generated: Generated, n: int) -> list[Verdict]:
    """The parts are allocated with twice the symbol of A's rows, and the choices have names of the known form."""
    module = generated.modules[-1]
    parts = exactly(1, rf"empty_strided_cuda\(\(\d+, 2\*s\d+, {n}\), .*torch\.float32\)")
    splits, recompiles = splits_of(generated)[0], generated.counters["recompiles"]
    return [
        Verdict("offered", bool(splits), f"{splits}"),
        in_source("source/bmm", exactly(1, wide_bmm_call()), module),
        in_source("source/parts", parts, module),
        Verdict("recompiles", recompiles == 0, f"{recompiles}"),
    ]


def check_backward(device: torch.device, settings: Mapping[str, Any]) -> list[Verdict]:
    """Both gradients of a product of 256 rows, a dynamic number, and 32768 columns are exact. K of the first gradient
    is 32768, and one of the two is computed by splitting K."""
    from torch._inductor import config
    from torch._inductor.utils import run_fw_bw_and_get_code

    generator = torch.Generator().manual_seed(0)
    values = [torch.randint(-1, 2, shape, generator=generator).half() for shape in ((8, 64), (64, 32768))]
    gradient = torch.zeros(256, 32768, dtype=torch.float16)
    places = torch.randint(0, 32768, (256, 16), generator=generator)  # few, so that every sum fits
    gradient.scatter_(1, places, 1.0)
    leaves = [value.to(device, copy=True).requires_grad_() for value in values]
    torch._dynamo.mark_dynamic(leaves[0], 0)
    wide = [value.double().requires_grad_() for value in values]
    stacked_columns(*wide).backward(gradient.double())
    with compiling(**settings), replacing(Decision.K_IS_SPLIT) as notes, config.patch(force_disable_caches=True):
        compiled = torch.compile(stacked_columns)

        def forward() -> Tensor:
            total: Tensor = (compiled(*leaves) * gradient.to(device)).sum()
            return total

        _, modules = run_fw_bw_and_get_code(forward)
    verdicts = []
    for name, computed, exact in zip("ab", leaves, wide, strict=True):
        assert exact.grad is not None
        equal = computed.grad is not None and torch.equal(computed.grad.cpu().double(), exact.grad)
        verdicts.append(Verdict(str(Check(CheckKind.NUMERICS, name)), equal, f"gradient of {name}"))
    backward = modules[-1]
    parts = r"empty_strided_cuda\(\(\d+, 32\*s\d+, 64\), .*torch\.float32\)"
    for name, pattern in {"bmm": wide_bmm_call(), "parts": parts, "choice": "def decompose_k_mm_"}.items():
        verdicts.append(Verdict(f"source/{name}", bool(re.search(pattern, backward)), f"{pattern}; {notes}"))
    return verdicts
