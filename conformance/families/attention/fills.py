"""Fills of attention, forward and backward.

"selector": the keys are codes of +-1 and every query is the code of one key. So one score is 0, and all others are so
low that their probabilities are 0. The output is a row of v, bit by bit. "tie": several keys share a code. "uniform":
queries and keys live in different dimensions, so that all scores are 0 and all probabilities equal. In all three a
wrong mask, a wrong index or a narrow sum shows at once, and no rounding hides it. "randn", "hot" (exact scores far from
zero that rise or fall, see :func:`.far_scores`) and "special" are judged by the bounds of
``numerics.attention_bounds``.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import exact as attention_exact
from conformance.families.attention import reference as meaning
from conformance.families.attention import special as attention_special
from conformance.families.attention.operands import (
    SCALED,
    codes,
    documents,
    format_of,
    in_pages,
    one_fill,
    scales_of,
    slopes_of,
)
from conformance.families.attention.problem import Attention
from conformance.inputs.fills import Draws, FillKind, FillRequest, FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import round_to
from conformance.problems import EVERY_FP8


def left_out(problem: Attention, contract: Contract) -> dict[str, str]:
    """The fills that ``problem`` does not have, and why: they cannot be built, or would show nothing that another does
    not. Without "levels", which only problems of fp8 have."""
    reasons: dict[str, str] = {}
    if codes(problem, contract) is None:
        too_few = "keys cannot have different codes: few dims for many keys, or a scale that is extreme or not positive"
        reasons |= {"selector": too_few, "tie": too_few}
    elif problem.keys == 1 or (problem.mask.size == 1 and not problem.mask.packed):
        one_key = "each query sees one key, as in {}"
        reasons |= {"uniform": one_key.format("tie" if problem.backward else "selector")}
        reasons |= {} if problem.backward else {"tie": one_key.format("selector")}
    if problem.backward:
        reasons["selector"] = "probabilities that the backward pass takes from lse are 1 for all tied keys: see tie"
    if attention_exact.far_plan(problem, contract) is None:
        reasons["hot"] = "no exact scores lie far from zero: too few or too many dims, an extreme scale, or fp8"
    if not attention_special.has_room(problem):
        reasons["special"] = f"special values need {attention_special.LEAST} rows, keys and dims"
    return reasons


def applicable(problem: Attention, contract: Contract) -> tuple[str, ...]:
    """The fills that are not :func:`left_out`; "levels" where fp8 values give such scores."""
    without = {*left_out(problem, contract)}
    if attention_exact.levels_plan(problem, _gain(problem)) is None:
        without.add("levels")
    return tuple(name for name in FILLS.names if name not in without)


def build(request: FillRequest[Attention]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`. It is that of the first output, the others are its
    parts. Documents are the same in all fills of a seed."""
    if request.problem.page:
        fill = build(dataclasses.replace(request, problem=request.problem.contiguous))
        return in_pages(request.problem, fill)
    draws, inputs = request.draws("attention"), documents(request.problem, request.seed)
    if request.name == "levels":
        return _two_levels(request, draws, inputs)
    if request.name in ("randn", "hot"):
        return _bounded(request, draws, inputs)
    if request.name == "special":
        return attention_special.special(request, draws, inputs)
    exact = attention_exact.backward if request.problem.backward else attention_exact.forward
    return exact(request, draws, inputs)


#: Powers of two that are the scales of q, k and v in the fill of two levels.
LEVEL_SCALES = (1, 2, -3)


def _gain(problem: Attention) -> float:
    return 2.0 ** sum(LEVEL_SCALES[:2]) if problem.scaled else 1.0


def _two_levels(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    problem = request.problem
    inputs |= attention_exact.levels(problem, _gain(problem), draws) | scales_of(problem, draws, LEVEL_SCALES)
    if problem.score.kind == "alibi":
        inputs["slopes"] = slopes_of(problem, draws, request.name)
    exact, unit = meaning.forward(problem, inputs, device=request.device), attention_exact.unit(problem)
    errors = attention_bounds.forward_error(problem, request.contract, exact, exact_products=True, unit=unit)
    return one_fill(request, inputs, exact.outputs, errors)


#: Binary places by which q of fp8 is smaller than k among near-normal values.
FP8_SMALLER = 2


def _bounded(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    problem, contract, far = request.problem, request.contract, request.name == "hot"
    form = format_of(problem, contract)
    if far:
        inputs |= attention_exact.far_scores(problem, contract, draws)
    for operand in ("v",) if far else ("q", "k", "v"):
        # sums of fp8 products may keep few bits: scores are small, so that their bound says something
        smaller = FP8_SMALLER if operand == "q" and problem.dtype in EVERY_FP8 else 0
        values = np.ldexp(draws.normal(problem.operand(operand).shape), (SCALED if problem.scaled else 0) - smaller)
        inputs[operand] = round_to(torch.from_numpy(values), form)
    inputs |= scales_of(problem, draws)
    if problem.score.kind == "alibi":
        inputs["slopes"] = slopes_of(problem, draws, request.name)
    if not problem.backward:
        exact = meaning.forward(problem, inputs, device=request.device)
        errors = attention_bounds.forward_error(problem, contract, exact, exact_products=far)
        return one_fill(request, inputs, exact.outputs, errors)
    forward = meaning.forward(dataclasses.replace(problem, op="attention"), inputs, device=request.device)
    inputs["out"] = round_to(forward.out.cpu(), problem.operand("out").dtype)
    inputs["lse"] = round_to(forward.lse.cpu(), "fp32")
    inputs["grad_out"] = round_to(torch.from_numpy(draws.normal(problem.operand("grad_out").shape)), form)
    gradients = meaning.backward(problem, inputs, device=request.device)
    bounds = attention_bounds.backward_error(problem, contract, gradients, exact_products=far)
    return one_fill(request, inputs, gradients.outputs, bounds)


FILLS = FillSet(
    (
        FillKind(
            "selector",
            True,
            "keys that are codes of +-1; every query is the code of one key that it sees",
            "a wrong mask, index or head: the output is a row of v, bit by bit",
        ),
        FillKind("tie", True, "several keys that share a code", "keys that are left out or counted twice"),
        FillKind(
            "uniform", True, "queries and keys in different dimensions: all probabilities are equal", "narrow sums"
        ),
        FillKind("randn", False, "near-normal values", "errors past the bound at usual values"),
        FillKind(
            "hot",
            False,
            "exact scores 200 above or below zero, under a soft cap around it, that rise or fall over the keys",
            "softmax without the maximum, a wrong maximum or rescaling, a narrow scale or tanh",
        ),
        FillKind(
            "levels",
            False,
            "of fp8 operands: scores of two levels, values of one sign in each column",
            "weights that are cut, or rounded to a format of fewer bits",
        ),
        FillKind(
            "special",
            False,
            "NaN, infinities, -0, subnormals and large values in rows, keys and values of their own",
            "lost NaN, masked keys that are seen, a maximum that is not one",
        ),
    ),
    applicable,
    build,
)
