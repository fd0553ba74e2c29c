"""What could have gone wrong, as predictions: each hypothesis says exactly which output the fault would have given.

They are meant for exact fills, where every prediction is computed without rounding in fp64 and then compared with the
output by equality. Rows and columns are index vectors; a tile is (BLOCK_M, BLOCK_N), a k-block BLOCK_K consecutive k.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from conformance.numerics import replays
from conformance.numerics.scene import Hypothesis, Image, Predict, Scene, grown


def about_tile(scene: Scene, i: int, j: int) -> Iterator[Hypothesis]:
    """Every hypothesis that could explain tile (i, j), the plainest first."""
    yield from about_epilogue(scene)
    if scene.k:
        yield from about_all_k(scene)
        yield from about_k_blocks(scene)
        yield from about_memory(scene)
        yield from about_other_tiles(scene, i, j)
    yield from replays.about_precision(scene)


def about_epilogue(scene: Scene) -> Iterator[Hypothesis]:
    """Scales, factors and bias: absent, doubled, exchanged, indexed wrongly."""
    problem, changed = scene.problem, scene.with_epilogue
    if scene.k:
        cause = "the product is absent: no k was summed, or an operand was read as zeros"
        yield scene.from_raw(cause, functools.partial(_constant, 0.0))
    elif problem.K and problem.alpha == 0:
        cause = "the product contributes although alpha is 0 (0 * NaN is NaN)"
        yield Hypothesis(cause, functools.partial(_constant, torch.nan), special=True)
    if problem.op == "addmm" and scene.k:
        yield changed("alpha is not applied", alpha=lambda r, c: 1.0)
        yield changed("alpha is applied twice", alpha=lambda r, c: scene.alpha**2)
        yield changed("alpha and beta are exchanged", alpha=lambda r, c: scene.beta, beta=lambda r, c: scene.alpha)
    if problem.scaling is not None:
        yield changed(
            "no scale is applied", scale_a=lambda r, c: torch.ones(len(r)), scale_b=lambda r, c: torch.ones(len(c))
        )
        yield from _about_scale(scene, "scale_a", scene.scale_a, scene.block_m)
        yield from _about_scale(scene, "scale_b", scene.scale_b, scene.block_n)
    if problem.scaling == "row":
        for a, b in zip(scene.images["scale_a"], scene.images["scale_b"], strict=True):
            yield scene.with_epilogue(
                "scale_a and scale_b are exchanged",
                scale_a=functools.partial(_along_rows, b, 1),
                scale_b=functools.partial(_along_columns, a, 1),
            )
    if scene.bias is not None:
        yield from _about_bias(scene, scene.bias)


def _constant(value: float, rows: Tensor, cols: Tensor) -> Tensor:
    return torch.full((len(rows), len(cols)), value, dtype=torch.float64)


def _along_rows(image: Image, step: int, rows: Tensor, cols: Tensor) -> Tensor:
    return image.read(rows * step)


def _along_columns(image: Image, step: int, rows: Tensor, cols: Tensor) -> Tensor:
    return image.read(cols * step)


def _about_scale(scene: Scene, name: str, scale: Tensor, block: int) -> Iterator[Hypothesis]:
    last = len(scale) - 1

    def changed(what: str, pick: Callable[[Tensor], Tensor]) -> Hypothesis:
        def make(rows: Tensor, cols: Tensor) -> Tensor:
            return pick(rows if name == "scale_a" else cols).double()

        return scene.with_epilogue(what, **{name: make})

    yield changed(f"{name} is not applied", lambda i: torch.ones(len(i)))
    yield changed(f"{name} is applied twice", lambda i: scale[i] ** 2)
    if scene.problem.scaling == "row":
        yield changed(f"{name}: the first one is used for all", lambda i: scale[0].expand(len(i)))
        yield changed(f"{name} is indexed within the tile", lambda i: scale[i % block])
        yield changed(f"the last {name} is read as 0", lambda i: torch.where(i == last, 0.0, scale[i]))
        yield changed(f"the last {name} is read as 1", lambda i: torch.where(i == last, 1.0, scale[i]))


def _about_bias(scene: Scene, bias: Tensor) -> Iterator[Hypothesis]:
    problem, changed = scene.problem, scene.with_epilogue
    kind = problem.bias.kind if problem.bias is not None else ""

    def at(r: Tensor, c: Tensor) -> Tensor:
        return bias[r][:, c]

    if not problem.reads_bias:
        read = changed("the bias contributes although beta is 0 (0 * NaN is NaN)", bias=at)
        yield replace(read, special=True)
        return
    yield changed("the bias is absent", beta=lambda r, c: 0.0)
    yield changed("the bias is added twice", beta=lambda r, c: 2 * scene.beta)
    if problem.op == "addmm":
        yield changed("beta is not applied", beta=lambda r, c: 1.0)
        yield changed("beta is applied twice", beta=lambda r, c: scene.beta**2)
        yield changed("the bias is scaled by alpha too", beta=lambda r, c: scene.alpha * scene.beta)
        yield changed("the bias is scaled by alpha instead of beta", beta=lambda r, c: scene.alpha)
    if problem.scaling is not None:
        a, b = scene.scale_a[:, None], scene.scale_b[None, :]
        yield changed("the bias is scaled by scale_a and scale_b", bias=lambda r, c: at(r, c) * a[r] * b[:, c])
        yield changed("the bias is scaled by scale_a", bias=lambda r, c: at(r, c) * a[r])
        yield changed("the bias is scaled by scale_b", bias=lambda r, c: at(r, c) * b[:, c])
    m, n = scene.block_m, scene.block_n
    if kind in ("m1", "mn"):
        inside = torch.arange(scene.m)[:, None] < scene.m - 1
        yield changed("the bias is indexed within the tile (rows)", bias=lambda r, c: at(r % m, c))
        yield changed("the bias of the first row is used for all", bias=lambda r, c: at(0 * r, c))
        yield changed("the last row of the bias is read as 0", bias=lambda r, c: at(r, c) * inside[r])
    if kind in ("n", "1n", "mn"):
        within = torch.arange(scene.n)[None, :] < scene.n - 1
        yield changed("the bias is indexed within the tile (columns)", bias=lambda r, c: at(r, c % n))
        yield changed("the bias of the first column is used for all", bias=lambda r, c: at(r, 0 * c))
        yield changed("the last element of the bias is read as 0", bias=lambda r, c: at(r, c) * within[:, c])
    for image in scene.images["bias"]:
        yield _bias_turned(scene, image, kind)


def _bias_turned(scene: Scene, image: Image, kind: str) -> Hypothesis:
    strides = scene.problem.operand("bias").strides
    if kind == "mn":
        turned = strides[::-1]
        return scene.with_epilogue("the bias is read transposed", bias=lambda r, c: image.matrix(r, c, turned))
    turned = (0, strides[0]) if kind == "m1" else (strides[-1], 0)
    cause = "the bias is read along the other dimension"
    return scene.with_epilogue(cause, bias=lambda r, c: image.matrix(r, c, turned))


def about_all_k(scene: Scene) -> Iterator[Hypothesis]:
    """Faults of every step of the K loop alike."""
    last, count = scene.k - 1, scene.k_blocks

    def single(r: Tensor, c: Tensor, k: int) -> Tensor:
        return scene.a[r, k][:, None] * scene.b[k, c][None, :]

    yield scene.from_raw("the last k is dropped", lambda r, c: scene.product(r, c) - single(r, c, last))
    yield scene.from_raw("the first k is dropped", lambda r, c: scene.product(r, c) - single(r, c, 0))
    yield scene.from_raw("the last k is used twice", lambda r, c: scene.product(r, c) + single(r, c, last))
    tail = count * scene.block_k - scene.k
    if tail:
        yield scene.from_raw("the K tail is filled with ones instead of zeros", lambda r, c: scene.product(r, c) + tail)
    for off, which in ((1, "next"), (-1, "previous")):
        for name, (of_a, of_b) in {"A": (off, 0), "B": (0, off)}.items():
            shifted = functools.partial(_shifted_blocks, scene, of_a, of_b)
            yield scene.from_raw(f"{name} of the {which} k-block is used at every k-block", shifted)
    pairs = torch.arange(scene.k) ^ 1
    pairs = torch.where(pairs < scene.k, pairs, torch.arange(scene.k))
    a = scene.a[:, pairs]
    # the same of B: pairs exchanged in one operand are exchanged in the other, but for a last k without a partner
    yield scene.from_raw("neighbouring k of one operand are exchanged", lambda r, c: a[r] @ scene.b[:, c])
    if scene.block_k == scene.block_n:
        yield scene.from_raw("every block of B is transposed", functools.partial(_transposed_blocks, scene, "B"))
    if scene.block_k == scene.block_m:
        yield scene.from_raw("every block of A is transposed", functools.partial(_transposed_blocks, scene, "A"))


def _shifted_blocks(scene: Scene, of_a: int, of_b: int, rows: Tensor, cols: Tensor) -> Tensor:
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for t in range(scene.k_blocks):
        total += scene.part(rows, cols, t + of_a, t + of_b)
    return total


def _transposed_blocks(scene: Scene, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    result = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    k, m, n = scene.block_k, scene.block_m, scene.block_n
    lanes = torch.arange(k)
    for t in range(scene.k_blocks):
        if name == "B":
            first = cols // n * n  # of the tile in which each column lies
            source, index = grown(scene.b, (t + 1) * k, int(first.max()) + n), t * k + cols - first
            block = torch.stack([source[i, f + lanes] for i, f in zip(index, first, strict=True)], 1)
            result += scene.block_of_a(t, rows) @ block
        else:
            first = rows // m * m
            source, index = grown(scene.a, int(first.max()) + m, (t + 1) * k), t * k + rows - first
            block = torch.stack([source[f + lanes, i] for i, f in zip(index, first, strict=True)], 0)
            result += block @ scene.block_of_b(t, cols)
    return result


def about_k_blocks(scene: Scene) -> Iterator[Hypothesis]:
    """Faults of one step of the K loop; the first and last steps, which loops most often get wrong, come first."""
    count, size = scene.k_blocks, scene.block_k
    for t in sorted(range(count), key=lambda t: min(t, count - 1 - t)):
        for factor, what in ((-1, "is skipped"), (1, "is used twice"), (-2, "is negated")):
            again = functools.partial(_plus, scene, [(factor, t, t)])
            yield scene.from_raw(f"k-block {t} of {count} (BLOCK_K={size}) {what}", again)
        for other in (t - 1, t + 1):
            if 0 <= other < count:
                for name, partner, pair in (("A", "B", (other, t)), ("B", "A", (t, other))):
                    where = f"{name} of k-block {other} is used with {partner} of k-block {t} (BLOCK_K={size})"
                    stale = functools.partial(_plus, scene, [(-1, t, t), (1, *pair)])
                    yield scene.from_raw(f"{where}: stale buffer", stale)


def _plus(scene: Scene, parts: list[tuple[int, int, int]], rows: Tensor, cols: Tensor) -> Tensor:
    """The product plus some k-blocks' parts: (factor, k-block of A, k-block of B)."""
    total = scene.product(rows, cols)
    for factor, of_a, of_b in parts:
        total = total + factor * scene.part(rows, cols, of_a, of_b)
    return total


