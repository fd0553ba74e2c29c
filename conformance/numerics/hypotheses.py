"""What could have gone wrong, as predictions: each hypothesis says exactly which output the fault would have given.

They are meant for exact fills, where every prediction is computed without rounding in fp64 and then compared with the
output by equality. Rows and columns are index vectors; a tile is (BLOCK_M, BLOCK_N), a k-block BLOCK_K consecutive k.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conformance import reference
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES, Gemm, Operand, itemsize

#: Bytes that may lie around operands while a fill runs; those of ``conformance.inputs.guarded``.
POISON = (0xFF, 0x7B)
#: Operands that span more elements than this are not modelled as memory.
IMAGE_LIMIT = 1 << 26

Predict = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """``predict(rows, cols)`` is the fp64 output, before the output rounding, of those rows and columns if ``cause``
    is what happened. Values that are representable in the output dtype already stand for themselves. ``special``: it
    is about NaN or infinity, so that these are evidence too."""

    cause: str
    predict: Predict
    special: bool = False


class Scene:
    """One fill of a problem in fp64: operands, product and epilogue, each of which a hypothesis may replace."""

    def __init__(self, problem: Gemm, contract: Contract, fill: Fill, block: tuple[int, int, int]) -> None:
        self.problem, self.contract, self.fill = problem, contract, fill
        self.block_m, self.block_n, self.block_k = block
        self.m, self.n = problem.M, problem.N
        self.k = problem.K if problem.has_product else 0
        self.a = fill.inputs["a"].cpu().double()[:, : self.k]
        self.b = fill.inputs["b"].cpu().double()[: self.k]
        self.raw = reference.product(problem, fill.inputs, device="cpu")
        ones = torch.ones((), dtype=torch.float64)
        self.scale_a = self._input("scale_a", ones).reshape(-1, 1).expand(problem.M, 1)[:, 0]
        self.scale_b = self._input("scale_b", ones).reshape(1, -1).expand(1, problem.N)[0]
        self.bias = self._input("bias", 0 * ones).expand(problem.M, problem.N) if problem.bias is not None else None
        self.alpha = problem.alpha if problem.has_product else 1.0
        self.beta = problem.beta

    def _input(self, name: str, default: Tensor) -> Tensor:
        return self.fill.inputs[name].cpu().double() if name in self.fill.inputs else default

    @property
    def k_blocks(self) -> int:
        return -(-self.k // self.block_k)

    @property
    def tiles(self) -> tuple[int, int]:
        return -(-self.m // self.block_m), -(-self.n // self.block_n)

    def tile(self, i: int, j: int) -> tuple[Tensor, Tensor]:
        """Rows and columns of tile (i, j), cut at the edges of the output."""
        rows = torch.arange(i * self.block_m, min((i + 1) * self.block_m, self.m))
        return rows, torch.arange(j * self.block_n, min((j + 1) * self.block_n, self.n))

    def round(self, value: Tensor) -> Tensor:
        """``value`` (fp64) in the output dtype, as fp64."""
        return round_to(value, self.contract.out_dtype, overflow=self.contract.overflow).double()

    def finish(
        self,
        raw: Tensor,
        rows: Tensor,
        cols: Tensor,
        *,
        scale_a: Tensor | None = None,
        scale_b: Tensor | None = None,
        bias: Tensor | None = None,
        alpha: float | None = None,
        beta: float | None = None,
    ) -> Tensor:
        """The epilogue of ``raw`` (rows x cols); ``scale_a`` (rows), ``scale_b`` (cols), ``bias`` (rows x cols)."""
        value = raw * (self.alpha if alpha is None else alpha)
        if self.problem.scaling is not None:
            value = value * (self.scale_a[rows] if scale_a is None else scale_a)[:, None]
            value = value * (self.scale_b[cols] if scale_b is None else scale_b)[None, :]
        if bias is None and self.problem.reads_bias and self.bias is not None:
            bias = self.bias[rows][:, cols]
        if bias is not None:
            value = value + (self.beta if beta is None else beta) * bias
        return value

    def from_raw(self, cause: str, raw: Predict) -> Hypothesis:
        """A hypothesis about the product, with the right epilogue."""
        return Hypothesis(cause, lambda rows, cols: self.finish(raw(rows, cols), rows, cols))

    def product(self, rows: Tensor, cols: Tensor) -> Tensor:
        return self.raw[rows][:, cols]

    def block_of_a(self, t: int, rows: Tensor) -> Tensor:
        """A's columns of k-block ``t``, padded with zeros to BLOCK_K; zeros for a block that does not exist."""
        return _padded(self.a[rows], 1, t * self.block_k, self.block_k)

    def block_of_b(self, t: int, cols: Tensor) -> Tensor:
        return _padded(self.b[:, cols], 0, t * self.block_k, self.block_k)

    def part(self, rows: Tensor, cols: Tensor, of_a: int, of_b: int) -> Tensor:
        """Product of A's k-block ``of_a`` and B's k-block ``of_b``."""
        return self.block_of_a(of_a, rows) @ self.block_of_b(of_b, cols)

    @functools.cached_property
    def images(self) -> dict[str, list[Image]]:
        """Each operand as it lies in memory, once per poison; without those that are too large or not read."""
        found: dict[str, list[Image]] = {}
        for operand in self.problem.operands:
            if operand.span <= IMAGE_LIMIT and operand.numel and (self.k or operand.name not in "ab"):
                values = self.fill.inputs[operand.name].cpu().double()
                found[operand.name] = [Image(operand, values, poison) for poison in POISON]
        return found


