"""The outputs that a tensor core allows a problem, and the check that an output is one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from conformance.families.family import family_of
from conformance.families.products import Inputs, seen_format
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.measured_units import KnownUnit
from conformance.numerics.rounding import bits, round_to
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.verdict import FillVerdict, label
from conformance.problems import EVERY_FP8, Problem


def operand_name(problem: Problem) -> str:
    """Returns the name of what the unit multiplies: the key of ``FORMATS`` of both operands, or "a*b" where they
    differ."""
    first = seen_format(problem, problem.dtype)
    second = getattr(problem, "second_dtype", problem.dtype) if problem.dtype in EVERY_FP8 else problem.dtype
    return first if second == problem.dtype else f"{first}*{second}"


def knows_unit(problem: Problem) -> bool:
    """True if :func:`results` can follow the operation of ``problem`` with operands of a tensor core."""
    if (problem.dtype == "fp32" and problem.precision != "tf32") or problem.dtype in ("int8", "fp64"):
        return False
    answers = family_of(problem).unit
    return answers is not None and answers.knows(problem)


def unit_results(problem: Problem, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the fp32 values before the output rounding that ``unit`` allows, each in the first output's shape, on the
    device of ``inputs``. These are dense operands by name, finite.

    An element may be any of those in its place. Raises TypeError for a problem that :func:`knows` refuses.
    """
    answers = family_of(problem).unit
    if answers is None or not knows_unit(problem):
        raise TypeError(f"{problem.id}: the bits of its operation are not known")
    return answers.results(problem, order, unit, inputs)


def rounded_results(values: Sequence[Tensor], dtype: str, overflow: str) -> Tensor:
    """``values`` in the output's ``dtype``, one behind the other."""
    return torch.stack([round_to(value.double(), dtype, overflow=overflow) for value in values])


#: Products of a problem above which its bits are not computed: a GPU takes about a second for as many.
MOST_PRODUCTS = 1 << 35
#: Elements of its operands and output above which they are not: each takes some 40 bytes of a device that others share.
MOST_ELEMENTS = 1 << 25

CPU = torch.device("cpu")


@dataclass(frozen=True)
class UnitModel:
    """The bits that a kernel owes: its ``order``, and the figures of the ``unit`` that it runs on. ``move`` takes
    tensors to the ``device`` that computes them."""

    problem: Problem
    contract: Contract
    order: SumOrder
    unit: KnownUnit
    device: torch.device = CPU
    move: Callable[[Tensor], Tensor] = field(default=lambda tensor: tensor, compare=False, repr=False)

    def allowed(self, fill: Fill) -> Tensor | None:
        """The bits that the first output of ``fill`` may have, (choices, *shape) on the device, with 0 for -0; kept
        with the fill. None for a fill that is judged bit by bit already, or that holds values which are not finite.
        None, too, if its sums may leave fp32's range, past which the model knows nothing."""
        key = ("unit", self.order, self.unit, self.contract, self.device)
        if key not in fill.cache:
            predictable = fill.method == "bounded" and _stays_in_range(self.problem, fill)
            fill.cache[key] = self._allowed(fill) if predictable else None
        allowed: Tensor | None = fill.cache[key]
        return allowed

    def _allowed(self, fill: Fill) -> Tensor:
        inputs = {name: self.move(values) for name, values in fill.inputs.items()}
        values = unit_results(self.problem.dense, self.order, self.unit.unit, inputs)
        return comparable(rounded_results(values, self.contract.out_dtype, self.contract.overflow))


def _stays_in_range(problem: Problem, fill: Fill) -> bool:
    """True if every result is finite and no product, sum or scaled sum can leave fp32's range, whatever its order.
    Operands that contribute nothing may hold NaN."""
    if not bool(fill.expected.isfinite().all()):
        return False
    sizes = {name: values.double().abs() for name, values in fill.inputs.items() if values.numel()}
    largest = {name: float(torch.where(size.isnan(), 0.0, size).max()) for name, size in sizes.items()}
    sides = (("a", "c", "x"), ("b", "d", "w", "grad_out"))
    first, second = (max(largest.get(name, 0.0) for name in names) for names in sides)
    names = ("scale_a", "scale_b", "row_scale", "k_scale", "bias", "residual")
    after = math.prod(max(1.0, largest.get(name, 0.0)) for name in names)
    depth = max(operand.numel for operand in problem.operands)
    factors = max(1.0, abs(getattr(problem, "alpha", 1.0)), abs(getattr(problem, "beta", 1.0)))
    return bool(first * second * depth * after * factors < 2.0**120)


def can_model(problem: Problem, contract: Contract) -> bool:
    """Returns True if the bits of ``problem`` follow from an order and a unit. Its operation must be known, and it must
    not be too large for the model."""
    answers = family_of(problem).unit
    if answers is None or contract.flushes_subnormals or not knows_unit(problem) or not problem.output.numel:
        return False
    elements = sum(operand.numel for operand in problem.tensors)
    return elements <= MOST_ELEMENTS and answers.products(problem) <= MOST_PRODUCTS


def differing(allowed: Tensor, out: Tensor) -> Tensor:
    """Returns a mask of the elements of ``out`` (..., *shape; elements or their bits) that have none of the ``allowed``
    bits."""
    pattern = comparable(out)
    different = pattern != allowed[0]
    for choice in allowed[1:]:
        different &= pattern != choice
    return different


def with_bits(verdict: FillVerdict, model: UnitModel, fill: Fill, out: Tensor) -> FillVerdict:
    """``verdict``, which the bound gave about ``out`` of ``fill``, and what the unit's bits say.

    On a proven unit other bits fail. On another one they are said and fail nothing. Where the model says nothing of the
    fill, the verdict is returned as it is.
    """
    allowed = model.allowed(fill)
    if allowed is None:
        return verdict
    allowed = allowed.cpu()
    different = differing(allowed, out)
    count = int(different.sum())
    judged = with_count(verdict, model, count)
    if not count or not model.unit.proven or not verdict.passed:
        return judged
    position = int(different.flatten().to(torch.uint8).argmax())
    first = tuple(int(i) for i in np.unravel_index(position, different.shape))
    got = float(out[first].double())
    choices = sorted({float(choice[first].view(out.dtype).double()) for choice in allowed})
    text = (
        f"FAIL {label(model.contract, verdict.method, verdict.fill, verdict.seed)}: {count}/{verdict.total} within the "
        f"bound, but with other bits than the tensor core makes, first {list(first)} got {got:.9g} want "
        f"{' or '.join(f'{choice:.9g}' for choice in choices)}"
    )
    return replace(judged, passed=False, wrong=count, first=first, got=got, want=choices[0], text=text, bad=different)


def with_count(verdict: FillVerdict, model: UnitModel, count: int) -> FillVerdict:
    """``verdict`` with a word about the ``count`` of elements that have other bits than ``model`` allows."""
    if not count:
        text = "all have the bits that the tensor core makes"
    elif model.unit.proven:
        text = f"{count} have other bits than the tensor core makes"
    else:
        text = f"{count} have other bits than the model of the tensor core, which is not proven for this device"
    return replace(verdict, other_bits=count, text=f"{verdict.text}; {text}")


def comparable(values: Tensor) -> Tensor:
    """Returns the bits of ``values``, or bits, with 0 for -0."""
    pattern = bits(values) if values.dtype.is_floating_point else values
    return torch.where(pattern == torch.iinfo(pattern.dtype).min, 0, pattern)
