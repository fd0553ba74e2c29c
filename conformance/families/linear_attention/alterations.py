"""Faults of linear attention, in masks, decays, states and roundings; then those of every family."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.linear_attention.problem import LinearAttention
from conformance.families.linear_attention.reference import STEP
from conformance.families.usual_faults import usual_faults
from conformance.numerics.alterations import LIKE_THE_RIGHT_ONE, Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import round_to
from conformance.problems import check_inputs

Inputs = Mapping[str, Tensor]
Change = Callable[[Tensor], Tensor]


def _same(values: Tensor) -> Tensor:
    return values


@dataclass(frozen=True)
class Walk:
    """A loop over blocks of ``block`` positions. ``seen`` masks the scores of a block. ``scores`` and ``states`` are
    what becomes of both as operands, ``carried`` and ``sums`` of the state before and after products are added to it.
    The state decays ``before`` it is used or after; in ``every`` block or in the first one of each chunk. ``adds`` is
    False if a block replaces the state."""

    block: int
    seen: Change = torch.tril
    scores: Change = _same
    states: Change = _same
    carried: Change = _same
    sums: Change = _same
    before: bool = True
    every: bool = False
    adds: bool = True


def walked(walk: Walk, problem: LinearAttention, inputs: Inputs) -> Outputs:
    """Returns both outputs of a faulty ``walk``. Raises KeyError or ValueError for inputs that are missing or that have
    another shape."""
    check_inputs(problem, inputs)
    q, k, v, decay, state = (inputs[operand.name].double() for operand in problem.operands)
    outs = [torch.zeros_like(v[:, :, :0])]
    for start in range(0, problem.length, walk.block):
        here, chunk = slice(start, start + walk.block), start // problem.chunk
        decayed = state
        if walk.every or start % problem.chunk == 0:
            decayed = decay[:, :, chunk, None, None] * state
        scores = walk.scores(walk.seen(q[:, :, here] @ k[:, :, here].mT))
        outs.append(q[:, :, here] @ walk.states(decayed if walk.before else state) + scores @ v[:, :, here])
        state = walk.sums((walk.carried(decayed) if walk.adds else 0.0) + k[:, :, here].mT @ v[:, :, here])
    return {"out": (torch.cat(outs, 2), LIKE_THE_RIGHT_ONE), "state": (state, LIKE_THE_RIGHT_ONE)}


def alterations(problem: LinearAttention, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; blocks of all sizes that divide a chunk stand for those of the kernel."""
    sizes = [size for size in (STEP, 2 * STEP, 4 * STEP, problem.chunk) if problem.chunk % size == 0]
    for block in dict.fromkeys(sizes):
        of = f"(blocks of {block} positions)"
        walk = functools.partial(Walk, block)
        faults = {
            f"scores of later positions are not masked {of}": walk(seen=_same),
            f"scores of earlier positions are masked, not of later ones {of}": walk(seen=torch.triu),
            f"a position does not see itself {of}": walk(seen=functools.partial(torch.tril, diagonal=-1)),
            f"the scores are left out {of}": walk(scores=torch.zeros_like),
            f"the state is left out of the result {of}": walk(states=torch.zeros_like),
            f"the state decays after it is used {of}": walk(before=False),
            f"the state decays in every block {of}": walk(every=True),
            f"the state of earlier blocks is lost {of}": walk(adds=False),
        }
        for form in ("bf16", "fp16", "e5m2", "e4m3"):
            narrow = functools.partial(_rounded, form)
            faults[f"the scores are rounded to {form} {of}"] = walk(scores=narrow)
            faults[f"the state is rounded to {form} before it is used {of}"] = walk(states=narrow)
            faults[f"the state is rounded to {form} before products are added {of}"] = walk(carried=narrow)
            faults[f"the state is kept in {form} {of}"] = walk(sums=narrow)
        for cause, fault in faults.items():
            yield Alteration(cause, functools.partial(walked, fault, problem))
    yield from usual_faults(problem, tiling, evaluate=functools.partial(walked, Walk(problem.chunk)))


def _rounded(form: str, values: Tensor) -> Tensor:
    return round_to(values, form).double()
