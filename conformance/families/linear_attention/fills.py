"""Fills of gated linear attention. Exact ones have decays that are powers of two or 0. The operands' dtype holds their
states and scores, wherever a kernel rounds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from conformance.families.linear_attention.problem import LinearAttention
from conformance.families.linear_attention.reference import LinearValues, evaluated, linear_attention_error
from conformance.inputs.fills import Draws, FillError, FillKind, FillRequest, FillSet, Floats
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to

ROUTES = FillKind(
    "routes",
    True,
    "each position writes one row of the state and reads one; values are unlike integers",
    "a position, dim or head that is taken for another; a decay that is lost or comes twice",
)
SUMS = FillKind(
    "sums",
    True,
    "ones of both signs in q and k, as many as the states hold",
    "a wrong, missing or double product",
)
RANDN = FillKind("randn", False, "near-normal values under decays of any bits", "errors past the bound")

#: By how many powers of two the decays of exact fills may move a term, at most, and how often a decay is 0.
REACH, RESETS = 2, 1 / 8
#: Elements of out that are not zero in an exact fill, at least.
SHOWN = 0.1
#: How often an exact fill is made sparser or smaller before it is given up.
ATTEMPTS = 12
#: The initial state of exact fills has integers up to this.
INITIAL = 3


def applicable(problem: LinearAttention, contract: Contract) -> tuple[str, ...]:
    """All of them; without a position only "sums", whose state is the initial one."""
    return FILLS.names if problem.has_product else ("sums",)


def build(request: FillRequest[LinearAttention]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`."""
    if request.name == "randn":
        return _randn(request)
    return _exact(request, _routes if request.name == "routes" else _sums)


def _shape(problem: LinearAttention, name: str) -> tuple[int, ...]:
    return problem.operand(name).shape


def _decays(problem: LinearAttention, draws: Draws) -> Floats:
    """Powers of two whose products over successive chunks stay within REACH powers, and some zeros, but not in the
    first chunk: every position reads something."""
    shape = _shape(problem, "decay")
    places = draws.below(REACH + 1, (*shape[:-1], shape[-1] + 1))
    decays = np.ldexp(1.0, np.diff(places, axis=-1))
    reset = draws.chance(RESETS, shape)
    reset[..., :1] = False
    return np.where(reset, 0.0, decays)


def _routes(problem: LinearAttention, draws: Draws, attempt: int, bits: int) -> dict[str, Floats]:
    """One element of each row of q and k. Values of ``bits`` bits, less with each attempt."""
    arrays = {}
    for name in "qk":
        shape = _shape(problem, name)
        arrays[name] = np.zeros(shape)
        rows = draws.below(problem.head_dim, (*shape[:-1], 1))
        np.put_along_axis(arrays[name], rows, draws.signs(rows.shape).astype(np.float64), -1)
    largest = max(2 ** (bits - 2 - attempt) - 1, 1)
    arrays["v"] = draws.nonzero(largest, _shape(problem, "v")).astype(np.float64)
    return arrays


def _sums(problem: LinearAttention, draws: Draws, attempt: int, bits: int) -> dict[str, Floats]:
    """Ones in half of q and, with each attempt half as many, in k; values up to 3."""
    arrays = {}
    for name, share in (("q", 0.5), ("k", 0.5**attempt)):
        shape = _shape(problem, name)
        arrays[name] = np.asarray(draws.signs(shape) * draws.chance(share, shape), np.float64)
    arrays["v"] = draws.nonzero(3, _shape(problem, "v")).astype(np.float64)
    return arrays


def _exact(
    request: FillRequest[LinearAttention], draw: Callable[[LinearAttention, Draws, int, int], dict[str, Floats]]
) -> Fill:
    problem, contract = request.problem, request.contract
    form = contract.intermediate or problem.dtype
    for attempt in range(ATTEMPTS):
        draws = request.draws(f"attempt {attempt}")
        arrays = draw(problem, draws, attempt, FORMATS[form].significand)
        arrays["decay"] = _decays(problem, draws)
        arrays["initial"] = draws.nonzero(INITIAL, _shape(problem, "initial")).astype(np.float64)
        inputs = _inputs(problem, arrays)
        exact = evaluated(problem, inputs, device=request.device)
        shown = float((exact.out != 0).double().mean()) if exact.out.numel() else 1.0
        if shown >= SHOWN and _held(problem, contract, inputs, exact, form):
            break
    else:
        raise FillError(
            f"{problem.id}, fill {request.name}, seed {request.seed}: no values that {form} holds and that show"
        )
    return _fill(request, "exact", inputs, exact, (None, None))


def _inputs(problem: LinearAttention, arrays: dict[str, Floats]) -> dict[str, Tensor]:
    return {
        operand.name: round_to(torch.from_numpy(np.ascontiguousarray(arrays[operand.name])), operand.dtype)
        for operand in problem.operands
    }


def _held(
    problem: LinearAttention, contract: Contract, inputs: dict[str, Tensor], exact: LinearValues, form: str
) -> bool:
    """Returns True if ``form`` holds each state and score, and the accumulator every sum, in whatever order. For that
    the sums of absolute values are below 2**bits of the smallest unit."""
    q, k = (inputs[name].to(exact.out.device).double() for name in "qk")
    rounded = [exact.states, q @ k.mT]
    if not all(bool((round_to(values, form).double() == values).all()) for values in rounded):
        return False
    sizes = evaluated(problem, inputs, device=exact.out.device, magnitudes=True)
    largest = max(float(values.max()) if values.numel() else 0.0 for values in (sizes.states, sizes.out))
    return largest * 2.0**REACH < 2.0**contract.accumulator.exact_bits


def _randn(request: FillRequest[LinearAttention]) -> Fill:
    """Decays between 1/2 and 1, and initial states, with all bits of fp32."""
    problem, draws = request.problem, request.draws()
    arrays = {name: draws.normal(_shape(problem, name)) for name in ("q", "k", "v", "initial")}
    arrays["decay"] = (1.0 + draws.uniform(_shape(problem, "decay"))) / 2
    inputs = _inputs(problem, arrays)
    exact = evaluated(problem, inputs, device=request.device)
    sizes = evaluated(problem, inputs, device=request.device, magnitudes=True)
    return _fill(
        request, "bounded", inputs, exact, linear_attention_error(problem, request.contract, inputs, exact, sizes)
    )


def _fill(
    request: FillRequest[LinearAttention],
    method: str,
    inputs: dict[str, Tensor],
    exact: LinearValues,
    errors: tuple[Tensor | None, Tensor | None],
) -> Fill:
    meta = {"contract_assumed": request.contract.accumulator.assumed}
    first = request.fill(method, inputs, exact.out, errors[0], meta)
    state = request.fill(method, inputs, exact.state, errors[1], meta)
    return dataclasses.replace(first, parts={"state": state})


FILLS = FillSet((ROUTES, SUMS, RANDN), applicable, build)
