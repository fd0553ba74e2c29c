"""Hypotheses about what went wrong, as predictions: each says which output the fault would have given.

They are meant for exact fills, where every prediction is computed without rounding in fp64 and then compared with the
output by equality. Rows and columns are index vectors; a tile is (BLOCK_M, BLOCK_N), a k-block BLOCK_K consecutive k.

Some are read off the output: rows or columns in another order, one misread element.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from conformance.diagnosis import rounding_faults
from conformance.diagnosis.fault_model import FaultModel, Hypothesis, Image, Predict, grown, poison_values
from conformance.diagnosis.wrapped_numbers import WIDTHS, overflow_words, wrapped
from conformance.families.gemm.alterations import other_factors
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES

#: Predicted value for reads outside the operands; no exact fill produces it throughout.
NOWHERE = 0.1


def about_tile(model: FaultModel, i: int, j: int) -> Iterator[Hypothesis]:
    """Yields every hypothesis that could explain tile (i, j), the plainest first."""
    yield from about_epilogue(model)
    if model.k:
        yield from about_all_k(model)
        yield from about_k_blocks(model)
        yield from about_overflow(model)
        yield from about_memory(model)
        yield from about_other_tiles(model, i, j)
    yield from rounding_faults.about_precision(model)


def about_epilogue(model: FaultModel) -> Iterator[Hypothesis]:
    """Scales, factors and bias: absent, doubled, exchanged, indexed wrongly."""
    problem, changed = model.problem, model.with_epilogue
    if model.k:
        cause = "the product is absent: no k was summed, or an operand was read as zeros"
        yield model.from_raw(cause, functools.partial(_constant, 0.0))
    elif problem.K and problem.alpha == 0:
        cause = "the product contributes although alpha is 0 (0 * NaN is NaN)"
        yield Hypothesis(cause, functools.partial(_constant, torch.nan), special=True)
    if model.k:
        for cause, alpha, beta in other_factors(model.alpha, model.beta):
            if beta != model.beta and not problem.reads_bias:
                continue
            yield changed(cause, alpha=functools.partial(_factor, alpha), beta=functools.partial(_factor, beta))
    if model.scaled:
        yield changed(
            "no scale is applied", scale_a=lambda r, c: torch.ones(len(r)), scale_b=lambda r, c: torch.ones(len(c))
        )
        yield from _about_scale(model, "scale_a", model.scale_a, model.block_m)
        yield from _about_scale(model, "scale_b", model.scale_b, model.block_n)
    if problem.scaling == "row" and model.k:
        first_a, first_b = model.scale_a[:1], model.scale_b[:1]
        yield changed(
            "the first scale_a and the first scale_b are used for all",
            scale_a=lambda r, c: first_a.expand(len(r)),
            scale_b=lambda r, c: first_b.expand(len(c)),
        )
    if problem.scaling == "row" and {"scale_a", "scale_b"} <= model.images.keys():
        for a, b in zip(model.images["scale_a"], model.images["scale_b"], strict=True):
            yield changed("scale_a and scale_b are exchanged", scale_a=_along(b, 0), scale_b=_along(a, 1))
    if model.bias is not None:
        yield from _about_bias(model, model.bias)


def _factor(value: float, rows: Tensor, cols: Tensor) -> float:
    return value


def _constant(value: float, rows: Tensor, cols: Tensor) -> Tensor:
    return torch.full((len(rows), len(cols)), value, dtype=torch.float64)


def _along(image: Image, axis: int) -> Predict:
    """Returns a prediction that reads ``image`` at the numbers of the rows (0) or of the columns (1)."""
    return lambda rows, cols: image.read((rows, cols)[axis])


def _about_scale(model: FaultModel, name: str, scale: Tensor, block: int) -> Iterator[Hypothesis]:
    last = len(scale) - 1

    def changed(what: str, pick: Callable[[Tensor], Tensor]) -> Hypothesis:
        def make(rows: Tensor, cols: Tensor) -> Tensor:
            return pick(rows if name == "scale_a" else cols).double()

        return model.with_epilogue(what, **{name: make})

    yield changed(f"{name} is not applied", lambda i: torch.ones(len(i)))
    yield changed(f"{name} is applied twice", lambda i: scale[i] ** 2)
    if model.problem.scaling == "row":
        yield changed(f"{name}: the first one is used for all", lambda i: scale[0].expand(len(i)))
        yield changed(f"{name} is indexed within the tile", lambda i: scale[i % block])
        yield changed(f"the last {name} is read as 0", lambda i: torch.where(i == last, 0.0, scale[i]))
        yield changed(f"the last {name} is read as 1", lambda i: torch.where(i == last, 1.0, scale[i]))


def _about_bias(model: FaultModel, bias: Tensor) -> Iterator[Hypothesis]:
    problem, changed = model.problem, model.with_epilogue
    kind = problem.bias.kind if problem.bias is not None else ""

    def at(r: Tensor, c: Tensor) -> Tensor:
        return bias[r][:, c]

    if not problem.reads_bias:
        read = changed("the bias contributes although beta is 0 (0 * NaN is NaN)", bias=at)
        yield replace(read, special=True)
        return
    yield changed("the bias is absent", beta=lambda r, c: 0.0)
    yield changed("the bias is added twice", beta=lambda r, c: 2 * model.beta)
    if model.scaled:
        a, b = model.scale_a[:, None], model.scale_b[None, :]
        yield changed("the bias is scaled by scale_a and scale_b", bias=lambda r, c: at(r, c) * a[r] * b[:, c])
        yield changed("the bias is scaled by scale_a", bias=lambda r, c: at(r, c) * a[r])
        yield changed("the bias is scaled by scale_b", bias=lambda r, c: at(r, c) * b[:, c])
    m, n = model.block_m, model.block_n
    if kind in ("m1", "mn"):
        inside = torch.arange(model.m)[:, None] < model.m - 1
        yield changed("the bias is indexed within the tile (rows)", bias=lambda r, c: at(r % m, c))
        yield changed("the bias of the first row is used for all", bias=lambda r, c: at(0 * r, c))
        yield changed("the last row of the bias is read as 0", bias=lambda r, c: at(r, c) * inside[r])
    if kind in ("n", "1n", "mn"):
        within = torch.arange(model.n)[None, :] < model.n - 1
        yield changed("the bias is indexed within the tile (columns)", bias=lambda r, c: at(r, c % n))
        yield changed("the bias of the first column is used for all", bias=lambda r, c: at(r, 0 * c))
        yield changed("the last element of the bias is read as 0", bias=lambda r, c: at(r, c) * within[:, c])
    for image in model.images.get("bias", ()):
        yield _bias_turned(model, image, kind)


def _bias_turned(model: FaultModel, image: Image, kind: str) -> Hypothesis:
    strides = model.problem.operand("bias").strides
    if kind == "mn":
        turned = strides[::-1]
        return model.with_epilogue("the bias is read transposed", bias=lambda r, c: image.matrix(r, c, turned))
    turned = (0, strides[0]) if kind == "m1" else (strides[-1], 0)
    cause = "the bias is read along the other dimension"
    return model.with_epilogue(cause, bias=lambda r, c: image.matrix(r, c, turned))


def about_all_k(model: FaultModel) -> Iterator[Hypothesis]:
    """Faults of every step of the K loop alike."""
    count = model.k_blocks
    ends = {"first": [first for first, last in model.segments if last > first],
            "last": [last - 1 for first, last in model.segments if last > first]}  # fmt: skip
    each = f" of every {model.segment}" if len(model.segments) > 1 else ""
    for which, ks in ends.items():
        single = functools.partial(_at_k, model, ks)
        dropped = functools.partial(_difference_of, model.product, single)
        yield model.from_raw(f"the {which} k{each} is dropped", dropped)
        for s, k in enumerate(ks if len(ks) > 1 else []):
            alone = functools.partial(_difference_of, model.product, functools.partial(_at_k, model, [k]))
            yield model.from_raw(f"the {which} k of {model.segment} {s} is dropped", alone)
        yield model.from_raw(f"the {which} k{each} is used twice", functools.partial(_sum_of, model.product, single))
    tail = count * model.block_k - model.k
    if tail and model.plain:
        yield model.from_raw(_cause_of_ones(model), lambda r, c: model.product(r, c) + tail)
    for off, which in ((1, "next"), (-1, "previous")):
        for name, (of_a, of_b) in {"A": (off, 0), "B": (0, off)}.items():
            shifted = functools.partial(_shifted_blocks, model, of_a, of_b)
            yield model.from_raw(f"{name} of the {which} k-block is used at every k-block", shifted)
    yield from _about_segments(model)
    yield from _about_steps(model)
    pairs = torch.arange(model.k) ^ 1
    pairs = torch.where(pairs < model.k, pairs, torch.arange(model.k))
    a = model.a[:, pairs]
    # the same of B: pairs exchanged in one operand are exchanged in the other, but for a last k without a partner
    yield model.from_raw("neighbouring k of one operand are exchanged", lambda r, c: a[r] @ model.b[:, c])
    if model.block_k == model.block_n:
        yield model.from_raw("every block of B is transposed", functools.partial(_transposed_blocks, model, "B"))
    if model.block_k == model.block_m:
        yield model.from_raw("every block of A is transposed", functools.partial(_transposed_blocks, model, "A"))


def _cause_of_ones(model: FaultModel) -> str:
    """Says what adds 1 to every sum for each k of the tail: ones, or what the harness left there if that does, too."""
    pairs = zip(*(poison_values(model.problem.operand(name).dtype) for name in "ab"), strict=True)
    same = [f"{a:g} * {b:g}" for a, b in pairs if a * b == 1]
    if same:
        return f"the K tail is not masked to zeros: each of its k adds 1, as the harness's poison does ({same[0]})"
    return "the K tail is filled with ones instead of zeros"


def _at_k(model: FaultModel, ks: list[int], rows: Tensor, cols: Tensor) -> Tensor:
    """Returns the terms of the product at these k."""
    return model.a[rows][:, ks] @ model.b[ks][:, cols]


def _about_segments(model: FaultModel) -> Iterator[Hypothesis]:
    """Taps, parts of K or products of a sum that are left out, used twice, or read from another."""
    count, name = len(model.segments), model.segment
    if count < 2:
        return
    for s, (first, last) in enumerate(model.segments):
        inside = range(first, last)
        for factor, what in ((-1, "is left out"), (1, "is used twice"), (-2, "is subtracted")):
            again = functools.partial(_and_terms, model, [(factor, inside, inside)])
            yield model.from_raw(f"{name} {s} of {count} {what}", again)
        for t, (start, stop) in enumerate(model.segments):
            if t != s and stop - start == last - first:
                other = range(start, stop)
                for letter, pair in (("A", (other, inside)), ("B", (inside, other))):
                    stale = functools.partial(_and_terms, model, [(-1, inside, inside), (1, *pair)])
                    yield model.from_raw(f"{letter} of {name} {t} is used for {name} {s}", stale)
    sizes = {last - first for first, last in model.segments}
    for off, which in ((1, "next"), (-1, "previous")):
        if len(sizes) > 1:
            break
        pairs = [(range(*model.segments[s]), range(*model.segments[(s + off) % count])) for s in range(count)]
        for letter, terms in (
            ("A", [(1, other, own) for own, other in pairs]),
            ("B", [(1, own, other) for own, other in pairs]),
        ):
            moved = functools.partial(_terms, model, terms)
            yield model.from_raw(f"{letter} of the {which} {name} is used for every {name}", moved)


def _about_steps(model: FaultModel) -> Iterator[Hypothesis]:
    """K loops whose operands advance too little or too far, or not at all."""
    size = model.block_k
    if model.k_blocks < 2:
        return
    for name, of_a, of_b in (("A and B", True, True), ("A", True, False), ("B", False, True)):
        for step in (size - 1, size + 1, 1):
            advanced = functools.partial(_advanced, model, step if of_a else size, step if of_b else size)
            yield model.from_raw(f"{name} advance by {step} k at each k-block, not by {size}", advanced)
        kept = functools.partial(_advanced, model, 0 if of_a else size, 0 if of_b else size)
        yield model.from_raw(f"{name} do not advance: the first k-block is used for every k-block", kept)


def _advanced(model: FaultModel, step_a: int, step_b: int, rows: Tensor, cols: Tensor) -> Tensor:
    """Each segment's loop with operands that advance by these steps; what lies past its end is masked to zero."""
    total, lanes = torch.zeros(len(rows), len(cols), dtype=torch.float64), torch.arange(model.block_k)
    a, b = model.a[rows], model.b[:, cols]
    for first, last in model.segments:
        for t in range(-(-(last - first) // model.block_k)):
            own = t * model.block_k + lanes < last - first
            ks = [first + t * step + lanes for step in (step_a, step_b)]
            if step_a == step_b:
                own = ks[0] < last
            elif bool((torch.stack(ks)[:, own] >= last).any()):
                return torch.full((len(rows), len(cols)), NOWHERE, dtype=torch.float64)
            left, right = (k.clamp(max=model.k - 1) for k in ks)
            total += (a[:, left] * own) @ (b[right] * own[:, None])
    return total


Terms = list[tuple[int, range, range]]


def _terms(model: FaultModel, terms: Terms, rows: Tensor, cols: Tensor) -> Tensor:
    """Sum of factor * A[:, k of A] @ B[k of B]."""
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for factor, of_a, of_b in terms:
        total += factor * (model.a[rows][:, list(of_a)] @ model.b[list(of_b)][:, cols])
    return total


def _and_terms(model: FaultModel, terms: Terms, rows: Tensor, cols: Tensor) -> Tensor:
    return model.product(rows, cols) + _terms(model, terms, rows, cols)


def _shifted_blocks(model: FaultModel, of_a: int, of_b: int, rows: Tensor, cols: Tensor) -> Tensor:
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for t in range(model.k_blocks):
        total += model.part(rows, cols, t + of_a, t + of_b)
    return total


def _transposed_blocks(model: FaultModel, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    result = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    matrix, lines, edge = (model.b, cols, model.block_n) if name == "B" else (model.a.T, rows, model.block_m)
    first = lines // edge * edge  # of the tile in which each column of B, or row of A, lies
    k, lanes = model.block_k, torch.arange(model.block_k)
    for t in range(model.k_blocks):
        source, index = grown(matrix, (t + 1) * k, int(first.max()) + edge), t * k + lines - first
        block = torch.stack([source[i, f + lanes] for i, f in zip(index, first, strict=True)], 1)
        result += model.block_of_a(t, rows) @ block if name == "B" else block.T @ model.block_of_b(t, cols)
    return result


def about_k_blocks(model: FaultModel) -> Iterator[Hypothesis]:
    """Faults of one step of the K loop; the first and last steps, which loops most often get wrong, come first."""
    count, size = model.k_blocks, model.block_k
    for which, t in (("last", count - 1), ("first", 0)) if count > 2 else ():
        alone = functools.partial(model.part, of_a=t, of_b=t)
        yield model.from_raw(f"the {which} k-block alone is kept: the sum of the others is lost", alone)
    for t in sorted(range(count), key=lambda t: min(t, count - 1 - t)):
        for factor, what in ((-1, "is skipped"), (1, "is used twice"), (-2, "is negated")):
            again = functools.partial(_plus, model, [(factor, t, t)])
            yield model.from_raw(f"k-block {t} of {count} (BLOCK_K={size}) {what}", again)
        for other in (t - 1, t + 1):
            if 0 <= other < count:
                for name, partner, pair in (("A", "B", (other, t)), ("B", "A", (t, other))):
                    where = f"{name} of k-block {other} is used with {partner} of k-block {t} (BLOCK_K={size})"
                    stale = functools.partial(_plus, model, [(-1, t, t), (1, *pair)])
                    yield model.from_raw(f"{where}: stale buffer", stale)


def _plus(model: FaultModel, parts: list[tuple[int, int, int]], rows: Tensor, cols: Tensor) -> Tensor:
    """Returns the product plus some k-blocks' parts: (factor, k-block of A, k-block of B)."""
    total = model.product(rows, cols)
    for factor, of_a, of_b in parts:
        total = total + factor * model.part(rows, cols, of_a, of_b)
    return total


def about_overflow(model: FaultModel) -> Iterator[Hypothesis]:
    """Sums of products in integers that overflow; what follows them is computed with the rest."""
    largest = float(model.raw.abs().max()) if model.raw.numel() else 0.0
    if not math.isfinite(largest) or not bool((model.raw == model.raw.round()).all()):
        return
    for width in WIDTHS:
        if largest >= 2.0 ** (width - 1):
            cause = f"the sum of products is {overflow_words(width)}"
            yield model.from_raw(cause, functools.partial(_wrapped_product, model, width))


def _wrapped_product(model: FaultModel, width: int, rows: Tensor, cols: Tensor) -> Tensor:
    return wrapped(model.product(rows, cols), width)


def about_memory(model: FaultModel) -> Iterator[Hypothesis]:
    """Addresses: what the kernel would have read, had it computed them otherwise."""
    if not {"a", "b"} <= model.images.keys():
        return
    tail = torch.arange(model.k, model.k_blocks * model.block_k)
    for a, b in zip(model.images["a"], model.images["b"], strict=True):
        for what, ks in (("the K tail is not masked", tail), ("the K mask is one too long", tail[:1])):
            if not len(ks):
                continue
            for where, use_a, use_b in (("", True, True), (" (in A)", True, False), (" (in B)", False, True)):
                cause = f"{what}{where}: k {int(ks[0])}..{int(ks[-1])} read"
                yield model.from_raw(
                    cause, functools.partial(_past_k, model, ks, a if use_a else None, b if use_b else None)
                )
    for name in "ab":
        for image in model.images[name]:
            yield from _about_addresses(model, name, image)


def _past_k(model: FaultModel, ks: Tensor, a: Image | None, b: Image | None, rows: Tensor, cols: Tensor) -> Tensor:
    """The product plus the terms at ``ks`` as memory holds them; an operand without an image is masked to zero."""
    left, right = torch.zeros(len(rows), len(ks)).double(), torch.zeros(len(ks), len(cols)).double()
    if a is not None:
        left = a.matrix(rows, ks, a.operand.strides)
    if b is not None:
        right = b.matrix(ks, cols, b.operand.strides)
    return model.product(rows, cols) + left @ right


def _about_addresses(model: FaultModel, name: str, image: Image) -> Iterator[Hypothesis]:
    operand, ks = model.problem.operand(name), torch.arange(model.k)
    rows, cols = operand.strides

    def using(cause: str, strides: tuple[int, int], start: int = 0) -> Hypothesis:
        def raw(r: Tensor, c: Tensor) -> Tensor:
            if name == "a":
                return image.matrix(r, ks, strides, start) @ model.b[:, c]
            return model.a[r] @ image.matrix(ks, c, strides, start)

        return model.from_raw(cause, raw)

    letter = name.upper()
    yield using(f"{letter} is read with its strides exchanged (transposed)", (cols, rows))
    dense = (operand.shape[1], 1) if rows >= cols else (1, operand.shape[0])
    if dense != (rows, cols):
        yield using(f"{letter} is read as if it were contiguous", dense)
    for off in (1, -1):
        which = "after" if off > 0 else "before"
        yield using(f"{letter} is read one row {which} the right one", (rows, cols), off * rows)
        yield using(f"{letter} is read one column {which} the right one", (rows, cols), off * cols)


def about_other_tiles(model: FaultModel, i: int, j: int) -> Iterator[Hypothesis]:
    """Tile (i, j) holds, or also holds, what belongs to another tile. Predictions are meant for that tile only."""
    tiles_m, tiles_n = model.tiles
    raw = grown(model.raw, tiles_m * model.block_m, tiles_n * model.block_n)
    for other_i, other_j in itertools.product(range(tiles_m), range(tiles_n)):
        if (other_i, other_j) == (i, j):
            continue
        shift = (other_i - i) * model.block_m, (other_j - j) * model.block_n
        moved = functools.partial(_moved, raw, shift)
        here, there = f"tile ({i},{j})", f"tile ({other_i},{other_j})"
        cause = f"{here} also holds the sums of {there}: the accumulator was not reset"
        yield model.from_raw(cause, functools.partial(_sum_of, model.product, moved))
        yield model.from_raw(f"{here} holds the product of {there}", moved)
        if model.scaled or model.problem.bias is not None:
            yield Hypothesis(f"{here} holds the result of {there}", functools.partial(_result_of, model, shift))
    yield from _of_earlier_tiles(model, i, j)


#: More tiles than this are not solved for.
SOLVED_TILES = 64


def _of_earlier_tiles(model: FaultModel, i: int, j: int) -> Iterator[Hypothesis]:
    """Tile (i, j) also holds the sums of several others, as in a loop over tiles that never resets the accumulator.
    Which ones is the solution of linear equations, one for each element, if they have only one."""
    tiles_m, tiles_n = model.tiles
    places = [place for place in itertools.product(range(tiles_m), range(tiles_n)) if place != (i, j)]
    rows, cols = model.tile(i, j)
    if not 1 < len(places) <= SOLVED_TILES or model.problem.fusion is not None:
        return
    residual = model.output[rows][:, cols] - model.finish(model.product(rows, cols), rows, cols)
    usable = residual.isfinite() & ~model.unwritten[rows][:, cols]
    if int(usable.sum()) < 2 * len(places) or not model.work.take(usable.numel() * len(places) ** 2):
        return
    raw = grown(model.raw, tiles_m * model.block_m, tiles_n * model.block_n)
    factor = model.alpha * model.scale_a[rows][:, None] * model.scale_b[cols][None, :]
    shifts = [((m - i) * model.block_m, (n - j) * model.block_n) for m, n in places]
    terms = torch.stack([(_moved(raw, shift, rows, cols) * factor)[usable] for shift in shifts], 1)
    solved = torch.linalg.lstsq(terms, residual[usable][:, None], driver="gelsd").solution[:, 0].round()
    chosen = [place for place, times in zip(shifts, solved.tolist(), strict=True) if times == 1]
    if len(chosen) < 2 or set(solved.tolist()) - {0.0, 1.0}:
        return
    names = ", ".join(f"({m},{n})" for (m, n), times in zip(places, solved.tolist(), strict=True) if times == 1)

    def predicted(r: Tensor, c: Tensor) -> Tensor:
        return model.product(r, c) + torch.stack([_moved(raw, shift, r, c) for shift in chosen]).sum(0)

    cause = f"tile ({i},{j}) also holds the sums of tiles {names}: the accumulator was not reset"
    yield model.from_raw(cause, predicted)


def _moved(raw: Tensor, shift: tuple[int, int], rows: Tensor, cols: Tensor) -> Tensor:
    rows, cols = rows + shift[0], cols + shift[1]
    inside = ((rows >= 0) & (rows < raw.shape[0]))[:, None] & ((cols >= 0) & (cols < raw.shape[1]))[None, :]
    held = raw[rows.clamp(0, raw.shape[0] - 1)][:, cols.clamp(0, raw.shape[1] - 1)]
    return torch.where(inside, held, torch.nan)


def _difference_of(first: Predict, second: Predict, rows: Tensor, cols: Tensor) -> Tensor:
    return first(rows, cols) - second(rows, cols)


def _sum_of(first: Predict, second: Predict, rows: Tensor, cols: Tensor) -> Tensor:
    return first(rows, cols) + second(rows, cols)


def _result_of(model: FaultModel, shift: tuple[int, int], rows: Tensor, cols: Tensor) -> Tensor:
    rows, cols = (rows + shift[0]).clamp(0, model.m - 1), (cols + shift[1]).clamp(0, model.n - 1)
    return model.finish(model.product(rows, cols), rows, cols)


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


#: A k that is counted more than so many times in addition is a scale.
MOST_COUNTED = 3
#: Products of more k than this are not solved for how often each k is counted: the time grows with the third power.
COUNTED_K = 512


def about_counts(model: FaultModel, rows: Tensor, cols: Tensor) -> Iterator[Hypothesis]:
    """Terms of the product that this tile holds twice or not at all. How often each k is counted is the solution of
    linear equations, one for each element, if they have only one."""
    of_parts = model.segment == "part of K"
    if not model.k or model.k > COUNTED_K or not of_parts or model.problem.fusion is not None:
        return
    held = model.output[rows][:, cols]
    if not bool(held.isfinite().all()) or bool(model.unwritten[rows][:, cols].any()):
        return
    if not model.work.take(model.k**2 * (len(rows) + len(cols) + model.k)):
        return
    a = model.a[rows] * (model.alpha * model.scale_a[rows])[:, None]
    b = model.b[:, cols] * model.scale_b[cols]
    residual = held - model.finish(model.product(rows, cols), rows, cols)
    gram = (a.T @ a) * (b @ b.T)
    solvable = gram.diagonal() > 0  # a k whose terms are all zero may be counted any number of times
    if held.numel() < 2 * int(solvable.sum()) or not bool(solvable.any()):
        return
    factor, failed = torch.linalg.cholesky_ex(gram[solvable][:, solvable])
    if int(failed) or float(factor.diagonal().min()) < 1e-6 * float(factor.diagonal().max()):
        return
    solved = torch.cholesky_solve(((a.T @ residual) * b).sum(1)[solvable][:, None], factor)[:, 0]
    whole = solved.round()  # the output is rounded, and the solution with it: the prediction must be equal
    if not bool(whole.any()) or float(whole.min()) < -1 or float(whole.max()) > MOST_COUNTED:
        return
    more = torch.zeros(model.k, dtype=torch.float64)
    more[solvable] = whole

    def counted(r: Tensor, c: Tensor) -> Tensor:
        return model.product(r, c) + (model.a[r] * more) @ model.b[:, c]

    yield model.from_raw(_counts_in_words(more, solvable, model.segments), counted)


def _counts_in_words(more: Tensor, solvable: Tensor, segments: Sequence[tuple[int, int]]) -> str:
    """Returns such as "k 24..31 are counted twice". A k that is not ``solvable`` joins the run around it."""
    inside = torch.cat([torch.arange(first, last) for first, last in segments])  # without what fills up k-blocks
    more, solvable = more[inside], solvable[inside]
    texts = []
    for value in sorted(set(more[solvable].tolist()) - {0.0}, reverse=True):
        times = (
            "are not counted"
            if value < 0
            else "are counted twice"
            if value == 1
            else f"are counted {value + 1:g} times"
        )
        same = solvable & (more == value)
        texts.append(
            f"every k {times.replace('are', 'is', 1)}"
            if same.equal(solvable)
            else f"k {_runs_across(same, ~solvable)} {times}"
        )
    return " and ".join(texts)


def _runs_across(chosen: Tensor, either: Tensor) -> str:
    """Returns the indices that are set in ``chosen``, as runs, across those in between that are set in ``either``.

    >>> _runs_across(torch.tensor([True, False, True, False]), torch.tensor([False, True, False, False]))
    '0..2'
    """
    ends: list[list[int]] = []
    for index in chosen.nonzero()[:, 0].tolist():
        if ends and bool(either[ends[-1][1] + 1 : index].all()):
            ends[-1][1] = index
        else:
            ends.append([index, index])
    texts = [f"{first}..{last}" if last > first else f"{first}" for first, last in ends]
    return ", ".join(texts[:4]) + (", ..." if len(texts) > 4 else "")


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
