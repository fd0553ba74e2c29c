"""The model of a diagnosis: one product in fp64, its operands in memory, and hypotheses about both."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.gemm import reference as gemm
from conformance.families.products import Product
from conformance.numerics.alterations import WorkBudget, as_stored
from conformance.numerics.contract import Contract
from conformance.problems import DTYPES, Operand, itemsize

#: Bytes that may lie around operands while a fill runs; those of ``conformance.inputs.guarded_memory``. The interpreter
#: and the executor of TTGIR give the first one where nothing was loaded or stored.
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


class FaultModel:
    """One product in fp64: factors and epilogue, each of which a hypothesis may replace; and the output to explain, of
    which some elements are ``unwritten``. What is computed is taken from ``work``."""

    def __init__(
        self, product: Product, contract: Contract, block: tuple[int, int, int], unwritten: Tensor, work: WorkBudget
    ) -> None:
        problem, fill = product.problem, product.fill
        self.problem, self.contract, self.fill, self.work = problem, contract, fill, work
        self.output, self.unwritten = product.output.double(), unwritten
        self.plain, self.segment = product.plain, product.segment
        self.block_m, self.block_n, self.block_k = block
        self.m, self.n = problem.M, problem.N
        if problem.has_product:
            self.a, self.b = gemm.factors(problem, fill.inputs, device="cpu")
        else:
            self.a, self.b = torch.zeros(self.m, 0).double(), torch.zeros(0, self.n).double()
        self.k = self.a.shape[1]
        self.segments = product.segments if self.k else ()
        self.raw = self.a @ self.b
        ones = torch.ones((), dtype=torch.float64)
        self.scaled = problem.scaling in ("tensor", "row")
        self.scale_a = self._scale("scale_a", ones, (-1, 1)).expand(problem.M, 1)[:, 0]
        self.scale_b = self._scale("scale_b", ones, (1, -1)).expand(1, problem.N)[0]
        self.bias = self._input("bias", 0 * ones).expand(problem.M, problem.N) if problem.bias is not None else None
        self.alpha = problem.alpha if problem.has_product else 1.0
        self.beta = problem.beta

    def _scale(self, name: str, default: Tensor, shape: tuple[int, int]) -> Tensor:
        return (self._input(name, default) if self.scaled else default).reshape(shape)

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
        return as_stored(value, self.contract.out_dtype, self.contract.overflow)

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
        """Returns the epilogue of ``raw`` (rows x cols); ``scale_a`` (rows), ``scale_b`` (cols), ``bias`` (rows x
        cols)."""
        value = raw * (self.alpha if alpha is None else alpha)
        if self.scaled:
            value = value * (self.scale_a[rows] if scale_a is None else scale_a)[:, None]
            value = value * (self.scale_b[cols] if scale_b is None else scale_b)[None, :]
        if bias is None and self.problem.reads_bias and self.bias is not None:
            bias = self.bias[rows][:, cols]
        if bias is not None:
            bias = (self.beta if beta is None else beta) * bias
        if self.problem.fusion is not None:
            return self._fused(value, rows, cols, bias)
        return value if bias is None else value + bias

    def _fused(self, value: Tensor, rows: Tensor, cols: Tensor, bias: Tensor | None) -> Tensor:
        inputs = {name: self._input(name, value)[rows][:, cols] for name in ("residual", "mask")
                  if name in self.fill.inputs}  # fmt: skip
        if bias is not None:
            inputs["bias"] = bias
        return gemm.fused_steps(self.problem, inputs, value)[-1]

    def agrees(self, hypothesis: Hypothesis, rows: Tensor, cols: Tensor) -> bool:
        """True if the output holds what ``hypothesis`` predicts for these rows and columns, where it is written."""
        if not self.work.take(len(rows) * len(cols) * max(1, self.k)):
            return False
        predicted, held = self.round(hypothesis.predict(rows, cols)), self.output[rows][:, cols]
        same = (predicted == held) | (predicted.isnan() & held.isnan()) | self.unwritten[rows][:, cols]
        return bool(same.all())

    def from_raw(self, cause: str, raw: Predict) -> Hypothesis:
        """Returns a hypothesis about the product, with the right epilogue."""
        return Hypothesis(cause, lambda rows, cols: self.finish(raw(rows, cols), rows, cols))

    def with_epilogue(self, cause: str, **changed: Callable[[Tensor, Tensor], Tensor | float]) -> Hypothesis:
        """Returns a hypothesis about the epilogue: arguments of :meth:`finish`, each as a function of rows and
        columns."""

        def predict(rows: Tensor, cols: Tensor) -> Tensor:
            values = {name: make(rows, cols) for name, make in changed.items()}
            return self.finish(self.product(rows, cols), rows, cols, **values)  # type: ignore[arg-type]

        return Hypothesis(cause, predict)

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
        """Each operand as it lies in memory, once per poison; without those that are too large or not read, and none of
        a product whose operands are not the problem's own."""
        images: dict[str, list[Image]] = {}
        if not self.plain:
            return images
        for operand in self.problem.operands:
            if operand.span <= IMAGE_LIMIT and operand.numel and (self.k or operand.name not in "ab"):
                values = self.fill.inputs[operand.name].cpu().double()
                images[operand.name] = [Image(operand, values, poison) for poison in poison_values(operand.dtype)]
        return images


def poison_values(dtype: str) -> tuple[float, ...]:
    """Returns the value of an element of ``dtype`` that is filled with each byte of POISON.

    >>> poison_values("int8")
    (-1.0, 123.0)
    """
    size = itemsize(dtype)
    return tuple(float(torch.full((size,), byte, dtype=torch.uint8).view(DTYPES[dtype]).double()) for byte in POISON)


class Image:
    """An operand's memory in fp64, with poison wherever no element lies."""

    def __init__(self, operand: Operand, values: Tensor, poison: float) -> None:
        self.operand, self.poison = operand, poison
        self.memory = torch.full((operand.span,), self.poison, dtype=torch.float64)
        self.memory.as_strided(operand.shape, operand.strides).copy_(values)

    def read(self, offset: Tensor) -> Tensor:
        """Returns the values at these offsets in elements from the first one."""
        inside = (offset >= 0) & (offset < len(self.memory))
        return torch.where(inside, self.memory[offset.clamp(0, len(self.memory) - 1)], self.poison)

    def matrix(self, rows: Tensor, cols: Tensor, strides: tuple[int, ...], start: int = 0) -> Tensor:
        return self.read(rows[:, None] * strides[0] + cols[None, :] * strides[1] + start)


def _padded(matrix: Tensor, dim: int, start: int, length: int) -> Tensor:
    shape = list(matrix.shape)
    first, last = max(0, min(start, shape[dim])), max(0, min(start + length, shape[dim]))
    part = matrix.narrow(dim, first, last - first)
    shape[dim] = length - (last - first)
    return torch.cat([part, part.new_zeros(shape)], dim)


def grown(matrix: Tensor, rows: int, cols: int) -> Tensor:
    """``matrix`` with zeros below and to the right of it, at least rows x cols large."""
    larger = matrix.new_zeros(max(rows, matrix.shape[0]), max(cols, matrix.shape[1]))
    larger[: matrix.shape[0], : matrix.shape[1]] = matrix
    return larger