def about_memory(scene: Scene) -> Iterator[Hypothesis]:
    """Addresses: what the kernel would have read, had it computed them otherwise."""
    if not {"a", "b"} <= scene.images.keys():
        return
    tail = torch.arange(scene.k, scene.k_blocks * scene.block_k)
    for a, b in zip(scene.images["a"], scene.images["b"], strict=True):
        for what, ks in (("the K tail is not masked", tail), ("the K mask is one too long", tail[:1])):
            if not len(ks):
                continue
            for where, use_a, use_b in (("", True, True), (" (in A)", True, False), (" (in B)", False, True)):
                cause = f"{what}{where}: k {int(ks[0])}..{int(ks[-1])} read"
                yield scene.from_raw(
                    cause, functools.partial(_past_k, scene, ks, a if use_a else None, b if use_b else None)
                )
    for name in "ab":
        for image in scene.images[name]:
            yield from _about_addresses(scene, name, image)


def _past_k(scene: Scene, ks: Tensor, a: Image | None, b: Image | None, rows: Tensor, cols: Tensor) -> Tensor:
    """The product plus that of what lies in memory at ``ks``; zeros, as of a masked load, where there is no image."""
    left, right = torch.zeros(len(rows), len(ks)).double(), torch.zeros(len(ks), len(cols)).double()
    if a is not None:
        left = a.matrix(rows, ks, a.operand.strides)
    if b is not None:
        right = b.matrix(ks, cols, b.operand.strides)
    return scene.product(rows, cols) + left @ right


