"""From the integers of a plain product to a fill: units, tensors, the right result, and the check of what is promised.

Every fill is checked here against the budget of :mod:`.integer_budget`, and its reference in integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm import arrangement, integer_budget, wide_scales
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.arrangement import Product
from conformance.families.gemm.bounds import epilogue_bound
from conformance.families.gemm.integer_budget import IntegerBudget, budget_of, exactly
from conformance.families.gemm.problem import Gemm
from conformance.inputs.draws import Draws, Integers
from conformance.inputs.fill_set import FillError, FillRequest
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS
from conformance.problems import DTYPES, Operand


@dataclass(frozen=True)
class Products:
    """The integers of a fill: ``a`` (rows, k) and ``b`` (k, columns) of the plain product.

    ``shown``: the largest result in units of the products, None for that of any partial sum. Biases and residuals are
    multiples of ``step``, at most ``addend`` (None: the budget's), in units of the output. ``scale_bits``: the bits of
    each element of the scales by name; without it scales are powers of two.
    """

    a: Integers
    b: Integers
    shown: int | None = None
    step: int = 1
    addend: int | None = None
    scale_bits: Mapping[str, Integers] | None = None


@dataclass(frozen=True)
class _Units:
    """Exponents of the units of A, B and the output."""

    a: int
    b: int
    out: int


def assemble(request: FillRequest[Gemm], draws: Draws, products: Products) -> Fill:
    """Returns the fill of ``products``. It is judged bit for bit, or, where the epilogue rounds, by the epilogue's own
    error.

    Raises FillError if a sum or an operand does not fit, or if the reference is wrong.
    """
    problem, contract = request.problem, request.contract
    budget = budget_of(problem, contract)
    largest_in_chunk, largest = _measured_sums(request, budget, products)
    integer_budget.check_budget(problem, contract, request.name, largest_in_chunk, largest)
    units = _units(request, budget, products, largest if products.shown is None else products.shown)
    inputs = _inputs(request, budget, draws, products, units)
    meta = {
        "unit_a": units.a,
        "unit_b": units.b,
        "unit_out": units.out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest_in_chunk,
        "max_subset_sum_total": largest,
    }
    if problem.dtype == "int8":  # below that, sums in fp32 would be right
        meta["exceeds_fp32"] = largest > 2 ** FORMATS["fp32"].significand
    expected = _expected(request, inputs, units, products)
    if integer_budget.allows_exact(problem):
        return request.fill("exact", inputs, expected, None, meta)
    return request.fill("bounded", inputs, expected, epilogue_bound(problem, contract, expected, inputs), meta)


def _measured_sums(request: FillRequest[Gemm], budget: IntegerBudget, products: Products) -> tuple[int, int]:
    """max(P, N) in one chunk and in all."""
    sides = products.a, products.b
    a_int, b_int = (torch.from_numpy(np.ascontiguousarray(side)).to(request.device or "cpu") for side in sides)
    chunk = budget.chunk if request.problem.has_product else 1
    return integer_budget.subset_sums(a_int, b_int, chunk, Product.of(request.problem).segment)


def _units(request: FillRequest[Gemm], budget: IntegerBudget, products: Products, shown: int) -> _Units:
    problem, contract = request.problem, request.contract
    addend = budget.addend if products.addend is None else products.addend
    # two scales of significands below 2
    largest = shown if products.scale_bits is None else 4 * shown
    out = integer_budget.output_unit(problem, contract, budget, largest, addend)
    epilogue = integer_budget.epilogue_exponent(problem)
    sizes = (int(np.abs(products.a).max(initial=0)), int(np.abs(products.b).max(initial=0)))
    a, b = integer_budget.operand_units(problem, contract, out - epilogue, sizes)
    return _Units(a, b, a + b + epilogue)


def _inputs(
    request: FillRequest[Gemm], budget: IntegerBudget, draws: Draws, products: Products, units: _Units
) -> dict[str, Tensor]:
    problem = request.problem

    def matrix(name: str) -> Tensor:
        integers, unit = (products.a, units.a) if name == "a" else (products.b, units.b)
        return exactly(integers, unit, problem.operand(name), arrangement.formats(problem, request.contract, name))

    def addend(operand: Operand) -> Tensor:
        if operand not in integer_budget.addends(problem):
            return arrangement.ignored(operand)
        most = (budget.addend if products.addend is None else products.addend) // products.step
        if not most:
            return torch.zeros(operand.shape, dtype=DTYPES[operand.dtype])
        unit = units.out - integer_budget.addend_exponent(problem, operand)
        return exactly(products.step * draws.nonzero(most, operand.shape), unit, operand, (operand.dtype,))

    def scale(operand: Operand) -> Tensor:
        exponents = arrangement.draw_exponents(problem, operand.name, operand.shape, draws)
        significand = np.ones(operand.shape)
        if products.scale_bits is not None:
            significand = wide_scales.significands(products.scale_bits[operand.name], draws)
        return exactly(significand, exponents, operand, (operand.dtype,))

    return arrangement.operand_tensors(problem, draws, matrix=matrix, addend=addend, scale=scale)


def _expected(request: FillRequest[Gemm], inputs: dict[str, Tensor], units: _Units, products: Products) -> Tensor:
    """The value of the reference, whose product is checked in integers. Raises FillError if that is wrong."""
    problem, device = request.problem, request.device
    raw = gemm.product(problem, inputs, device=device)
    if problem.has_product:
        factors = gemm.factors(problem, inputs, device=device)
        below = 0 if products.scale_bits is None else wide_scales.WIDEST - 1
        if not _is_product(problem, factors, raw, _factor_units(problem, units, below), request.seed):
            raise FillError(
                f"{problem.id}, fill {request.name}, seed {request.seed}: the fp64 reference is not A @ B (Freivalds)"
            )
    return gemm.epilogue(problem, inputs, raw)


def _is_product(problem: Gemm, factors: tuple[Tensor, Tensor], raw: Tensor, units: tuple[int, int], seed: int) -> bool:
    """True if ``raw`` is the product of ``factors`` (fp64; integers in these units), by :func:`gemm.freivalds`."""
    a, b = factors
    if problem.batch is not None:  # a large batch repeats itself
        repeat = arrangement.period(problem)
        if not torch.equal(raw[repeat:], raw[:-repeat]):
            return False
        a, b, raw = a[:repeat], b[:repeat], raw[:repeat]
    a_int, b_int, raw_int = (
        (values * 2.0**-unit).to(torch.int64) for values, unit in ((a, units[0]), (b, units[1]), (raw, sum(units)))
    )
    return gemm.freivalds(a_int, b_int, raw_int, seed)


def _factor_units(problem: Gemm, units: _Units, below: int) -> tuple[int, int]:
    """Units of the factors of the reference: with the scales that are part of them, which have so many bits ``below``
    the leading one."""
    unit_a = units.a + sum(min(arrangement.scale_exponents(problem, name)) for name in arrangement.PROLOGUES)
    unit_b = units.b
    if Product.of(problem).scaled:
        unit_a += min(arrangement.scale_exponents(problem, "scale_a")) - below
        unit_b += min(arrangement.scale_exponents(problem, "scale_b")) - below
    return unit_a, unit_b
