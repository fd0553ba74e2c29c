"""Flex attention, forward and backward: the functions that are compiled, and the lists of blocks that they take."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import flex_attention as flex

from conformance.families.attention.problem import Attention
from conformance.inductor.compile.program import dense
from conformance.kernels.block_mask import BlockLists, block_lists
from conformance.problems import Operand, Problem

#: Edge of the blocks of queries and keys in the lists; flex attention's own.
BLOCK = 128

#: What a list holds, in the order of ``BlockLists``, and the two directions in which blocks are listed.
FIELDS = tuple(field.name for field in dataclasses.fields(BlockLists))
DIRECTIONS = ("keys", "queries")


@functools.singledispatch
def list_operands(problem: Problem) -> tuple[Operand, ...]:
    """Returns the operands that a graph takes after those of ``problem``: none, unless a class registers its own."""
    return ()


@list_operands.register
def _(problem: Attention) -> tuple[Operand, ...]:
    """The operands behind those of ``problem``: the lists of blocks, for each block of queries those of keys, and the
    other way round. Counts are (batches, 1, entries), indices (batches, 1, entries, blocks); all int32."""
    values = _lists(problem, {"q": torch.empty(0, device="meta")})
    return tuple(dense(name, *value.shape, dtype="int32") for name, value in values.items())


@functools.singledispatch
def lists_of(problem: Problem, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Returns the values of :func:`list_operands` for the ``tensors`` of the problem's own operands."""
    return []


@lists_of.register
def _(problem: Attention, tensors: Sequence[Tensor]) -> list[Tensor]:
    named = {operand.name: tensor for operand, tensor in zip(problem.operands, tensors, strict=False)}
    return list(_lists(problem, named).values())


def _lists(problem: Attention, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    blocked = dataclasses.replace(problem, block=problem.block or BLOCK)
    values = {}
    for direction in DIRECTIONS:
        lists = block_lists(blocked, tensors, transposed=direction == "queries")
        for name in FIELDS:
            values[f"{name}_of_{direction}"] = getattr(lists, name).unsqueeze(1)
    if problem.key_batch == problem.batch:
        return values
    # where batches share k and v, flex attention asks for the lists of each
    return {name: value.expand(problem.batch, *value.shape[1:]).contiguous() for name, value in values.items()}


def graph_of(problem: Attention) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """The graph that computes ``problem`` from its operands and then its lists, and its keyword arguments."""
    names = tuple(operand.name for operand in (*problem.operands, *list_operands(problem)))
    arguments = (
        ("names", names),
        ("mask", (problem.mask.kind, problem.mask.size)),
        ("score", (problem.score.kind, problem.score.cap)),
        ("scale", problem.softmax_scale),
        ("block", problem.block or BLOCK),
    )
    return f"{__name__}:{problem.op}", arguments


def attention(
    *tensors: Tensor,
    names: tuple[str, ...],
    mask: tuple[str, int],
    score: tuple[str, float],
    scale: float,
    block: int,
    options: tuple[tuple[str, Any], ...] = (),
) -> tuple[Tensor, Tensor]:
    """Returns the output and the natural logarithm of the softmax's denominator. ``options`` are flex
    attention's own."""
    named = dict(zip(names, tensors, strict=True))
    q, k, v = (named[name] for name in "qkv")
    listed = _block_mask(named, mask, block)
    modified = _score(named, score)
    shared = q.shape[1] != k.shape[1]
    own: Any = dict(options)
    if hasattr(flex, "AuxRequest"):
        request: Any = flex.AuxRequest(lse=True)
        result: Any = flex.flex_attention(
            q, k, v, modified, listed, scale, shared, kernel_options=own, return_aux=request
        )
        return result[0], result[1].lse
    # where there is a request, this warns once, and torch compiles the function again because it has warned
    out, lse = flex.flex_attention(q, k, v, modified, listed, scale, shared, return_lse=True, kernel_options=own)
    return out, lse


def attention_backward(
    *tensors: Tensor,
    names: tuple[str, ...],
    mask: tuple[str, int],
    score: tuple[str, float],
    scale: float,
    block: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of q, k and v. The operator is called as torch's autograd calls it, which needs a device:
    its logarithms are in base 2."""
    named = dict(zip(names, tensors, strict=True))
    q, k, v, out, lse, upstream = (named[name] for name in ("q", "k", "v", "out", "lse", "grad_out"))
    listed = _block_mask(named, mask, block).as_tuple()
    modified = _score(named, score)
    gradients = torch.ops.higher_order.flex_attention_backward(
        q, k, v, out, lse / math.log(2), upstream, None, modified, None, listed, scale, {}, (), ()
    )
    return gradients[0], gradients[1], gradients[2]


def gradients_without_autograd() -> bool:
    """True if the installed torch compiles :func:`attention_backward`: it must differentiate the scores' modification
    by itself where the operator is called."""
    variables = importlib.import_module("torch._dynamo.variables.higher_order_ops")
    return hasattr(getattr(variables, "FlexAttentionBackwardHighOrderVariable", None), "_derive_joint_graph")


def _block_mask(named: Mapping[str, Tensor], mask: tuple[str, int], block: int) -> Any:
    lists: list[Any] = [named[f"{name}_of_{direction}"] for direction in DIRECTIONS for name in FIELDS]
    lengths = named["q"].shape[2], named["k"].shape[2]
    make: Any = flex.BlockMask
    return make(lengths, *lists, BLOCK_SIZE=(block, block), mask_mod=_mask(named, mask))


def _mask(named: Mapping[str, Tensor], mask: tuple[str, int]) -> Callable[..., Tensor]:
    """True if query ``i`` sees key ``j``; see ``conformance.families.attention.problem.Mask``."""
    kind, size = mask
    later = named["k"].shape[2] - named["q"].shape[2]
    if kind == "document":
        of_query, of_key = named["query_document"], named["key_document"]
        return lambda b, h, i, j: of_query[b, i] == of_key[b, j]
    if kind == "causal":
        return lambda b, h, i, j: j <= i + later
    if kind == "sliding-window":
        return lambda b, h, i, j: (j <= i + later) & (j > i + later - size)
    return lambda b, h, i, j: j >= 0


def _score(named: Mapping[str, Tensor], score: tuple[str, float]) -> Callable[..., Tensor]:
    """Returns the modification of a score; see ``conformance.families.attention.problem.Score``."""
    kind, cap = score
    later = named["k"].shape[2] - named["q"].shape[2]
    if kind == "soft-cap":
        return lambda s, b, h, i, j: cap * torch.tanh(s / cap)
    if kind == "alibi":
        slopes = named["slopes"]
        return lambda s, b, h, i, j: s + slopes[h] * (j - i - later)
    return lambda s, b, h, i, j: s