class Image:
    """An operand's memory in fp64, with poison wherever no element lies."""

    def __init__(self, operand: Operand, values: Tensor, poison: int) -> None:
        self.operand = operand
        pattern = torch.full((itemsize(operand.dtype),), poison, dtype=torch.uint8)
        self.poison = float(pattern.view(DTYPES[operand.dtype]).double())
        self.memory = torch.full((operand.span,), self.poison, dtype=torch.float64)
        self.memory.as_strided(operand.shape, operand.strides).copy_(values)

    def read(self, offset: Tensor) -> Tensor:
        """The values at these offsets in elements from the first one."""
        inside = (offset >= 0) & (offset < len(self.memory))
        return torch.where(inside, self.memory[offset.clamp(0, len(self.memory) - 1)], self.poison)

    def matrix(self, rows: Tensor, cols: Tensor, strides: tuple[int, int], start: int = 0) -> Tensor:
        return self.read(rows[:, None] * strides[0] + cols[None, :] * strides[1] + start)


def _padded(matrix: Tensor, dim: int, start: int, length: int) -> Tensor:
    shape = list(matrix.shape)
    first, last = max(0, min(start, shape[dim])), max(0, min(start + length, shape[dim]))
    part = matrix.narrow(dim, first, last - first)
    shape[dim] = length - (last - first)
    return torch.cat([part, part.new_zeros(shape)], dim)


# Hypotheses, by where in a kernel they arise


def about_tile(scene: Scene, i: int, j: int) -> Iterator[Hypothesis]:
    """Every hypothesis that could explain tile (i, j), the plainest first."""
    yield from about_epilogue(scene)
    if scene.k:
        yield from about_all_k(scene)
        yield from about_k_blocks(scene)
        yield from about_memory(scene)
        yield from about_other_tiles(scene, i, j)
    yield from about_precision(scene)


def about_epilogue(scene: Scene) -> Iterator[Hypothesis]:
    """Scales, factors and bias: absent, doubled, exchanged, indexed wrongly."""
    problem, product = scene.problem, scene.product

    def changed(cause: str, **swapped: Callable[[Tensor, Tensor], Tensor | float]) -> Hypothesis:
        def predict(rows: Tensor, cols: Tensor) -> Tensor:
            values = {name: make(rows, cols) for name, make in swapped.items()}
            return scene.finish(product(rows, cols), rows, cols, **values)  # type: ignore[arg-type]

        return Hypothesis(cause, predict)

    if scene.k:
        yield scene.from_raw(
            "the product is absent: no k was summed, or an operand was read as zeros",
            lambda r, c: torch.zeros(len(r), len(c), dtype=torch.float64),
        )
    elif problem.K and problem.alpha == 0:
        yield Hypothesis(
            "the product contributes although alpha is 0 (0 * NaN is NaN)",
            lambda r, c: torch.full((len(r), len(c)), torch.nan, dtype=torch.float64),
            special=True,
        )
    if problem.op == "addmm" and scene.k:
        yield changed("alpha is not applied", alpha=lambda r, c: 1.0)
        yield changed("alpha is applied twice", alpha=lambda r, c: scene.alpha**2)
        yield changed("alpha and beta are exchanged", alpha=lambda r, c: scene.beta, beta=lambda r, c: scene.alpha)
    if problem.scaling is not None:
        yield from _about_scales(scene, changed)
    if scene.bias is not None:
        yield from _about_bias(scene, changed)


