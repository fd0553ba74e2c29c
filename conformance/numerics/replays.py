"""Faults that are replayed or read off the output: roundings, lines in another order, one misread element."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.numerics.scene import Hypothesis, Scene, grown
from conformance.problems import DTYPES

#: Formats in which a kernel may hold what should be wider.
NARROW = ("fp16", "bf16")


def about_precision(scene: Scene) -> Iterator[Hypothesis]:
    """Roundings that the contract does not allow, replayed."""
    out = FORMATS[scene.contract.out_dtype]
    yield Hypothesis("the output is rounded towards zero", functools.partial(_towards_zero, scene))
    for name in (*NARROW, "e5m2", "e4m3"):
        if name != scene.contract.out_dtype:
            # infinities are what such a fault makes of large values, so they are evidence
            through = functools.partial(_through, scene, name)
            yield Hypothesis(f"the result passes through {name}", through, special=True)
    for width in range(out.significand + 1, min(out.significand + 13, 24)):
        cause = f"the result is rounded to {width} bits before it is rounded to the output"
        yield Hypothesis(cause, functools.partial(_to_width, scene, width))
    if scene.k:
        for name in ("tf32", *NARROW, "e5m2", "e4m3"):
            yield from _about_operands(scene, name)
        cut = functools.partial(_cut_sum, scene)
        yield scene.from_raw("the accumulator is cut to 13 fraction bits after every k-block", cut)
        for name in NARROW:
            yield from _about_sums(scene, name)


def _value(scene: Scene, rows: Tensor, cols: Tensor) -> Tensor:
    return scene.finish(scene.product(rows, cols), rows, cols)


def _nearest(values: Tensor, name: str) -> Tensor:
    return round_to(values, name).double()


def _cut(values: Tensor, name: str, overflow: str = "ieee") -> Tensor:
    """``values`` rounded towards zero in the format ``name``: one code down where nearest went up."""
    nearest = round_to(values, name, overflow=overflow)
    code = bits(nearest)
    lower = torch.where(nearest.double().abs() > values.abs(), code - (1 << FORMATS[name].spare), code)
    return lower.to(code.dtype).view(nearest.dtype).double()


def _towards_zero(scene: Scene, rows: Tensor, cols: Tensor) -> Tensor:
    return _cut(_value(scene, rows, cols), scene.contract.out_dtype, scene.contract.overflow)


def _through(scene: Scene, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    return _nearest(_value(scene, rows, cols), name)


def _to_width(scene: Scene, width: int, rows: Tensor, cols: Tensor) -> Tensor:
    """The result rounded to nearest even at ``width`` significant bits."""
    fraction, exponent = torch.frexp(_value(scene, rows, cols))
    return torch.ldexp(torch.round(fraction * 2.0**width), exponent - width)


def _about_operands(scene: Scene, name: str) -> Iterator[Hypothesis]:
    """Operands rounded or cut to a narrower format; those that it holds anyway predict nothing new."""
    for how in ("rounded", "cut"):
        for operands in ("AB", "A", "B"):
            which = "A and B are" if operands == "AB" else f"{operands} is"
            raw = functools.partial(_narrow_operands, scene, name, how, operands)
            yield scene.from_raw(f"{which} {how} to {name}", raw)


def _narrow_operands(scene: Scene, name: str, how: str, operands: str, rows: Tensor, cols: Tensor) -> Tensor:
    convert = _nearest if how == "rounded" else _cut
    a, b = scene.a[rows], scene.b[:, cols]
    return (convert(a, name) if "A" in operands else a) @ (convert(b, name) if "B" in operands else b)


def _about_sums(scene: Scene, name: str) -> Iterator[Hypothesis]:
    """Sums kept in, or passed through, the format ``name``."""
    if scene.problem.op != "mm":
        whole = functools.partial(_split_sum, scene, name, scene.k, False)
        yield scene.from_raw(f"the product is rounded to {name} before the epilogue", whole)
        before = functools.partial(_before_bias, scene, name)
        yield Hypothesis(f"the product is rounded to {name} before the bias", before)
    size = scene.block_k
    for step, dot, when in (
        (1, False, "k"),
        (16, False, "16 k"),
        (size, False, "k-block"),
        (size, True, "dot and k-block"),
    ):
        cause = f"the accumulator is rounded to {name} after every {when}"
        yield scene.from_raw(cause, functools.partial(_narrow_sum, scene, name, step, dot))
    for t in range(scene.k_blocks - 1):
        k = (t + 1) * size
        first, both = (functools.partial(_split_sum, scene, name, k, rest) for rest in (False, True))
        yield scene.from_raw(f"the sum of k-blocks 0..{t} is rounded to {name}", first)
        yield scene.from_raw(f"the sums of k-blocks 0..{t} and of the rest are each rounded to {name}", both)


def _narrow_sum(scene: Scene, name: str, step: int, dot: bool, rows: Tensor, cols: Tensor) -> Tensor:
    """The product with the running sum, and with ``dot`` each partial product too, rounded every ``step`` k."""
    a, b = scene.a[rows], scene.b[:, cols]
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for k in range(0, scene.k, step):
        part = a[:, k : k + step] @ b[k : k + step]
        total = _nearest(total + (_nearest(part, name) if dot else part), name)
    return total


def _split_sum(scene: Scene, name: str, k: int, rest: bool, rows: Tensor, cols: Tensor) -> Tensor:
    """The sum of the first ``k`` products rounded, plus that of the others, rounded too if ``rest``."""
    a, b = scene.a[rows], scene.b[:, cols]
    second = a[:, k:] @ b[k:]
    return _nearest(a[:, :k] @ b[:k], name) + (_nearest(second, name) if rest else second)


def _cut_sum(scene: Scene, rows: Tensor, cols: Tensor) -> Tensor:
    """The product with the running sum cut to 13 fraction bits, as Hopper's fp8 unit keeps it, after every k-block."""
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for t in range(scene.k_blocks):
        fraction, exponent = torch.frexp(total + scene.part(rows, cols, t, t))
        total = torch.ldexp(torch.trunc(fraction * 2.0**14), exponent - 14)
    return total


