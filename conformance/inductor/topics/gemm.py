"""Products: the functions that are compiled, one per operation, called with a problem's operands in their order. Checks
are of kernels that read, and may write, by tensor descriptors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.codegen_checks import POINTER_STORE, TMA_LOAD, TMA_STORE
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import Conv
from conformance.families.gemm.problem import Gemm
from conformance.families.grouped.problem import GroupedGemm
from conformance.inductor.source import spellings
from conformance.inductor.topics import attention
from conformance.problems import DTYPES, Problem


def mm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.mm(a, b) if out is None else torch.mm(a, b, out=out)


def addmm(a: Tensor, b: Tensor, bias: Tensor, *, alpha: float, beta: float) -> Tensor:
    return torch.addmm(bias, a, b, alpha=alpha, beta=beta)


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None = None, *, out_dtype: str, fast: bool
) -> Tensor:
    return torch._scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=DTYPES[out_dtype], use_fast_accum=fast)


def mm_plus_mm(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    return torch.mm(a, b) + torch.mm(c, d)


def bmm(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)


def baddbmm(a: Tensor, b: Tensor, bias: Tensor, *, alpha: float, beta: float) -> Tensor:
    return torch.baddbmm(bias, a, b, alpha=alpha, beta=beta)


def int_mm(a: Tensor, b: Tensor) -> Tensor:
    return torch._int_mm(a, b)


def grouped_mm(a: Tensor, b: Tensor, offsets: Tensor | None = None) -> Tensor:
    return torch._grouped_mm(a, b, offsets)


def convolution(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    groups: int = 1,
) -> Tensor:
    """Returns a convolution in two or three dimensions: as many as ``stride`` has."""
    apply = torch.nn.functional.conv2d if len(stride) == 2 else torch.nn.functional.conv3d
    return apply(x, w, bias, stride, padding, 1, groups)


def fused_mm(a: Tensor, b: Tensor, *others: Tensor, epilogue: tuple[str, ...], names: tuple[str, ...]) -> Tensor:
    """The epilogue in its order, as one writes it: each step rounds to the operands' dtype unless it is fused."""
    tensors = dict(zip(names, others, strict=True))
    out = torch.mm(a, b)
    for step in epilogue:
        if step == "relu":
            out = torch.relu(out)
        elif step in ("bias", "residual"):
            out = out + tensors[step]
        elif step == "dropout":
            out = torch.where(tensors["mask"] != 0, out * 2, 0)
        else:
            raise ValueError(f"epilogue {step!r} has no graph: use bias, relu, residual or dropout")
    return out


#: operation -> the keyword arguments of its graph, each with the field of the problem that holds it
_ARGUMENTS: dict[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("mm", "mm_plus_mm", "bmm", "int_mm"), ()),
    **dict.fromkeys(("addmm", "baddbmm"), (("alpha", "alpha"), ("beta", "beta"))),
    "scaled_mm": (("out_dtype", "output_dtype"), ("fast", "fast_accum")),
}


#: The graph that computes a problem, as "package.module:function", and its keyword arguments.
GraphCall = tuple[str, tuple[tuple[str, Any], ...]]


@functools.singledispatch
def graph_of(problem: Problem) -> GraphCall:
    """Returns the graph that computes ``problem``; a class of problems registers its own.

    Raises ValueError for an operation that has no graph.
    """
    raise ValueError(
        f"{problem.id}: {problem.op} has no graph: use one of {', '.join((*_ARGUMENTS, 'fused_mm', 'conv2d'))}"
    )


graph_of.register(Attention, attention.graph_of)


@graph_of.register
def _(problem: GroupedGemm) -> GraphCall:
    return f"{__name__}:grouped_mm", ()


@graph_of.register
def _(problem: Conv) -> GraphCall:
    sizes = (("stride", list(problem.stride)), ("padding", list(problem.padding)))
    return f"{__name__}:convolution", (*sizes, ("groups", problem.groups))


@graph_of.register
def _(problem: Gemm) -> GraphCall:
    if problem.fusion is not None:
        if problem.fusion.prologue is not None:
            raise ValueError(f"{problem.id}: a prologue has no graph, only epilogues do")
        names = tuple(operand.name for operand in problem.operands[2:])
        return f"{__name__}:fused_mm", (("epilogue", problem.fusion.epilogue), ("names", names))
    if problem.op not in _ARGUMENTS:
        return graph_of.dispatch(object)(problem)
    arguments = tuple((name, getattr(problem, field)) for name, field in _ARGUMENTS[problem.op])
    return f"{__name__}:{problem.op}", arguments


def check_descriptors(run: Any, template: str, *, store: bool) -> None:
    """Two descriptors are made and loaded from once each; the output is written once per subtile, through a third one
    if ``store`` was asked for and through pointers otherwise. The source writes in a loop over the subtiles, which the
    compiler unrolls."""
    dialect = spellings.dialect(template)
    store = store and dialect.stores_output
    run.exactly(2 + store, "descriptors", dialect.created)
    run.exactly(2, "descriptor loads", dialect.load)
    run.exactly(int(store), "descriptor stores", dialect.store)
    run.exactly(int(not store), "pointer stores", spellings.POINTER_STORE)
    required, other = (TMA_STORE, POINTER_STORE) if store else (POINTER_STORE, TMA_STORE)
    run.code(requires=[TMA_LOAD, required], forbids=[other])
    subtiles = run.choice.numbers.get("EPILOGUE_SUBTILE", 1)
    run.exactly(subtiles, "stores", r"\btt\.(?:descriptor_)?store\b", where="ttir")


def check_host_descriptors(run: Any, template: str) -> None:
    """The kernel is passed two descriptors, of A and B, makes none, and loads from each once."""
    dialect = spellings.dialect(template)
    run.exactly(2, "host descriptors", r"'block_shape': \[")
    run.exactly(0, "descriptors", dialect.created)
    run.exactly(2, "descriptor loads", dialect.load)