def _about_scales(scene: Scene, changed: Callable[..., Hypothesis]) -> Iterator[Hypothesis]:
    a, b = scene.scale_a, scene.scale_b
    yield changed("no scale is applied", scale_a=lambda r, c: torch.ones(len(r)), scale_b=lambda r, c: torch.ones(len(c)))
    for name, scale, block in (("scale_a", a, scene.block_m), ("scale_b", b, scene.block_n)):
        key, axis = name, 0 if name == "scale_a" else 1

        def own(pick: Callable[[Tensor], Tensor], axis: int = axis) -> Callable[[Tensor, Tensor], Tensor]:
            return lambda r, c: pick((r, c)[axis]).double()

        last = len(scale) - 1
        yield changed(f"{name} is not applied", **{key: own(lambda i: torch.ones(len(i)))})
        yield changed(f"{name} is applied twice", **{key: own(lambda i, s=scale: s[i] ** 2)})
        if scene.problem.scaling != "row":
            continue
        yield changed(f"{name}: the first one is used for all", **{key: own(lambda i, s=scale: s[0].expand(len(i)))})
        yield changed(
            f"{name} is indexed within the tile", **{key: own(lambda i, s=scale, n=block: s[i % n])}
        )
        yield changed(
            f"the last {name} is read as 0", **{key: own(lambda i, s=scale, n=last: torch.where(i == n, 0.0, s[i]))}
        )
        yield changed(f"the last {name} is read as 1", **{key: own(lambda i, s=scale, n=last: torch.where(i == n, 1.0, s[i]))})
    if scene.problem.scaling == "tensor":
        return
    for image_a, image_b in zip(scene.images["scale_a"], scene.images["scale_b"], strict=True):
        yield changed(
            "scale_a and scale_b are exchanged",
            scale_a=lambda r, c, s=image_b: s.read(r),
            scale_b=lambda r, c, s=image_a: s.read(c),
        )