def _before_bias(scene: Scene, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    whole = _value(scene, rows, cols)
    product = scene.finish(scene.product(rows, cols), rows, cols, beta=0.0)
    return _nearest(product, name) + (whole - product)


def about_order(scene: Scene, found: Tensor, rows: Tensor, cols: Tensor) -> Iterator[Hypothesis]:
    """Rows or columns of this tile that hold the products of others, found by looking each up among all."""
    for axis, lines, count in (("row", rows, scene.m), ("column", cols, scene.n)):
        across = cols if axis == "row" else rows
        if len(across) < 8:
            continue  # too few elements per line: several lines would fit by chance
        held: dict[int, set[int]] = {}
        for line in lines.tolist():
            like = _lines_like(scene, found, axis, line, across)
            if not like:
                break  # a line that is none of the others: not a matter of order
            held[line] = like
        else:
            moved = {line: like for line, like in held.items() if line not in like}
            yield from _orders(scene, axis, count, held, moved)


def _orders(
    scene: Scene, axis: str, count: int, held: dict[int, set[int]], moved: dict[int, set[int]]
) -> Iterator[Hypothesis]:
    if not moved:
        return
    flips = set.intersection(*({line ^ like for like in likes} for line, likes in held.items()))
    for flip in sorted(flips):
        source = (torch.arange(count) ^ flip).clamp(max=count)  # past the last one lie masked zeros
        text = f"{axis}s are exchanged: {axis} i holds the products of {axis} i ^ {flip}"
        yield scene.from_raw(text, functools.partial(_reordered, scene, axis, source))
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
    yield scene.from_raw(text, functools.partial(_reordered, scene, axis, source))


def _reordered(scene: Scene, axis: str, source: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    raw = grown(scene.raw, scene.m + 1, scene.n + 1)
    return raw[source[rows]][:, cols] if axis == "row" else raw[rows][:, source[cols]]


def _lines_like(scene: Scene, found: Tensor, axis: str, line: int, across: Tensor) -> set[int]:
    """Rows (columns) whose products, with the epilogue of row ``line``, are what row ``line`` holds; ``count`` stands
    for a row of zeros. Eight elements select the candidates, all of them decide."""
    chosen: Tensor | None = None
    for part in (across[:8], across):
        here = torch.tensor([line])
        if axis == "row":
            raw = grown(scene.raw[:, part], scene.m + 1, 0)
            index = torch.arange(scene.m + 1) if chosen is None else chosen
            predicted = scene.round(scene.finish(raw[index], here.expand(len(index)), part))
            same = (predicted == found[line, part]).all(1)
        else:
            raw = grown(scene.raw[part], 0, scene.n + 1)
            index = torch.arange(scene.n + 1) if chosen is None else chosen
            predicted = scene.round(scene.finish(raw[:, index], part, here.expand(len(index))))
            same = (predicted == found[part, line][:, None]).all(0)
        chosen = index[same]
    assert chosen is not None
    return set(chosen.tolist())


def about_one_element(scene: Scene, found: Tensor, bad: Tensor) -> Iterator[Hypothesis]:
    """All wrong elements lie in one row (column): one misread element of A (B), of which the residual is a multiple."""
    rows, cols = bad.any(1).nonzero()[:, 0], bad.any(0).nonzero()[:, 0]
    if not scene.k or scene.problem.alpha == 0:
        return
    if len(rows) == 1:
        yield from _misread(scene, found, "A", int(rows[0]), cols)
    if len(cols) == 1:
        yield from _misread(scene, found, "B", int(cols[0]), rows)


def _misread(scene: Scene, found: Tensor, name: str, line: int, across: Tensor) -> Iterator[Hypothesis]:
    """For each k the values of A[line, k] (B[k, line]) with which every output of that row (column) could round to
    what was found: an interval per output, all of which must meet."""
    form = FORMATS[scene.contract.out_dtype]
    operand = scene.problem.operand(name.lower())
    rows, cols = torch.arange(scene.m), torch.arange(scene.n)
    lines = (torch.tensor([line]), cols) if name == "A" else (rows, torch.tensor([line]))
    factor = (scene.alpha * scene.scale_a[lines[0]][:, None] * scene.scale_b[lines[1]][None, :]).flatten()
    right = scene.finish(scene.product(*lines), *lines).flatten()
    held_out = found[lines[0]][:, lines[1]].flatten()
    unit = torch.exp2((torch.frexp(held_out)[1] - 1).clamp(min=form.emin).double() - (form.significand - 1))
    partner = (scene.b if name == "A" else scene.a.T) * factor  # (K, outputs)
    ends = torch.stack([(held_out - right + sign * unit) / partner for sign in (-1, 1)])
    reached = partner != 0
    low = torch.where(reached, ends.amin(0), -torch.inf).amax(1)
    high = torch.where(reached, ends.amax(0), torch.inf).amin(1)
    possible = (low <= high) & reached[:, across].all(1)
    for k in possible.nonzero()[:, 0].tolist():
        held = scene.a[line, k] if name == "A" else scene.b[k, line]
        near = bits(round_to((held + (low[k] + high[k]) / 2).reshape(1), operand.dtype))
        for neighbour in (0, -1, 1):
            read = float((near + neighbour).view(DTYPES[operand.dtype]).double())
            if low[k] <= read - held <= high[k]:
                where = f"A[{line},{k}]" if name == "A" else f"B[{k},{line}]"
                cause = f"{where} is {float(held):.9g} and was read as {read:.9g}"
                yield scene.from_raw(cause, functools.partial(_one_changed, scene, name, line, k, read - float(held)))


def _one_changed(scene: Scene, name: str, line: int, k: int, step: float, rows: Tensor, cols: Tensor) -> Tensor:
    row = (rows == line).double() * step if name == "A" else scene.a[rows, k]
    col = scene.b[k, cols] if name == "A" else (cols == line).double() * step
    return scene.product(rows, cols) + row[:, None] * col[None, :]
