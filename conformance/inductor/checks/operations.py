"""Checks of the suite about operations: which kernels a program launches, and what stands in them.

``run`` is a ``conformance.judging.inductor_judge.PinnedRun``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.inductor.compile.program import Generated, Scheduled
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


#: The class of the scheduler's node of a product that is ATen's in the end.
KINDS = {"before fusion": "SchedulerNode", "after fusion": "ExternKernelSchedulerNode"}


def check_renames(notes: Sequence[tuple[str, Mapping[str, str], Sequence[Scheduled]]]) -> list[Verdict]:
    """``notes`` of ``Decision.SCHEDULE_IS_NOTED``. The program writes in place into the operand of its one product, and
    later into the product.

    The product waits for the first of these writes, and for nothing else: while it is a buffer of several templates
    before fusion, and as ATen's kernel after it. The second write waits for the product."""
    stages = [stage for stage, *_ in notes]
    verdicts = [Verdict("stages", stages == ["before fusion", "after fusion"], ", ".join(stages))]
    nodes = [list(nodes) for *_, nodes in notes]
    products = [node for node in (nodes[0] if nodes else []) if node.operation == "MultiTemplateBuffer"]
    verdicts.append(
        Verdict("products", len(products) == 1, f"{len(products)} buffers of several templates, 1 required")
    )
    if not all(verdict.passed for verdict in verdicts):
        return verdicts
    product = products[0].writes
    later = [node for node in nodes[0] if node.mutates == product]
    earlier = [node for node in nodes[0] if node.mutates and node not in later]
    verdicts.append(Verdict("writes", (len(earlier), len(later)) == (1, 1), f"{[*earlier, *later]}"))
    if not verdicts[-1].passed:
        return verdicts
    wanted = {node.mutates[0]: node.writes[0] for node in (*earlier, *later)}
    for stage, renames, scheduled in notes:
        waits = [(node.kind, node.unmet) for node in scheduled if node.writes == product]
        right = (KINDS[stage], earlier[0].writes)
        second = [node.unmet for node in scheduled if set(product) <= set(node.mutates)]
        waiting = len(second) == 1 and set(product) <= set(second[0])
        verdicts += [
            Verdict(f"{stage}/product", waits == [right], f"waits for: {waits}, {right} required"),
            Verdict(f"{stage}/second write", waiting, f"waits for: {second}, {product} required"),
            Verdict(f"{stage}/renames", dict(renames) == wanted, f"{renames}, {wanted} required"),
        ]
    return verdicts


def written_in_place(generated: Generated) -> bool:
    """Returns what came of the graph ``cat_of_shared``: whether each part, of which something else reads one, is
    written straight to its place. Otherwise one kernel joins them, and the part is computed again for what else reads
    it."""
    return not any("_cat_" in name for name in launched(*generated.modules))


#: Triton launches by graph and choice: if one kernel joins parts that something else reads too, and if each of them is
#: written straight to its place, as torch does from pull request 175729 on.
LAUNCHES = {
    ("cat_mm", "extern"): (1, 1),
    ("cat_mm_and_sum", "extern"): (2, 2),
    ("cat_mm_twice", "extern"): (2, 3),
    ("cat_mm", "triton"): (2, 2),
    ("cat_mm_and_sum", "triton"): (2, 3),
    ("cat_mm_twice", "triton"): (3, 4),
}


def cat_launches(generated: Generated, graph: str, choice: str, *, in_place: bool) -> list[Verdict]:
    """The last module launches as many kernels as :data:`LAUNCHES` says, and computes the product once. For
    ``in_place`` see :func:`written_in_place`."""
    module = generated.modules[-1]
    names = launched(module)
    products = [name for name in names if name.startswith("triton_tem_")]
    calls = extern_calls(module)
    wanted = LAUNCHES[graph, choice][in_place]
    product = (len(products), calls) == ((0, ["mm"]) if choice == "extern" else (1, []))
    return [
        Verdict("launches", len(names) == wanted, f"{', '.join(names)}: {wanted} required"),
        Verdict("one product", product, ", ".join([*products, *calls])),
    ]
