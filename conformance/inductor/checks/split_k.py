"""Products whose K is split, as a batch of products of parts of K and their sum: operands for them, and verdicts."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.inductor.checks.choices import compiled_verdict
from conformance.inductor.compile.program import Decision, Generated
from conformance.inductor.compile.replaced_decisions import replacing
from conformance.inductor.graphs import choices as graphs_choices
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.inductor.tuning.max_autotune import compiling
from conformance.problems import DTYPES
from conformance.records import Check, CheckKind, Verdict

DECOMPOSED = re.compile(r"^decompose_k_mm_(\d+)_split_\d+$")


def wide_bmm_call() -> str:
    """Returns how a generated module calls ATen's bmm with an output of another dtype."""
    choice = getattr(importlib.import_module("torch._inductor.kernel.bmm"), "aten_bmm_dtype", None)
    return rf"\bextern_kernels\.{re.escape(choice.name if choice is not None else 'bmm_dtype')}\("


def mirrored(m: int, n: int, k: int, dtype: str, seed: int = 0) -> dict[str, Tensor]:
    """A (M x K) and B (K x N) whose products cancel in mirrored places of K, except for a few.

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
    """The split of each choice of the first lowering that splits K. The second value says whether all their names have
    the known form."""
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
    graphs_choices.stacked_columns(*wide).backward(gradient.double())
    with compiling(**settings), replacing(Decision.K_IS_SPLIT) as notes, config.patch(force_disable_caches=True):
        compiled = torch.compile(graphs_choices.stacked_columns)

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
