"""Explains other bits than the tensor core makes in an output within the bound: sums in another order, as far as
proven."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from conformance.families.family import family_of
from conformance.families.unit_verdict import UnitModel, comparable, differing, rounded_results, unit_results
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import bits
from conformance.numerics.sum_order import SumOrder

#: With fewer elements that differ, another order than the right one may fit by chance.
ENOUGH = 8
#: Parts into which K may be split, and k after which a sum may be promoted (None: never).
PARTS = (2, 3, 4, 8)
PARTIALS = (None, 32, 64, 128, 256)
#: Multiply-adds of a problem above which no order is tried.
MOST_PRODUCTS = 1 << 30


def explain_bits(model: UnitModel, fill: Fill, out: Tensor, block_k: int) -> str:
    """Returns an explanation of ``out`` of ``fill``, whose bits are not those of ``model``.

    A cause is named if its order of k gives every bit of ``out``; several are if they all do. ``block_k``: how many k
    the kernel loads at once. Orders are tried for products of two matrices with the scales and the addends of mm, addmm
    and scaled mm.
    """
    allowed = model.allowed(fill)
    assert allowed is not None
    count = int(differing(allowed.cpu(), out).sum())
    head = f"{fill.method}/{fill.name} seed {fill.seed}: within the bound, other bits in {count}/{out.numel()} elements"
    if count < ENOUGH or not _can_explain(model):
        return head
    inputs = {name: model.move(values) for name, values in fill.inputs.items()}
    moved, causes = model.move(out), []
    for cause, order, index in _orders(model.order, fill.inputs["a"].shape[1], block_k):
        values = unit_results(model.problem.dense, order, model.unit.unit, _reordered(inputs, index))
        predicted = comparable(rounded_results(values, model.contract.out_dtype, model.contract.overflow))
        if not bool(differing(predicted, moved).any()):
            causes.append(cause)
    return f"{head} | CAUSE {', or '.join(causes)}" if causes else f"{head} | no order of k that was tried gives these"


def _can_explain(model: UnitModel) -> bool:
    problem: Any = model.problem
    return family_of(problem).is_plain(problem) and problem.M * problem.N * problem.K <= MOST_PRODUCTS


def _orders(order: SumOrder, depth: int, block: int) -> Iterator[tuple[str, SumOrder, Tensor]]:
    """Yields wrong orders: the cause, the order, and the sequence of k in which it sums. A k from ``depth`` on is a
    product of zero."""
    blocks = -(-depth // block)
    inside = torch.arange(block)
    every = torch.arange(blocks * block)
    if order.splits > 1:
        yield "K is not split, but summed as one", replace(order, splits=1), every
    for partial in PARTIALS:
        if partial != order.partial:
            now, promised = (f"after {n} k" if n else "never" for n in (partial, order.partial))
            yield (
                f"the unit's sum is added to an fp32 sum {now}, not {promised}",
                replace(order, partial=partial),
                every,
            )
    order = replace(order, splits=1)
    backwards = torch.arange(blocks - 1, -1, -1)
    yield "k is summed from the last block to the first", order, _blocks(backwards, inside)
    yield "k is summed from the last to the first", order, every.flip(0)
    halves = torch.cat([inside[block // 2 :], inside[: block // 2]])
    yield "the halves of each block of k are exchanged", order, _blocks(torch.arange(blocks), halves)
    if order.partial is None:
        for parts in PARTS:
            length = -(-blocks // parts)
            split = replace(order, splits=parts)
            whole = torch.arange(parts * length)
            yield f"K is split into {parts} parts of whole blocks, whose sums are added", split, _blocks(whole, inside)
            turns = whole.reshape(length, parts).t().flatten()
            yield (
                f"the blocks of k go to {parts} sums in turn, which are added",
                split,
                _blocks(turns, inside),
            )
        apart = replace(order, partial=block)
        yield "each block of k is summed by itself, and the sums are added", apart, every


def _blocks(blocks: Tensor, inside: Tensor) -> Tensor:
    """Returns the k of ``blocks`` in their order, those ``inside`` a block in theirs."""
    return (blocks[:, None] * len(inside) + inside).flatten()


def _reordered(inputs: dict[str, Tensor], index: Tensor) -> dict[str, Tensor]:
    """``inputs`` with the k of A and B in the order of ``index``."""
    a, b = inputs["a"], inputs["b"]
    index, missing = index.to(a.device), max(0, int(index.max()) + 1 - a.shape[1])
    # as bits, because not every release joins and indexes narrow formats; the bits of zero are 0
    rows, columns = bits(a), bits(b)
    rows = torch.cat([rows, rows.new_zeros(rows.shape[0], missing)], 1)[:, index]
    columns = torch.cat([columns, columns.new_zeros(missing, columns.shape[1])], 0)[index]
    return {**inputs, "a": rows.view(a.dtype), "b": columns.view(b.dtype)}