def _about_bias(scene: Scene, changed: Callable[..., Hypothesis]) -> Iterator[Hypothesis]:
    bias, problem = scene.bias, scene.problem
    assert bias is not None and problem.bias is not None

    def at(r: Tensor, c: Tensor) -> Tensor:
        return bias[r][:, c]

    def scales(r: Tensor, c: Tensor) -> Tensor:
        return scene.scale_a[r][:, None] * scene.scale_b[c][None, :]

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
        yield changed("the bias is scaled by scale_a and scale_b", bias=lambda r, c: at(r, c) * scales(r, c))
        yield changed("the bias is scaled by scale_a", bias=lambda r, c: at(r, c) * scene.scale_a[r][:, None])
        yield changed("the bias is scaled by scale_b", bias=lambda r, c: at(r, c) * scene.scale_b[c][None, :])
    m, n = scene.block_m, scene.block_n
    if problem.bias.kind in ("m1", "mn"):
        yield changed("the bias is indexed within the tile (rows)", bias=lambda r, c: at(r % m, c))
        yield changed("the bias of the first row is used for all", bias=lambda r, c: at(0 * r, c))
        yield changed("the last row of the bias is read as 0", bias=lambda r, c: at(r, c) * (r < scene.m - 1)[:, None])
    if problem.bias.kind in ("n", "1n", "mn"):
        yield changed("the bias is indexed within the tile (columns)", bias=lambda r, c: at(r, c % n))
        yield changed("the bias of the first column is used for all", bias=lambda r, c: at(r, 0 * c))
        yield changed("the last element of the bias is read as 0", bias=lambda r, c: at(r, c) * (c < scene.n - 1)[None, :])
    if problem.bias.kind == "mn":
        for image in scene.images["bias"]:
            strides = problem.operand("bias").strides[::-1]
            yield changed("the bias is read transposed", bias=lambda r, c, i=image, s=strides: i.matrix(r, c, s))
        return
    for image in scene.images["bias"]:
        step = max(problem.operand("bias").strides)
        if problem.bias.kind == "m1":
            step = problem.operand("bias").strides[0]
            along = lambda r, c, i=image, s=step: i.read(c * s).expand(len(r), len(c))  # noqa: E731
        else:
            step = problem.operand("bias").strides[-1]
            along = lambda r, c, i=image, s=step: i.read(r * s)[:, None].expand(len(r), len(c))  # noqa: E731
        yield changed("the bias is read along the other dimension", bias=along)


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
    for off in (1, -1):
        for name, (da, db) in {"A": (off, 0), "B": (0, off)}.items():

            def shifted(r: Tensor, c: Tensor, da: int = da, db: int = db) -> Tensor:
                zero = torch.zeros(len(r), len(c), dtype=torch.float64)
                return sum((scene.part(r, c, t + da, t + db) for t in range(count)), zero)

            which = "next" if off > 0 else "previous"
            yield scene.from_raw(f"{name} of the {which} k-block is used at every k-block", shifted)
    pairs = torch.arange(scene.k) ^ 1
    pairs = torch.where(pairs < scene.k, pairs, torch.arange(scene.k))
    for name in "AB":
        a, b = (scene.a[:, pairs], scene.b) if name == "A" else (scene.a, scene.b[pairs])
        yield scene.from_raw(f"neighbouring k of {name} are exchanged", lambda r, c, a=a, b=b: a[r] @ b[:, c])
    if scene.block_k == scene.block_n:
        yield scene.from_raw("every block of B is transposed", functools.partial(_transposed_blocks, scene, "B"))
    if scene.block_k == scene.block_m:
        yield scene.from_raw("every block of A is transposed", functools.partial(_transposed_blocks, scene, "A"))


