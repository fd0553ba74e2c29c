"""A family without a list of faults gets the usual ones. A diagnosis names one of them if the data prove it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from conformance import reference
from conformance.diagnosis.diagnose import diagnose, needed
from conformance.families.rows import elementwise, functions
from conformance.families.rows.problem import RowProblem
from conformance.families.usual_faults import usual_faults
from conformance.inputs.fills import fills
from conformance.numerics.alterations import Alteration, Tiling, WorkBudget, WrongOutput, explaining
from conformance.numerics.contract import FMA, Contract
from conformance.numerics.error_bounds import Computed, changed_steps, operand, rsqrt
from conformance.numerics.fill import Fill, Seen
from conformance.problems import Operand, Problem

BLOCK = (8, 16, 16)
ROWS = COLUMNS = 21


@dataclass(frozen=True)
class Weighted(Problem):
    """``out = (x + 8 * other) * weight * factor``: matrices and one weight for each column."""

    factor: float = 4.0
    op: str = "weighted"
    dtype: str = "fp32"

    @property
    def operands(self):
        matrix = (ROWS, COLUMNS)
        x, other = (Operand(name, matrix, (COLUMNS + 3, 1), "fp32") for name in ("x", "other"))
        return x, other, Operand("weight", (COLUMNS,), (1,), "fp32")

    @property
    def outputs(self):
        return (Operand("out", (ROWS, COLUMNS), (COLUMNS, 1), "fp32"),)

    @property
    def id(self):
        return f"weighted-{self.factor}"


@reference.value.register
def _weighted(problem: Weighted, inputs, *, device=None):
    x, other, weight = (inputs[name].double() for name in ("x", "other", "weight"))
    return (x + 8 * other) * weight * problem.factor


PROBLEM, CONTRACT = Weighted(), Contract("fp32", FMA)


def weighted_fill():
    generator = torch.Generator().manual_seed(1)
    inputs = {
        part.name: torch.randint(2, 200, part.shape, generator=generator).float() for part in PROBLEM.operands
    }  # no 0, no 1
    return Fill("distinct", "exact", 0, inputs, reference.value(PROBLEM, inputs), None)


def of(**changes):
    """The outputs of changed operands."""
    return lambda inputs: reference.value(PROBLEM, {**inputs, **{name: changes[name](inputs) for name in changes}})


def tail_zeroed(inputs):
    x = inputs["x"].clone()
    x[16:] = 0
    return x


FAULTS = {
    "weight is not applied: it is read as 1": of(weight=lambda i: torch.ones(COLUMNS)),
    "weight is applied twice": of(weight=lambda i: i["weight"] ** 2),
    "1 is added to weight": of(weight=lambda i: i["weight"] + 1),
    "other is left out: it is read as 0": of(other=lambda i: 0 * i["other"]),
    "x and other are exchanged": of(x=lambda i: i["other"], other=lambda i: i["x"]),
    "other is read as x": of(other=lambda i: i["x"]),
    "x is read as 0 from index of dimension 0 16 on": of(x=tail_zeroed),
    "x of another index of dimension 0: the first one is used for all": of(
        x=lambda i: i["x"][:1].expand(ROWS, COLUMNS)
    ),
    "weight is indexed within the block of 16 (index of dimension 0)": of(
        weight=lambda i: i["weight"][torch.arange(COLUMNS) % 16]
    ),
    "factor is left out": lambda i: reference.value(PROBLEM, i) / 4,
    "factor is applied twice": lambda i: reference.value(PROBLEM, i) * 4,
    "weight is added twice (1 more would give the same numbers)": lambda i: reference.value(PROBLEM, i) * 2,
    "the result passes through bf16": lambda i: reference.value(PROBLEM, i).bfloat16(),
    "out holds the sum of the results of each index of dimension 0 up to its own": (
        lambda i: reference.value(PROBLEM, i).cumsum(0)
    ),
    "out holds the difference of its result and that of the index of dimension 0 before": (
        lambda i: reference.value(PROBLEM, i).diff(dim=0, prepend=torch.zeros(1, COLUMNS).double())
    ),
    "out is stored transposed": lambda i: reference.value(PROBLEM, i).T,
    "out: blocks of 8 (index of dimension 1) are exchanged with their neighbours": (
        lambda i: reference.value(PROBLEM, i)[:, [*range(8, 16), *range(8), *range(16, 21)]]
    ),
}


@pytest.mark.parametrize("cause", FAULTS)
def test_a_usual_fault_is_named(cause):
    fill = weighted_fill()
    out = FAULTS[cause](fill.inputs).float()
    assert diagnose(PROBLEM, CONTRACT, fill, out, block=BLOCK).causes == (cause,)


def test_a_few_nan_hide_no_cause():
    fill = weighted_fill()
    cause = "weight is not applied: it is read as 1"
    out = FAULTS[cause](fill.inputs).float()
    out[:2] = torch.nan
    causes = diagnose(PROBLEM, CONTRACT, fill, out, block=BLOCK).causes
    assert causes == (f"{cause}, which explains all but NaN",)
    out[2:8] = torch.nan
    assert diagnose(PROBLEM, CONTRACT, fill, out, block=BLOCK).causes == ()


def test_noise_has_no_cause():
    fill = weighted_fill()
    noise = torch.randint(-3, 4, fill.expected.shape, generator=torch.Generator().manual_seed(2))
    result = diagnose(PROBLEM, CONTRACT, fill, (fill.expected + noise).float(), block=BLOCK)
    assert result.causes == (), result.text


def replayed(problem, **changes):
    """The outputs of a function of rows with other steps, for each of its fills."""
    contract, seen = Contract(problem.output_dtype, FMA), []
    for fill in fills(problem, contract, 3):
        with changed_steps(**changes):
            out = reference.value(problem, fill.inputs)
        seen.append(Seen(fill, {"out": out.to(torch.bfloat16)}))
    return contract, seen


LAST_BLOCK = {"sum": lambda total, x, dim, *more: total(Computed(*(p[..., 32:] for p in parts(x))), dim, *more)}
ONE_LESS = {"mean": lambda mean, x, dim: mean(x, dim) * (41 / 40) if bool((x.low >= 0).all()) else mean(x, dim)}


def parts(quantity):
    return quantity.value, quantity.low, quantity.high


STEPS = {
    "absolute values are taken, not squares": (functions.RMS_NORM, {"square": lambda _, x: x.where(x.value > 0, -x)}),
    "columns 32..40 of 41 alone enter the sums": (functions.L2_NORM, LAST_BLOCK),
    "means of squares are divided by 40, not by 41": (functions.LAYER_NORM, ONE_LESS),
}


@pytest.mark.parametrize("cause", STEPS)
def test_a_faulty_step_of_a_function_of_rows_is_named(cause):
    function, changes = STEPS[cause]
    problem = RowProblem(function, 5, 41)
    contract, seen = replayed(problem, **changes)
    first = seen[0]
    causes = diagnose(problem, contract, first.fill, first.outputs["out"], block=BLOCK, seen=seen).causes
    assert causes == (cause,)


def test_columns_that_are_not_masked_are_named():
    """As zeros they enter the sum of exponentials, which has no mean."""
    problem = RowProblem(functions.SOFTMAX, 5, 41)
    contract, seen = Contract("bf16", FMA), []
    for fill in fills(problem, contract, 3, names=["randn"]):
        x = torch.nn.functional.pad(fill.inputs["x"].double(), (0, 23))
        seen.append(Seen(fill, {"out": torch.softmax(x, -1)[:, :41].to(torch.bfloat16)}))
    (cause,) = diagnose(problem, contract, seen[0].fill, seen[0].outputs["out"], block=BLOCK, seen=seen).causes
    assert cause.startswith("columns 41..63 are not masked: as zeros they enter sums and maxima")


def test_steps_are_changed_inside_alone():
    three = operand(torch.tensor([3.0]))
    with changed_steps(square=lambda square, x: square(square(x))), changed_steps(rsqrt=lambda _, x: x):
        assert (float(three.square().value), float(rsqrt(three).value)) == (81, 3)
    assert float(three.square().value) == 9


def test_a_general_fault_is_not_tried_where_another_one_explains_all():
    fill = weighted_fill()
    out = fill.expected.float() * 2
    evidence = [WrongOutput(fill, "out", "fp32", out, torch.ones_like(out, dtype=torch.bool))]
    own = Alteration("own", lambda inputs: {"out": (fill.expected * 2, None)})
    usual = list(usual_faults(PROBLEM, Tiling(BLOCK)))
    assert explaining([own, *usual], PROBLEM, CONTRACT, evidence, WorkBudget()) == ["own"]
    assert explaining(usual, PROBLEM, CONTRACT, evidence, WorkBudget()) == [
        "weight is added twice (1 more would give the same numbers)"
    ]


def test_a_function_of_single_elements_needs_no_other_column():
    """A program of such a kernel may store a part of a row."""
    stored = torch.arange(5) == 2, torch.arange(41) > 9
    for function, is_whole in ((elementwise.ELEMENTWISE[-1], False), (functions.SOFTMAX, True)):
        problem = RowProblem(function, 5, 41)
        rows, columns = needed(problem, {}, "out", stored)["x"]
        assert rows.equal(stored[0])
        assert columns.equal(torch.ones(41, dtype=torch.bool) if is_whole else stored[1])
