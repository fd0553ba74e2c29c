"""Checks of the suite about operations: which kernels a program launches, and what stands in them.

``run`` is a ``conformance.judging.inductor_judge.PinnedRun``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from conformance.inductor.compile.program import Generated
from conformance.inductor.source import spellings
from conformance.inductor.source.source_checks import extern_calls, launched
from conformance.problems import Problem
from conformance.records import Verdict


def check_dynamic(run: Any) -> None:
    """M, N and K come from arguments, and nothing was compiled a second time."""
    check_recompiles(run)
    for name in "MNK":
        run.exactly(1, f"{name} is an argument", rf"^ +{name} = ks[0-9]+$")
    run.record(alone(run.generated))


def check_recompiles(run: Any) -> None:
    """Nothing was compiled after the first call."""
    again = run.generated.counters["recompiles"]
    run.check("recompiles", again == 0, f"{again} compilations after the first")


def alone(generated: Generated) -> list[Verdict]:
    """The program is one launch of a template's kernel, with one store, and nothing else."""
    kinds = [kernel.kind for kernel in generated.kernels]
    launches = launched(*generated.modules)
    calls = extern_calls(*generated.modules)
    stores = [len(re.findall(spellings.POINTER_STORE, kernel.source)) for kernel in generated.kernels]
    return [
        Verdict("one kernel", kinds == ["template"], ", ".join(kinds)),
        Verdict("one launch", launches == [kernel.name for kernel in generated.kernels], ", ".join(launches)),
        Verdict("no extern kernel", not calls, ", ".join(calls)),
        Verdict("one store", stores == [1], ", ".join(map(str, stores))),
    ]


def check_strides(run: Any, problem: Problem) -> None:
    """The operand is read where it lies: no other kernel packs it first, and the wrapper asserts its strides."""
    _, rows, columns = (1, *problem.operands[0].strides)[-3:]
    asserted = rf"{spellings.STRIDES_ASSERTED}.*\([0-9, ]*{rows}, {columns}\)"
    run.filecheck("strides", f"CHECK: {{{{{asserted}}}}}", where="module")
    run.record(alone(run.generated))


#: Steps that load an operand.
LOADING = ("bias", "residual", "dropout")


def epilogue_in_template(generated: Generated, steps: Sequence[str]) -> list[Verdict]:
    """The program is one template's kernel, which loads the operands of ``steps`` and applies each relu."""
    source = "\n".join(kernel.source for kernel in generated.kernels)
    loads = len(re.findall(r"= tl\.load\(in_ptr\d+ \+", source))
    maxima = len(re.findall(spellings.MAXIMUM, source))
    return [
        *alone(generated),
        Verdict("epilogue loads", loads == sum(step in LOADING for step in steps), str(loads)),
        Verdict("epilogue relu", maxima == steps.count("relu"), str(maxima)),
    ]


def no_extern_convolution(generated: Generated) -> list[Verdict]:
    """The program has one template's kernel and calls no extern kernel."""
    calls = extern_calls(*generated.modules)
    kinds = [kernel.kind for kernel in generated.kernels]
    return [
        Verdict("no extern kernel", not calls, ", ".join(calls)),
        Verdict("one template", kinds.count("template") == 1, ", ".join(kinds)),
    ]


def one_cat(generated: Generated) -> list[Verdict]:
    """Each kernel that adds or joins does both and is launched once, beside one template of a convolution."""
    names = launched(*generated.modules)
    joins = [name for name in names if name.startswith("triton_poi_fused_add_cat_")]
    once = len(set(joins)) == len(joins)
    others = [name for name in names if name not in joins and ("cat" in name or "add" in name)]
    templates = [name for name in names if name.startswith("triton_tem_fused_convolution")]
    return [
        Verdict("pointwise kernels join", bool(joins) and once and not others, ", ".join(names)),
        Verdict("one template", len(templates) == 1, ", ".join(names)),
    ]


#: Triton launches by graph and choice. Releases differ in whether one kernel reads the product for the second result
#: and joins the other part.
LAUNCHES = {
    ("cat_mm", "extern"): (1,),
    ("cat_mm_and_sum", "extern"): (2,),
    ("cat_mm", "triton"): (2,),
    ("cat_mm_and_sum", "triton"): (2, 3),
    ("cat_mm_twice", "extern"): (2, 3),
    ("cat_mm_twice", "triton"): (3, 4),
}


def cat_launches(generated: Generated, graph: str, choice: str) -> list[Verdict]:
    """The last module launches as many kernels as :data:`LAUNCHES` says, and computes the product once."""
    module = generated.modules[-1]
    names = launched(module)
    products = [name for name in names if name.startswith("triton_tem_")]
    calls = extern_calls(module)
    wanted = LAUNCHES[graph, choice]
    product = (len(products), calls) == ((0, ["mm"]) if choice == "extern" else (1, []))
    return [
        Verdict("launches", len(names) in wanted, f"{', '.join(names)}: {wanted} required"),
        Verdict("one product", product, ", ".join([*products, *calls])),
    ]
