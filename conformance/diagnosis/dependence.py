"""Which elements of the operands an element of an output depends on, axis by axis.

A program that stores an output must have read them, whatever its order of work: :func:`needed` is a lower bound.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from conformance.families.attention import reference as attention
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import Conv
from conformance.families.conv.transposed import TransposedConv
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.problems import Problem

#: For each dimension of a tensor a bool vector: which of its indices are meant.
Indices = Sequence[Tensor]
Needed = dict[str, tuple[Tensor, ...]]

_MATRIX = {
    **dict.fromkeys(("a", "c"), ("row", "k")),
    **dict.fromkeys(("b", "d"), ("k", "column")),
    "scale_a": ("row", "block of k"),
    "scale_b": ("block of k", "column"),
}
_QUERIES = ("batch", "head", "query", "element")
_PAGES = ("page", "key head", "row", "element")
_KEYS = ("batch", "key head", "key", "element")
_ATTENTION = {
    **dict.fromkeys(("q", "out", "grad_out"), _QUERIES),
    **dict.fromkeys(("k", "v"), _KEYS),
    "lse": _QUERIES[:3],
    "slopes": ("head",),
    "query_document": ("batch", "query"),
    "key_document": ("batch", "key"),
}
_SPACE = ("depth", "height", "width")


def axes(problem: Problem, name: str) -> tuple[str, ...]:
    """Returns what one index along each dimension of the operand ``name`` is called."""
    rank = len(problem.operand(name).shape)
    if isinstance(problem, Attention):
        return _PAGES if problem.page and name in ("k", "v") else _ATTENTION[name]
    if isinstance(problem, Conv):
        weights = ("output channel", "channel")
        weights = weights[::-1] if isinstance(problem, TransposedConv) else weights
        first = {"x": ("image", "channel"), "w": weights}.get(name, ("output channel",))
        return (*first, *_SPACE[len(first) - rank :]) if rank > len(first) else first
    if isinstance(problem, WeightGradient):
        return ("image", "channel" if name == "x" else "output channel", *_SPACE[1:])
    lead = "group" if isinstance(problem, GroupedGemm) else "matrix"
    if name == "bias" and rank == 1:
        return ("column",)
    return (lead, *_MATRIX.get(name, ("row", "column")))[-rank:] if rank > 1 else ("row",) * rank


def needed(problem: Problem, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """For each operand, which of its indices the elements ``stored`` of ``output`` depend on; {} for a family of which
    nothing is known here. An operand of which only a part of the axes is bound to the output needs all of the rest."""
    if not all(bool(index.any()) for index in stored):
        return {}
    if isinstance(problem, Gemm):
        if output == "sums":
            return {"a": (stored[0], _every(problem.K))} if problem.K else {}
        return _of_gemm(problem, inputs, stored)
    if isinstance(problem, GroupedGemm):
        return _of_groups(problem, stored)
    if isinstance(problem, Conv):
        return _of_conv(problem, stored)
    if isinstance(problem, WeightGradient):
        return _of_weight_gradient(problem, output, stored)
    if isinstance(problem, Attention):
        return _of_attention(problem, inputs, output, stored)
    return {}


def _every(extent: int) -> Tensor:
    return torch.ones(extent, dtype=torch.bool)


def _chosen(extent: int, numbers: Tensor) -> Tensor:
    """Returns which of ``extent`` indices are among ``numbers``."""
    result = torch.zeros(extent, dtype=torch.bool)
    result[numbers] = True
    return result


def _divided(index: Tensor, by: int, extent: int) -> Tensor:
    return _chosen(extent, index.nonzero()[:, 0] // by)


def _of_gemm(problem: Gemm, inputs: Mapping[str, Tensor], stored: Indices) -> Needed:
    *lead, rows, columns = stored
    result: Needed = {}
    if problem.has_product:
        of_a = rows
        if "rows" in inputs and problem.fusion is not None and problem.fusion.prologue == "gather":
            of_a = _chosen(problem.operand("a").shape[-2], inputs["rows"].cpu().long()[rows])
            result["rows"] = (rows,)
        if "rows" in inputs and problem.fusion is not None and problem.fusion.prologue == "scatter":
            of_a = rows[inputs["rows"].cpu().long()]
            result["rows"] = (of_a,)
        more = {"mm_plus_mm": (("c", "d"),), "dual_mm": (("a", "d"),)}.get(problem.op, ())
        for left, right in (("a", "b"), *more):
            result[left] = (*lead, of_a, _every(problem.K))
            result[right] = (*lead, _every(problem.K), columns)
        result |= _of_scales(problem, rows, columns)
        if problem.fusion is not None and problem.fusion.prologue == "scale":
            result["row_scale"] = (rows,)
        if problem.fusion is not None and problem.fusion.prologue == "scale-k":
            result["k_scale"] = (_every(problem.K),)
    if problem.reads_bias and problem.bias is not None:
        kind = problem.bias.kind
        own = {"m": rows, "1": _every(1), "n": columns, "b": lead[0] if lead else rows}
        result["bias"] = tuple(own[letter] for letter in kind)
    for step, name in (("residual", "residual"), ("dropout", "mask")):
        if problem.fusion is not None and step in problem.fusion.epilogue:
            result[name] = (rows, columns)
    return result


def _of_scales(problem: Gemm, rows: Tensor, columns: Tensor) -> Needed:
    if problem.scaling is None or problem.scaling == "tensor":
        return {}
    shapes = {name: problem.operand(name).shape for name in ("scale_a", "scale_b")}
    if problem.scaling in BLOCK_SCALINGS:
        kinds = problem.scaling.split("/")
        rows, columns = (
            index if kind == "1x128" else _divided(index, SCALE_BLOCK, extent)
            for index, kind, extent in zip(
                (rows, columns), kinds, (shapes["scale_a"][0], shapes["scale_b"][1]), strict=True
            )
        )
    return {"scale_a": (rows, _every(shapes["scale_a"][1])), "scale_b": (_every(shapes["scale_b"][0]), columns)}


def _of_groups(problem: GroupedGemm, stored: Indices) -> Needed:
    rows, columns = stored[-2:]
    inside = [torch.arange(problem.ends[-1])[None] < end for end in (0, *problem.ends)]
    member = torch.cat([last & ~first for first, last in itertools.pairwise(inside)])  # (groups, along the split axis)
    if problem.ragged == "K":
        k = member[stored[0]].any(0)
        return (
            {"a": (rows, k), "b": (k, columns), **_of_group_scales(problem, stored[0], stored)} if bool(k.any()) else {}
        )
    every = _every(problem.K or 0)
    if not problem.K:
        return {}
    groups = stored[0] if not problem.ragged else (member & (rows if problem.ragged == "M" else columns)).any(1)
    a, b = (rows, every), (every, columns)
    operands = {"a": a if problem.ragged == "M" else (groups, *a), "b": b if problem.ragged == "N" else (groups, *b)}
    return operands | _of_group_scales(problem, groups, stored)


def _of_group_scales(problem: GroupedGemm, groups: Tensor, stored: Indices) -> Needed:
    """The scales of the rows and columns of ``groups``, as the operand has them."""
    if problem.scaling is None:
        return {}
    if problem.scaling == "tensor":
        return {"scale_a": (groups,), "scale_b": (groups,)}
    lines = {"M": stored[-2], "N": stored[-1]}
    pairs = {"scale_a": "M", "scale_b": "N"}.items()
    return {name: (lines[axis],) if problem.ragged == axis else (groups, lines[axis]) for name, axis in pairs}


def _of_conv(problem: Conv, stored: Indices) -> Needed:
    batch, channels, *places = stored
    groups = _divided(channels, problem.out_channels // problem.groups, problem.groups)
    seen, taps = [], []
    for index, size, axis in zip(places, problem.size, problem.correlation.places, strict=True):
        reached = torch.tensor(axis)[index]  # (positions, taps)
        inside = reached >= 0
        seen.append(_chosen(size, reached[inside]))
        taps.append(inside.any(0))
    if not all(bool(index.any()) for index in seen):
        return {}
    inner = groups.repeat_interleave(problem.group_channels)
    if isinstance(problem, TransposedConv):
        of_weights = inner, channels.reshape(problem.groups, -1).any(0)
    else:
        of_weights = channels, _every(problem.group_channels)
    result: Needed = {"x": (batch, inner, *seen), "w": (*of_weights, *taps)}
    return {**result, "bias": (channels,)} if problem.bias else result


def _of_weight_gradient(problem: WeightGradient, output: str, stored: Indices) -> Needed:
    forward, channels = problem.forward, stored[0]
    images = _every(forward.batch)
    if not forward.batch:
        return {}
    if output == "grad_bias":
        return {"grad_out": (images, channels, *map(_every, forward.out_size))}
    seen, positions = [], []
    for index, size, axis in zip(stored[2:], forward.size, forward.correlation.places, strict=True):
        reached = torch.tensor(axis)[:, index]  # (positions, taps)
        inside = reached >= 0
        seen.append(_chosen(size, reached[inside]))
        positions.append(inside.any(1))
    if not all(bool(index.any()) for index in seen):
        return {}
    groups = _divided(channels, forward.out_channels // forward.groups, forward.groups)
    of_x = (groups[:, None] & stored[1]).flatten()
    return {"x": (images, of_x, *seen), "grad_out": (images, channels, *positions)}


def _of_attention(problem: Attention, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    group = problem.heads // problem.key_heads
    visible = attention.visible(problem, inputs)[:, 0].cpu()  # (batch or 1, queries, keys)
    by_key = output in ("grad_k", "grad_v")
    if by_key:
        key_batch, key_heads, keys = stored[:3]
        batch = key_batch.expand(problem.batch) if problem.key_batch < problem.batch else key_batch
        heads = key_heads.repeat_interleave(group)
    else:
        batch, heads, queries = stored[:3]
        key_batch = _every(1) if problem.key_batch < problem.batch else batch
        key_heads = _divided(heads, group, problem.key_heads)
    seen = visible[batch if len(visible) > 1 else slice(None)].any(0)
    if by_key:
        queries = seen[:, keys].any(1)
    else:
        keys = seen[queries].any(0)
    if not bool(keys.any()) or not bool(queries.any()):
        return {}
    d, e = _every(problem.head_dim), _every(problem.values_dim)
    of_queries, of_keys = (batch, heads, queries), (key_batch, key_heads, keys)
    if problem.page:
        pages, rows = attention.key_places(problem, inputs)
        pool, _, page, _ = problem.operand("k").shape
        of_keys = (_chosen(pool, pages[keys].cpu()), key_heads, _chosen(page, rows[keys].cpu()))
    result: Needed = {"q": (*of_queries, d), "k": (*of_keys, d)}
    if problem.score.kind == "alibi":
        result["slopes"] = (heads,)
    if output == "lse":
        return result
    if output != "grad_v":
        result["v"] = (*of_keys, stored[3] if output == "out" else e)
    if problem.backward:
        result |= {"grad_out": (*of_queries, stored[3] if output == "grad_v" else e), "lse": of_queries}
        if output != "grad_v":
            result["out"] = (*of_queries, e)
    return result


def merged(parts: Iterable[Needed]) -> Needed:
    """Returns what any of ``parts`` needs."""
    result: Needed = {}
    for part in parts:
        for name, indices in part.items():
            before = result.get(name, indices)
            result[name] = tuple(first | second for first, second in zip(before, indices, strict=True))
    return result
