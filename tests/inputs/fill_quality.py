"""The parts that tests of fills share: usual contracts, the check of operands, and how much a fill shows."""

import torch

from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import Gemm
from conformance.numerics.contract import FMA, INT32, Accumulator, Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import DTYPES, FP8, Problem

#: An fp8 accumulator that never promotes.
NARROW = Accumulator(alignment_bits=13, result_bits=13, chunk=32)


def contract_of(problem: Problem, accumulator: Accumulator | None = None) -> Contract:
    """A contract of the usual unit for the problem's dtype, or of ``accumulator``."""
    ieee = problem.dtype == "fp32" and problem.precision == "ieee"
    usual = INT32 if problem.op == "int_mm" else NARROW if problem.dtype in FP8 else FMA if ieee else Accumulator()
    operand = "tf32" if problem.dtype == "fp32" and not ieee else "exact"
    return Contract(problem.output_dtype, accumulator or usual, operand)


def check_operands(problem: Problem, fill: Fill) -> None:
    """Asserts that the fill has exactly the problem's operands, in their shapes and dtypes."""
    operands: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        o.name: (o.shape, DTYPES[o.dtype]) for o in problem.operands
    }
    assert {name: (tuple(t.shape), t.dtype) for name, t in fill.inputs.items()} == operands


def check_promises(problem: Gemm, fill: Fill, nonzero: float = 0.5) -> None:
    """Asserts what every fill of a product promises. ``nonzero``: the least share of elements that are not 0."""
    check_operands(problem, fill)
    shares = visible_shares(fill, problem)
    assert shares["nonzero"] > nonzero
    if fill.name == "transparent" and problem.op != "dual_mm":  # of which no output is a sum
        assert shares["transparent"] >= 0.95
    if fill.method != "exact":
        assert fill.error is not None
        finite = fill.expected.isfinite()
        assert bool((fill.error[finite] >= 0).all())
        assert bool(finite.any())
        return
    assert fill.error is None
    assert fill.meta["max_subset_sum"] < 2 ** fill.meta["budget_bits"]
    if problem.op != "int_mm":
        # what is promised of every order of summation holds at least for plain fp32
        for value in (gemm.product(problem, fill.inputs), fill.expected):
            assert torch.equal(round_to(value, "fp32").double(), value)


def visible_shares(fill: Fill, problem: Problem) -> dict[str, float]:
    """Returns the share of elements of the first output that are not zero ("nonzero"). Exact fills that state their
    unit also have the share that shows a change of one unit after the rounding to the output ("transparent")."""
    size = max(1, fill.expected.numel())
    rounded = round_to(fill.expected, problem.output_dtype).double()
    shares = {"nonzero": float((rounded != 0).sum()) / size}
    if fill.method == "exact" and "unit_out" in fill.meta:
        limit = 2.0 ** (FORMATS[problem.output_dtype].significand + fill.meta["unit_out"])
        shares["transparent"] = float((fill.expected.abs() <= limit).sum()) / size
    return shares
