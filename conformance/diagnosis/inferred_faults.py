"""Hypotheses that are read off the output: rows or columns in another order, one misread element."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.diagnosis.fault_model import FaultModel, Hypothesis, grown, poison_values
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES

#: What is said of a value that the harness itself put around operands, or where nothing was loaded.
POISONED = " (the harness's poison)"


def about_order(model: FaultModel, rows: Tensor, cols: Tensor) -> Iterator[Hypothesis]:
    """Rows or columns of this tile that hold the products of others, found by looking each up among all."""
    for axis, lines, count in (("row", rows, model.m), ("column", cols, model.n)):
        across = cols if axis == "row" else rows
        if len(across) < 8:
            continue  # too few elements per line: several lines would fit by chance
        held: dict[int, set[int]] = {}
        for line in lines.tolist():
            like = _lines_like(model, axis, line, across)
            if not like:
                break  # a line that is none of the others: not a matter of order
            held[line] = like
        else:
            moved = {line: like for line, like in held.items() if line not in like}
            yield from _orders(model, axis, count, held, moved)


def _orders(
    model: FaultModel, axis: str, count: int, held: dict[int, set[int]], moved: dict[int, set[int]]
) -> Iterator[Hypothesis]:
    if not moved:
        return
    flips = set.intersection(*({line ^ like for like in likes} for line, likes in held.items()))
    for flip in sorted(flips):
        source = (torch.arange(count) ^ flip).clamp(max=count)  # past the last one lie masked zeros
        text = f"{axis}s are exchanged: {axis} i holds the products of {axis} i ^ {flip}"
        yield model.from_raw(text, functools.partial(_reordered, model, axis, source))
    shifts = set.intersection(*({like - line for like in likes} for line, likes in moved.items()))
    first, last = min(moved), max(moved)
    picked = {line: line + min(shifts) if shifts else min(likes) for line, likes in moved.items()}
    if all(pick == count for pick in picked.values()):
        text = f"{axis}s {first}..{last}, {len(moved)} of them, hold a product of zero, as masked {axis}s do"
    elif shifts and last - first == len(moved) - 1:
        text = f"{axis}s {first}..{last} hold the products of {axis}s {picked[first]}..{picked[last]}"
    else:
        text = f"{axis}s are permuted: " + ", ".join(f"{line} holds {picked[line]}" for line in sorted(moved)[:4])
        text += "" if len(moved) <= 4 else f" and {len(moved) - 4} more"
    source = torch.arange(count)
    source[list(picked)] = torch.tensor(list(picked.values()))
    yield model.from_raw(text, functools.partial(_reordered, model, axis, source))


def _reordered(model: FaultModel, axis: str, source: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    raw = grown(model.raw, model.m + 1, model.n + 1)
    return raw[source[rows]][:, cols] if axis == "row" else raw[rows][:, source[cols]]


def _lines_like(model: FaultModel, axis: str, line: int, across: Tensor) -> set[int]:
    """Rows (columns) whose products, with the epilogue of row ``line``, are what row ``line`` holds; ``count`` stands
    for a row of zeros. Eight elements select the candidates, all of them decide."""
    raw, output = (model.raw, model.output) if axis == "row" else (model.raw.T, model.output.T)
    chosen = torch.arange(len(raw) + 1)
    for part in (across[:8], across):
        products, here = grown(raw[:, part], len(raw) + 1, 0)[chosen], torch.full_like(chosen, line)
        value = model.finish(products, here, part) if axis == "row" else model.finish(products.T, part, here).T
        chosen = chosen[(model.round(value) == output[line, part]).all(1)]
    return set(chosen.tolist())


def about_one_element(model: FaultModel, bad: Tensor) -> Iterator[Hypothesis]:
    """All wrong elements lie in one row (column): one misread element of A (B), of which the residual is a multiple."""
    rows, cols = bad.any(1).nonzero()[:, 0], bad.any(0).nonzero()[:, 0]
    if not model.k or not model.plain or model.problem.fusion is not None:
        return
    if len(rows) == 1:
        yield from _misread(model, "A", int(rows[0]), cols)
    if len(cols) == 1:
        yield from _misread(model, "B", int(cols[0]), rows)


def _misread(model: FaultModel, name: str, line: int, across: Tensor) -> Iterator[Hypothesis]:
    """Yields for each k the values of A[line, k] (B[k, line]) with which every output of that row (column) could round
    to the actual one. Each output gives an interval, and all of them must meet."""
    form = FORMATS[model.contract.out_dtype]
    operand = model.problem.operand(name.lower())
    rows, cols = torch.arange(model.m), torch.arange(model.n)
    lines = (torch.tensor([line]), cols) if name == "A" else (rows, torch.tensor([line]))
    factor = (model.alpha * model.scale_a[lines[0]][:, None] * model.scale_b[lines[1]][None, :]).flatten()
    right = model.finish(model.product(*lines), *lines).flatten()
    held_out = model.output[lines[0]][:, lines[1]].flatten()
    unit = torch.exp2((torch.frexp(held_out)[1] - 1).clamp(min=form.emin).double() - (form.significand - 1))
    partner = (model.b if name == "A" else model.a.T) * factor  # (K, outputs)
    ends = torch.stack([(held_out - right + sign * unit) / partner for sign in (-1, 1)])
    reached = partner != 0
    low = torch.where(reached, ends.amin(0), -torch.inf).amax(1)
    high = torch.where(reached, ends.amax(0), torch.inf).amin(1)
    possible = (low <= high) & reached[:, across].all(1)
    for k in possible.nonzero()[:, 0].tolist():
        held = model.a[line, k] if name == "A" else model.b[k, line]
        near = bits(round_to((held + (low[k] + high[k]) / 2).reshape(1), operand.dtype))
        for neighbour in (0, -1, 1):
            read = float((near + neighbour).view(DTYPES[operand.dtype]).double())
            if low[k] <= read - held <= high[k]:
                where = f"A[{line},{k}]" if name == "A" else f"B[{k},{line}]"
                poison = POISONED if read in poison_values(operand.dtype) else ""
                cause = f"{where} is {float(held):.9g} and was read as {read:.9g}{poison}"
                yield model.from_raw(cause, functools.partial(_one_changed, model, name, line, k, read - float(held)))


def _one_changed(model: FaultModel, name: str, line: int, k: int, step: float, rows: Tensor, cols: Tensor) -> Tensor:
    row = (rows == line).double() * step if name == "A" else model.a[rows, k]
    col = model.b[k, cols] if name == "A" else (cols == line).double() * step
    return model.product(rows, cols) + row[:, None] * col[None, :]