def _transposed_blocks(scene: Scene, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    result = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    k, m, n = scene.block_k, scene.block_m, scene.block_n
    lanes = torch.arange(k)
    for t in range(scene.k_blocks):
        if name == "B":
            first = cols // n * n  # of the tile in which each column lies
            source, index = _grown(scene.b, (t + 1) * k, int(first.max()) + n), t * k + cols - first
            block = torch.stack([source[i, f + lanes] for i, f in zip(index, first, strict=True)], 1)
            result += scene.block_of_a(t, rows) @ block
        else:
            first = rows // m * m
            source, index = _grown(scene.a, int(first.max()) + m, (t + 1) * k), t * k + rows - first
            block = torch.stack([source[f + lanes, i] for i, f in zip(index, first, strict=True)], 0)
            result += block @ scene.block_of_b(t, cols)
    return result


def _grown(matrix: Tensor, rows: int, cols: int) -> Tensor:
    grown = matrix.new_zeros(max(rows, matrix.shape[0]), max(cols, matrix.shape[1]))
    grown[: matrix.shape[0], : matrix.shape[1]] = matrix
    return grown


def about_k_blocks(scene: Scene) -> Iterator[Hypothesis]:
    """Faults of one step of the K loop; the first and last steps, which loops most often get wrong, come first."""
    count, size = scene.k_blocks, scene.block_k
    order = sorted(range(count), key=lambda t: min(t, count - 1 - t))
    for t in order:
        block = f"k-block {t} of {count} (BLOCK_K={size})"
        for factor, what in ((-1, "is skipped"), (1, "is used twice"), (-2, "is negated")):

            def scaled(r: Tensor, c: Tensor, t: int = t, f: int = factor) -> Tensor:
                return scene.product(r, c) + f * scene.part(r, c, t, t)

            yield scene.from_raw(f"{block} {what}", scaled)
        for other in (t - 1, t + 1):
            if not 0 <= other < count:
                continue
            for name, (of_a, of_b) in {"A": (other, t), "B": (t, other)}.items():

                def stale(r: Tensor, c: Tensor, t: int = t, of_a: int = of_a, of_b: int = of_b) -> Tensor:
                    return scene.product(r, c) - scene.part(r, c, t, t) + scene.part(r, c, of_a, of_b)

                partner = "B" if name == "A" else "A"
                cause = f"{name} of k-block {other} is used with {partner} of k-block {t} (BLOCK_K={size}): stale buffer"
                yield scene.from_raw(cause, stale)


def about_memory(scene: Scene) -> Iterator[Hypothesis]:
    """Addresses: what the kernel would have read, had it computed them otherwise."""
    tail = torch.arange(scene.k, scene.k_blocks * scene.block_k)
    if not {"a", "b"} <= scene.images.keys():
        return
    strides_a, strides_b = (scene.problem.operand(name).strides for name in "ab")
    for image_a, image_b in zip(scene.images["a"], scene.images["b"], strict=True):
        for what, ks in (("the K tail is not masked", tail), ("the K mask is one too long", tail[:1])):
            if len(ks) == 0:
                continue
            for masked in ("", "a", "b"):

                def read(r: Tensor, c: Tensor, ks: Tensor = ks, masked: str = masked, ia: Image = image_a, ib: Image = image_b) -> Tensor:
                    a = ia.matrix(r, ks, strides_a) * (0 if masked == "a" else 1)
                    b = ib.matrix(ks, c, strides_b) * (0 if masked == "b" else 1)
                    if masked == "a":
                        a = torch.zeros_like(a)
                    if masked == "b":
                        b = torch.zeros_like(b)
                    return scene.product(r, c) + a @ b

                only = {"": "", "a": " (in B)", "b": " (in A)"}[masked]
                span = f"k {int(ks[0])}..{int(ks[-1])}"
                yield scene.from_raw(f"{what}{only}: {span} read", read)
    for name in "ab":
        for image in scene.images.get(name, ()):
            yield from _about_addresses(scene, name, image)


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
    raw = _grown(scene.raw, tiles_m * scene.block_m, tiles_n * scene.block_n)
    for other_i in range(tiles_m):
        for other_j in range(tiles_n):
            if (other_i, other_j) == (i, j):
                continue
            down, right = (other_i - i) * scene.block_m, (other_j - j) * scene.block_n

            def moved(r: Tensor, c: Tensor, down: int = down, right: int = right) -> Tensor:
                inside = (r + down >= 0) & (r + down < raw.shape[0])
                if not bool(inside.all()) or not bool(((c + right >= 0) & (c + right < raw.shape[1])).all()):
                    return torch.full((len(r), len(c)), torch.nan, dtype=torch.float64)
                return raw[r + down][:, c + right]

            here, there = f"tile ({i},{j})", f"tile ({other_i},{other_j})"
            yield scene.from_raw(
                f"{here} also holds the sums of {there}: the accumulator was not reset",
                lambda r, c, moved=moved: scene.product(r, c) + moved(r, c),
            )
            yield scene.from_raw(f"{here} holds the product of {there}", moved)

            def result(r: Tensor, c: Tensor, moved: Predict = moved, down: int = down, right: int = right) -> Tensor:
                r, c = (r + down).clamp(0, scene.m - 1), (c + right).clamp(0, scene.n - 1)
                return scene.finish(scene.product(r, c), r, c)

            if scene.problem.op != "mm":
                yield Hypothesis(f"{here} holds the result of {there}", result)


def about_precision(scene: Scene) -> Iterator[Hypothesis]:
    """Roundings that the contract does not allow, replayed."""
    out, size = FORMATS[scene.contract.out_dtype], scene.block_k

    def value(r: Tensor, c: Tensor) -> Tensor:
        return scene.finish(scene.product(r, c), r, c)

    yield Hypothesis("the output is rounded towards zero", lambda r, c: _towards_zero(value(r, c), scene))
    for name in ("fp16", "bf16", "e5m2", "e4m3"):
        if FORMATS[name].significand <= out.significand or name in ("fp16", "bf16"):
            if name != scene.contract.out_dtype:
                through = functools.partial(_through, value, name)
                yield Hypothesis(f"the result passes through {name}", through, special=True)
    for width in range(out.significand + 1, min(out.significand + 13, 24)):
        yield Hypothesis(
            f"the result is rounded to {width} bits before it is rounded to the output",
            lambda r, c, w=width: _to_width(value(r, c), w),
        )
    if not scene.k:
        return
    for name in ("fp16", "bf16"):
        if scene.problem.op != "mm":
            yield scene.from_raw(
                f"the product is rounded to {name} before the epilogue",
                lambda r, c, n=name: round_to(scene.product(r, c), n).double(),
            )
            yield Hypothesis(f"the product is rounded to {name} before the bias", functools.partial(_before_bias, scene, name))
    for name in ("tf32", "bf16", "fp16", "e5m2", "e4m3"):
        yield from _about_operands(scene, name)
    yield scene.from_raw("the accumulator is cut to 13 fraction bits after every k-block", functools.partial(_cut_sum, scene))
    for name in ("fp16", "bf16"):
        for step, dot, when in ((1, False, "k"), (16, False, "16 k"), (size, False, "k-block"), (size, True, "k-block, as is its dot")):
            cause = f"the accumulator is rounded to {name} after every {when}"
            yield scene.from_raw(cause, functools.partial(_narrow_sum, scene, name, step, dot))
        for t in range(scene.k_blocks):

            def split(r: Tensor, c: Tensor, t: int = t, name: str = name) -> Tensor:
                k = (t + 1) * scene.block_k
                first = round_to(scene.a[r][:, :k] @ scene.b[:k][:, c], name).double()
                return first + scene.a[r][:, k:] @ scene.b[k:][:, c]

            def both(r: Tensor, c: Tensor, t: int = t, name: str = name) -> Tensor:
                k = (t + 1) * scene.block_k
                first = round_to(scene.a[r][:, :k] @ scene.b[:k][:, c], name).double()
                return first + round_to(scene.a[r][:, k:] @ scene.b[k:][:, c], name).double()

            if t < scene.k_blocks - 1:
                yield scene.from_raw(f"the sum of k-blocks 0..{t} is rounded to {name}", split)
                yield scene.from_raw(f"the sums of k-blocks 0..{t} and of the rest are each rounded to {name}", both)


def _about_operands(scene: Scene, name: str) -> Iterator[Hypothesis]:
    """Operands rounded or cut to a narrower format; those that hold every value anyway predict nothing new."""
    for how, convert in (("rounded", _nearest), ("cut", _cut)):
        a, b = convert(scene.a, name), convert(scene.b, name)
        for which, left, right in (("A and B are", a, b), ("A is", a, scene.b), ("B is", scene.a, b)):
            yield scene.from_raw(f"{which} {how} to {name}", lambda r, c, x=left, y=right: x[r] @ y[:, c])


def _nearest(values: Tensor, name: str) -> Tensor:
    return round_to(values, name).double()


def _cut(values: Tensor, name: str) -> Tensor:
    """``values`` rounded towards zero in the format ``name``, by the spacing of the format at each value."""
    nearest = round_to(values, name, overflow="saturate").double()
    form = FORMATS[name]
    exponent = (torch.frexp(nearest)[1] - 1).clamp(min=form.emin)
    quantum = torch.exp2((exponent - form.significand + 1).double())
    below = nearest - torch.sign(nearest) * quantum
    # just below a power of two the spacing is half of what the rounded value's exponent says
    half = nearest - torch.sign(nearest) * quantum / 2
    below = torch.where((half.abs() >= values.abs()) | (round_to(half, name).double() != half), below, half)
    return torch.where(nearest.abs() > values.abs(), below, nearest)


def _towards_zero(value: Tensor, scene: Scene) -> Tensor:
    rounded = round_to(value, scene.contract.out_dtype, overflow=scene.contract.overflow)
    code = bits(rounded)
    too_large = rounded.double().abs() > value.abs()
    return torch.where(too_large, code - 1, code).to(code.dtype).view(rounded.dtype).double()


def _narrow_sum(scene: Scene, name: str, step: int, dot: bool, rows: Tensor, cols: Tensor) -> Tensor:
    """The product with the running sum, and with ``dot`` each partial product too, rounded to ``name`` every ``step`` k."""
    a, b = scene.a[rows], scene.b[:, cols]
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for k in range(0, scene.k, step):
        part = a[:, k : k + step] @ b[k : k + step]
        total = round_to(total + (round_to(part, name).double() if dot else part), name).double()
    return total


def _through(value: Predict, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    return round_to(value(rows, cols), name).double()


def _cut_sum(scene: Scene, rows: Tensor, cols: Tensor) -> Tensor:
    """The product with the running sum cut to 13 fraction bits, as Hopper's fp8 unit keeps it, after every k-block."""
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for t in range(scene.k_blocks):
        fraction, exponent = torch.frexp(total + scene.part(rows, cols, t, t))
        total = torch.ldexp(torch.trunc(fraction * 2.0**14), exponent - 14)
    return total


def _before_bias(scene: Scene, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    whole = scene.finish(scene.product(rows, cols), rows, cols)
    product = scene.finish(scene.product(rows, cols), rows, cols, beta=0.0)
    return round_to(product, name).double() + (whole - product)


def _to_width(value: Tensor, width: int) -> Tensor:
    """``value`` rounded to nearest even at ``width`` significant bits."""
    fraction, exponent = torch.frexp(value)
    return torch.ldexp(torch.round(torch.ldexp(fraction, torch.tensor(width))), exponent - width)


# Hypotheses read off the data


def about_order(scene: Scene, found: Tensor, rows: Tensor, cols: Tensor) -> Iterator[Hypothesis]:
    """Rows or columns of this tile that hold the products of others, found by looking each up among all."""
    for axis, lines, count in (("rows", rows, scene.m), ("columns", cols, scene.n)):
        across = cols if axis == "rows" else rows
        if len(across) < 8:
            continue  # too few elements per line: several lines would fit by chance
        source = torch.arange(count)
        for line in lines.tolist():
            match = _lines_like(scene, found, axis, line, across)
            if len(match) and line not in match:
                source[line] = match[0]
        moved = lines[source[lines] != lines]
        if not len(moved):
            continue
        flips = (source[moved] ^ moved).unique()
        if len(flips) == 1:
            everywhere = torch.arange(count) ^ flips
            source = everywhere.clamp(max=count)  # past the last one lie masked zeros
            text = f"{axis} are exchanged: {axis[:-1]} i holds the products of {axis[:-1]} i ^ {int(flips)}"
        else:
            text = _order_text(axis, source, moved)
        yield scene.from_raw(text, functools.partial(_reordered, scene, axis, source))


def _reordered(scene: Scene, axis: str, source: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    raw = _grown(scene.raw, scene.m + 1, scene.n + 1)
    return raw[source[rows]][:, cols] if axis == "rows" else raw[rows][:, source[cols]]


def _lines_like(scene: Scene, found: Tensor, axis: str, line: int, across: Tensor) -> list[int]:
    """Rows (columns) whose products, with the epilogue of row ``line``, are what row ``line`` holds."""
    here = torch.tensor([line])
    if axis == "rows":
        rows, cols = here.expand(scene.m), across
        predicted = scene.round(scene.finish(scene.raw[:, across], rows, cols))
        same = (predicted == found[line, across]).all(1)
    else:
        rows, cols = across, here.expand(scene.n)
        predicted = scene.round(scene.finish(scene.raw[across], rows, cols))
        same = (predicted == found[across, line][:, None]).all(0)
    return [int(index) for index in same.nonzero()[:, 0]]


def _order_text(axis: str, source: Tensor, moved: Tensor) -> str:
    shift = (source[moved] - moved).unique()
    first, last = int(moved[0]), int(moved[-1])
    if len(shift) == 1:
        by = int(shift[0])
        return f"{axis} {first}..{last} hold the products of {axis} {first + by}..{last + by}"
    pairs = ", ".join(f"{int(line)} holds {int(source[line])}" for line in moved[:4])
    more = "" if len(moved) <= 4 else f" and {len(moved) - 4} more"
    return f"{axis} are permuted: {pairs}{more}"


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