def _about_addresses(scene: Scene, name: str, image: Image) -> Iterator[Hypothesis]:
    operand, ks = scene.problem.operand(name), torch.arange(scene.k)
    rows, cols = operand.strides

    def using(cause: str, strides: tuple[int, int], start: int = 0) -> Hypothesis:
        def raw(r: Tensor, c: Tensor) -> Tensor:
            if name == "a":
                return image.matrix(r, ks, strides, start) @ scene.b[:, c]
            return scene.a[r] @ image.matrix(ks, c, strides, start)

        return scene.from_raw(cause, raw)

    letter = name.upper()
    yield using(f"{letter} is read with its strides exchanged (transposed)", (cols, rows))
    dense = (operand.shape[1], 1) if rows >= cols else (1, operand.shape[0])
    if dense != (rows, cols):
        yield using(f"{letter} is read as if it were contiguous", dense)
    for off in (1, -1):
        which = "after" if off > 0 else "before"
        yield using(f"{letter} is read one row {which} the right one", (rows, cols), off * rows)
        yield using(f"{letter} is read one column {which} the right one", (rows, cols), off * cols)


def about_other_tiles(scene: Scene, i: int, j: int) -> Iterator[Hypothesis]:
    """Tile (i, j) holds, or also holds, what belongs to another tile. Predictions are meant for that tile only."""
    tiles_m, tiles_n = scene.tiles
    raw = grown(scene.raw, tiles_m * scene.block_m, tiles_n * scene.block_n)
    for other_i, other_j in itertools.product(range(tiles_m), range(tiles_n)):
        if (other_i, other_j) == (i, j):
            continue
        shift = (other_i - i) * scene.block_m, (other_j - j) * scene.block_n
        moved = functools.partial(_moved, raw, shift)
        here, there = f"tile ({i},{j})", f"tile ({other_i},{other_j})"
        cause = f"{here} also holds the sums of {there}: the accumulator was not reset"
        yield scene.from_raw(cause, functools.partial(_sum_of, scene.product, moved))
        yield scene.from_raw(f"{here} holds the product of {there}", moved)
        if scene.problem.op != "mm":
            yield Hypothesis(f"{here} holds the result of {there}", functools.partial(_result_of, scene, shift))


def _moved(raw: Tensor, shift: tuple[int, int], rows: Tensor, cols: Tensor) -> Tensor:
    rows, cols = rows + shift[0], cols + shift[1]
    inside = ((rows >= 0) & (rows < raw.shape[0]))[:, None] & ((cols >= 0) & (cols < raw.shape[1]))[None, :]
    held = raw[rows.clamp(0, raw.shape[0] - 1)][:, cols.clamp(0, raw.shape[1] - 1)]
    return torch.where(inside, held, torch.nan)


def _sum_of(first: Predict, second: Predict, rows: Tensor, cols: Tensor) -> Tensor:
    return first(rows, cols) + second(rows, cols)


def _result_of(scene: Scene, shift: tuple[int, int], rows: Tensor, cols: Tensor) -> Tensor:
    rows, cols = (rows + shift[0]).clamp(0, scene.m - 1), (cols + shift[1]).clamp(0, scene.n - 1)
    return scene.finish(scene.product(rows, cols), rows, cols)
