"""Checks of the suite about scaled products: fast accumulation, what is offered for a short K, and what is refused.

``run`` is a ``conformance.judging.inductor_judge.PinnedRun``.
"""

from __future__ import annotations

import re
from typing import Any

from conformance.codegen_checks import TCGEN05, WGMMA
from conformance.inductor.compile.program import Generated
from conformance.inductor.source.source_checks import exactly, in_source
from conformance.records import Verdict

#: The least K of an fp8 instruction of tcgen05, and the least row of a descriptor's box, in elements of one byte.
LEAST_K = 32
#: Torch 2.6 has pointer choices at K = 16 of fewer rows than this; later ones have none.
ROWS_AT_16 = 64


def check_fast(run: Any, *, fast: bool) -> None:
    """The kernel was told how to sum. Where wgmma sums, code without fast accumulation adds each block of k to the sum
    by an instruction of its own; the product must have no bias, which is added, too."""
    run.exactly(1, "fast accumulation", rf"USE_FAST_ACCUM : tl\.constexpr = {fast}\b")
    if run.target.capability("wgmma").available:
        run.filecheck("promotion", f"CHECK{'-NOT' if fast else ''}: arith.addf", where="ttgir")


def check_unit(run: Any) -> None:
    """The code uses the target's instruction for whole warpgroups; for tiles of at least 64 rows and four warps."""
    for capability, feature in (("wgmma", WGMMA), ("tcgen05", TCGEN05)):
        if run.target.capability(capability).available:
            run.code(requires=[feature])


def check_block_scales(run: Any, scaling: str) -> None:
    """The main loop reads each operand's scales as blocks of the kind that ``scaling`` says, A's kind first."""
    kinds = scaling.split("/")
    for operand, kind in zip("ab", kinds, strict=True):
        function = {"1x128": "blockwise1xTILESIZE_scaling", "128x128": "blockwise128x128_scaling"}[kind]
        run.exactly(1, f"scales of {operand}", rf"^ +scale_{operand}_block = {function}\(")


def check_offered(generated: Generated, k: int, *, tcgen05: bool) -> list[Verdict]:
    """The choices for a product of ``k``. From :data:`LEAST_K` on there are some by pointers and by descriptors, whose
    BLOCK_K is at least that. Below there is none by descriptors, none at all for ``tcgen05``, and by pointers at most
    some of few rows."""
    lowerings = [lowering.name for lowering in generated.lowerings]
    descriptors, pointers = ([c for c in generated.offered if ("tma" in c.name) is by] for by in (True, False))
    verdicts = [Verdict("lowerings", lowerings == ["scaled_mm"], f"{lowerings}")]
    if k < LEAST_K:
        rows = sorted({choice.numbers["BLOCK_M"] for choice in pointers})
        few = all(count < ROWS_AT_16 for count in rows) and not (tcgen05 and rows)
        names = ", ".join(choice.name for choice in descriptors)
        return [
            *verdicts,
            Verdict("no descriptors", not descriptors, names),
            Verdict("few rows", few, f"BLOCK_M {rows} by pointers{', none for tcgen05' if tcgen05 else ''}"),
        ]
    for name, choices in (("descriptors", descriptors), ("pointers", pointers)):
        blocks = sorted({choice.numbers["BLOCK_K"] for choice in choices})
        text = f"{len(choices)} choices with BLOCK_K {blocks}, {LEAST_K} required"
        verdicts.append(Verdict(name, bool(choices) and blocks[0] >= LEAST_K, text))
    return verdicts


def check_refused(generated: Generated, *, types: str = "", message: str = "") -> list[Verdict]:
    """The compilation failed, with an exception ``types`` among its causes and ``message`` in its text."""
    failure = generated.failure
    text = str(failure)[:600] if failure else "it was compiled"
    verdicts = [Verdict("raised", failure is not None and (not types or types in failure.types), text)]
    if message:
        named = failure is not None and message in failure.message
        verdicts.append(Verdict("message", named, f"{message!r} required: {text}"))
    return verdicts


def check_called(generated: Generated) -> list[Verdict]:
    """ATen's scaled product is the one choice, and called once with the operands in their order."""
    kinds = [choice.kind for choice in generated.offered]
    module = generated.modules[-1] if generated.modules else ""
    call = r"_scaled_mm(?:_v2)?(?:\.default)?\("
    arguments = r".*\b".join(f"arg{number}_1" for number in range(4))
    return [
        Verdict("offered", set(kinds) <= {"extern"}, f"{kinds}"),
        in_source("source/call", exactly(1, call), _without_comments(module), "module"),
        in_source("source/operands", f"CHECK: {{{{{call}.*{arguments}}}}}", _without_comments(module), "module"),
    ]


def _without_comments(module: str) -> str:
    return re.sub(r"^\s*#.*$", "", module, flags=re.MULTILINE)
