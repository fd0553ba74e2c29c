"""Cuts the operands of a problem from one plain product, so that one recipe serves every operation.

A sum of products is one product with the operands side by side, and so are two products with the same A. For a batch,
all matrices of A lie below each other and all those of B side by side. The batch is the diagonal of their product. What
holds for every row and column of that product holds for every matrix of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.inputs.fills import Draws, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Operand

#: How many distinct matrices of A and of B a large batch has; they repeat by index. So neighbours differ, and so do
#: matrices whose indices are a power of two apart, which an index that wraps confuses. The numbers are coprime: a pair
#: of an A and a B repeats only after 35.
POOLS = (5, 7)


@dataclass(frozen=True)
class PlainProduct:
    """The plain product: A (rows, k) and B (k, cols). ``segment``: consecutive k that the operation sums on their own,
    before it adds the sums up; ``scaled``: each segment has its own scales. ``alike``: consecutive k that have one
    scale although the operation sums all of them."""

    rows: int
    cols: int
    k: int
    segment: int
    scaled: bool = False
    alike: int | None = None

    @property
    def one_scale(self) -> int:
        """Consecutive k under one scale: terms of a sum may cancel among these alone."""
        return self.segment if self.scaled else self.alike or self.k

    @classmethod
    def of(cls, problem: Gemm) -> PlainProduct:
        """The product that contains every output of ``problem``."""
        if problem.op == "mm_plus_mm":
            return cls(problem.M, problem.N, 2 * problem.K, problem.K)
        if problem.batch is not None:
            in_a, in_b = _pools(problem)
            return cls(in_a * problem.M, in_b * problem.N, problem.K, problem.K)
        if problem.op == "dual_mm":
            return cls(problem.M, 2 * problem.N, problem.K, problem.K)
        rows = problem.operand("a").shape[0]
        if problem.scaling in BLOCK_SCALINGS:
            return cls(rows, problem.N, problem.K, min(SCALE_BLOCK, problem.K), True)
        by_k = problem.fusion is not None and problem.fusion.prologue == "scale-k"
        return cls(rows, problem.N, problem.K, problem.K, alike=ALIKE if by_k else None)


def arrange(problem: Gemm, a: Tensor, b: Tensor) -> dict[str, Tensor]:
    """The operands a and b (and c and d) of ``problem`` from those of its :class:`PlainProduct`."""
    if problem.op == "mm_plus_mm":
        k = problem.K
        return {"a": a[:, :k], "b": b[:k], "c": a[:, k:], "d": b[k:]}
    if problem.op == "dual_mm":
        return {"a": a, "b": b[:, : problem.N], "d": b[:, problem.N :]}
    if problem.batch is None:
        return {"a": a, "b": b}
    in_a, in_b = _pools(problem)
    index = torch.arange(problem.batch)
    matrices_a = a.reshape(in_a, problem.M, problem.K)
    matrices_b = b.reshape(problem.K, in_b, problem.N).transpose(0, 1)
    return {"a": matrices_a[index % max(in_a, 1)], "b": matrices_b[index % max(in_b, 1)]}


def period(problem: Gemm) -> int:
    """Matrices of a batch after which both operands repeat."""
    in_a, in_b = _pools(problem)
    return max(1, int(np.lcm(in_a, in_b)))


def _pools(problem: Gemm) -> tuple[int, int]:
    assert problem.batch is not None
    shared = (problem.layout_a.batch == "zero", problem.layout_b.batch == "zero")
    in_a, in_b = (min(problem.batch, 1 if one else count) for one, count in zip(shared, POOLS, strict=True))
    return in_a, in_b


@dataclass(frozen=True)
class Range:
    """The integers, times a power of two, that an operand can hold in every format that it passes through.

    ``bits`` of significand; the exponents of the smallest normal number (``emin``) and of the largest power of two;
    whether one of the formats is an integer format, and whether all of them hold negative numbers. ``part``: the bits
    of one part where operands are split (see :class:`~conformance.numerics.contract.Split`), otherwise ``bits``.
    """

    bits: int
    emin: int
    max_exponent: int
    integer: bool
    signed: bool
    part: int

    @property
    def top(self) -> int:
        """The largest integer up to which the significand holds every one."""
        return int(2**self.bits) - 1

    def units(self, largest: int) -> tuple[int, int]:
        """Lowest and highest exponent of the unit, for integers up to ``largest``."""
        return (0, 0) if self.integer else (self.emin, self.max_exponent - max(self.bits, largest.bit_length()))


def formats(problem: Gemm, contract: Contract, name: str) -> tuple[str, ...]:
    """The formats that the values of operand a, b, c or d pass through before they are multiplied, in this order.

    That of the operand in memory; that of the product, if a prologue or a mixed product converts to it; tf32, if the
    contract says that the unit sees fp32 operands so."""
    stored = problem.operand(name).dtype
    converted = problem.converts_b or (problem.fusion is not None and problem.fusion.prologue == "cast")
    forms = (stored, problem.dtype) if converted and stored != problem.dtype else (stored,)
    return (*forms, "tf32") if (forms[-1], contract.operand) == ("fp32", "tf32") else forms


def value_range(problem: Gemm, contract: Contract, name: str) -> Range:
    """Returns the :class:`Range` of operand ``name``. Of one that is split, no part may be subnormal or infinite."""
    forms = [FORMATS[form] for form in formats(problem, contract, name)]
    bits = min(form.significand for form in forms)
    emin, top = max(form.emin for form in forms), min(form.max_exponent for form in forms)
    part = bits
    if (split := contract.split) is not None:
        bits, part, emin, top = min(bits, split.bits), min(bits, split.part_bits), emin + split.bits, top - 1
    integer, signed = any(form.lowest is not None for form in forms), all(form.lowest != 0 for form in forms)
    return Range(bits, emin, top, integer, signed, part)


def paired_ranges(problem: Gemm, contract: Contract, wide: str) -> tuple[Range, Range]:
    """The ranges of A and B whose products are exact: where operands are split, only the one named ``wide`` has more
    than one part."""
    a, b = (value_range(problem, contract, name) for name in "ab")
    if wide == "a":
        return a, replace(b, bits=b.part)
    return replace(a, bits=a.part), b


#: Exponents of the row scales of A and B, of which each scale draws one, and of the tensor scales. The products of
#: two scales are not all 1.
ROW_SCALES = {"scale_a": (1, 2), "scale_b": (-2, -1)}
TENSOR_SCALES = {"scale_a": (1,), "scale_b": (-2,)}
#: Exponents of scales that serve 128 rows or columns. There are three of each, so that neighbouring blocks always
#: differ.
BLOCK_SCALES = {"scale_a": (1, 2, 3), "scale_b": (-3, -2, -1)}
#: Exponents of the scales of a prologue, and the prologue that has each.
PROLOGUE_SCALES = (1, 2)
PROLOGUES = {"row_scale": "scale", "k_scale": "scale-k"}
#: Consecutive k to which exact fills give one scale.
ALIKE = 8


def scale_exponents(problem: Gemm, name: str) -> tuple[int, ...]:
    """The exponents that exact fills give to a scale; (0,) for one that the problem does not have."""
    if name in PROLOGUES:
        has = problem.fusion is not None and problem.fusion.prologue == PROLOGUES[name]
        return PROLOGUE_SCALES if has else (0,)
    if problem.scaling is None:
        return (0,)
    if problem.scaling == "tensor":
        return TENSOR_SCALES[name]
    whole = problem.scaling != "row" and problem.scaling.split("/")[name == "scale_b"] == "128x128"
    return (BLOCK_SCALES if whole else ROW_SCALES)[name]


def draw_exponents(problem: Gemm, name: str, shape: tuple[int, ...], draws: Draws) -> Integers:
    """Exponents of a scale, at random; scales of whole blocks differ from their neighbours in both directions."""
    exponents = scale_exponents(problem, name)
    if name == "k_scale":
        drawn = np.asarray(exponents)[draws.below(len(exponents), (-(-problem.K // ALIKE),))]
        return np.repeat(drawn, ALIKE)[: problem.K]
    choice = draws.below(len(exponents), shape)
    if len(exponents) == 3:
        for line, column in np.ndindex(*choice.shape):
            neighbours = {int(choice[line - 1, column])} if line else set()
            neighbours |= {int(choice[line, column - 1])} if column else set()
            while int(choice[line, column]) in neighbours:
                choice[line, column] = (choice[line, column] + 1) % 3
    chosen: Integers = np.asarray(exponents)[choice]
    return chosen


def draw_rows(problem: Gemm, draws: Draws) -> Tensor:
    """Returns the number of the stored row that becomes each row of a gathered A: never its own number, some more than
    once. Returns the row to which each row of the result is scattered. It is a permutation of one cycle, so it differs
    from its inverse and moves every row."""
    if problem.fusion is not None and problem.fusion.prologue == "scatter":
        cycle = draws.permutation(problem.M)
        target = np.empty(problem.M, dtype=np.int32)
        target[cycle] = np.roll(cycle, -1)
        return torch.from_numpy(target)
    stored = problem.operand("a").shape[0]
    rows = draws.below(stored - 1, (problem.M,))
    rows += rows >= np.arange(problem.M)
    return torch.from_numpy(rows).to(torch.int32)


def operand_tensors(
    problem: Gemm,
    draws: Draws,
    *,
    matrix: Callable[[str], Tensor],
    addend: Callable[[Operand], Tensor],
    scale: Callable[[Operand], Tensor],
) -> dict[str, Tensor]:
    """Every operand of ``problem`` by name, in its order.

    ``matrix("a")`` and ``matrix("b")`` are the operands of the :class:`PlainProduct`, ``addend`` makes a bias or
    residual, ``scale`` a scale. Row numbers and masks are drawn here. Matrices that alpha == 0 ignores are NaN.
    """
    matrices = arrange(problem, matrix("a"), matrix("b")) if problem.alpha != 0 else {}
    inputs: dict[str, Tensor] = {}
    for operand in problem.operands:
        if operand.name in ("a", "b", "c", "d"):
            inputs[operand.name] = matrices[operand.name] if matrices else ignored(operand)
        elif operand.name in ("bias", "residual"):
            inputs[operand.name] = addend(operand)
        elif operand.name == "rows":
            inputs["rows"] = draw_rows(problem, draws)
        elif operand.name == "mask":
            inputs["mask"] = torch.from_numpy(draws.chance(0.5, operand.shape).astype(np.uint8))
        else:
            inputs[operand.name] = scale(operand)
    return inputs


def ignored(operand: Operand) -> Tensor:
    """NaN throughout: for an operand that the problem must not let through."""
    return round_to(torch.full(operand.shape, math.nan, dtype=torch.float64), operand.dtype)
