"""Special values in attention, and what must become of each element of the results.

NaN, infinities, -0, subnormals and the largest value lie in rows and keys of their own. What they make of a result:

* A score of NaN makes everything NaN that its query gets, and so does a score of +inf. A key with a score of -inf has
  the weight 0. A soft cap makes an infinite score the cap.
* NaN or infinity in a value is in that column of the output of every query that sees it.
* A masked pair has no part in a result: its score is replaced, so that nothing of q and k reaches out or lse. But its
  weight of 0 may be multiplied with what a value holds, and 0 * NaN is NaN. There both are right, unless the contract
  says that masked pairs are skipped. The same holds of the gradient of a masked score, 0 * (dP - delta).
* Where the contract says that a mask is added to the scores, a masked score may make its row NaN as well.
* A weight that is nearly 0 may have become 0, so that it makes NaN of an infinity. Its key may also have been left out.

Infinities in the backward pass are left out: what they give depends on which weights have become 0.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.operands import format_of, one_fill, scales_of, slopes_of
from conformance.families.attention.problem import Attention
from conformance.families.gemm.fills import plant
from conformance.inputs.fills import Draws, FillError, FillRequest, Floats
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to

#: The fewest rows of all heads, keys and dims that have room for special values.
LEAST = 4
#: A key of less weight, next to a largest weight or sum of 1, may be left out, or its weight may have become 0.
WEIGHS = 2.0**-12
#: The share of the results that special values leave finite, at least.
LEFT = 0.25
#: The largest values, where a format's own are larger. A value of q gives scores up to some five times this. A kernel
#: may round the maximum in base 2 before it subtracts it, which must not be off by more than a fraction of 1. A value
#: of v must not overflow fp32 with a weight above 1, which a maximum that lags behind gives.
LARGEST_SCORE, LARGEST_VALUE = 2.0**16, 2.0**100
#: Of this, tanh is 1 in fp64.
FLAT = 64.0

#: Values at one place each; what leaves least of the results comes last.
FORWARD = ("q nan", "v nan", "v +inf", "q +inf", "v -inf", "q largest", "v largest", "k nan", "k -inf")
BACKWARD = ("k nan", "grad_out nan", "v nan", "out nan", "q nan")
#: Whole rows that stay finite.
ROWS = ("q zero", "k zero", "v zero", "q subnormal", "k subnormal", "v subnormal")


@dataclass(frozen=True)
class Results:
    """By output: the value, its bound, and where NaN is right as well."""

    inputs: Mapping[str, Tensor]
    values: Mapping[str, Tensor]
    errors: tuple[Tensor, ...]
    or_nan: Mapping[str, Tensor]

    @property
    def left(self) -> float:
        """The share of the results that must be finite."""
        shares = [float(value.isfinite().double().mean()) for value in self.values.values()]
        return sum(shares) / len(shares)


def has_room(problem: Attention) -> bool:
    """True if special values leave something of the results."""
    rows = problem.batch * problem.heads * problem.queries
    return min(rows, problem.keys, problem.head_dim, problem.values_dim) >= LEAST


def special(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    """Returns the fill, with as many special values as leave enough of the results. Raises FillError if none can be."""
    problem = request.problem
    names = ("q", "k", "v", "grad_out") if problem.backward else ("q", "k", "v")
    plain = {name: draws.normal(problem.operand(name).shape) for name in names}
    inputs |= scales_of(problem, draws, (1, -2, -1))
    if problem.score.kind == "alibi":
        inputs["slopes"] = slopes_of(problem, draws, request.name)
    seen = meaning.visible(problem, inputs).expand(problem.batch, -1, -1, -1)[:, 0].numpy()
    kinds = _kinds(problem, draws)
    while kinds:
        places = _Places(request, seen, {name: values.copy() for name, values in plain.items()})
        for kind in kinds:
            places.plant(kind)
        results = (_backward if problem.backward else _forward)(request, inputs, places)
        if results.left >= LEFT:
            return one_fill(request, results.inputs, results.values, results.errors, results.or_nan)
        kinds = kinds[:-1]
    raise FillError(f"{problem.id}: no special value leaves {LEFT:.0%} of the results finite")


def _kinds(problem: Attention, draws: Draws) -> list[str]:
    """Returns the names of the values that are planted. Where all queries see all keys of one head, NaN in a key would
    be all that shows, and a gradient has room for one."""
    alone = problem.mask.kind == "full" and problem.key_batch * problem.key_heads == 1
    if not problem.backward:
        without = {"k nan"} if alone else set()
        if FORMATS[problem.dtype].infinity is None:
            without |= {kind for kind in FORWARD if kind.endswith("inf")}
        return [kind for kind in FORWARD if kind not in without]
    order = [BACKWARD[place] for place in draws.permutation(len(BACKWARD))]
    return order[:1] if alone else order


class _Places:
    """The operands by name, in which special values are planted; ``seen`` (batch, queries, keys)."""

    def __init__(self, request: FillRequest[Attention], seen: np.ndarray, operands: dict[str, Floats]) -> None:
        problem, contract = request.problem, request.contract
        self.problem, self.seen, self.operands = problem, seen, operands
        self.form = format_of(problem, contract)
        self.draws = request.draws("attention places")
        self.extreme = np.zeros((problem.batch, problem.heads, problem.queries), dtype=np.bool_)
        #: NaN in out, which the forward pass of the finite operands gives
        self.out = np.zeros(problem.operand("out").shape, dtype=np.bool_) if problem.backward else None
        by_row = np.broadcast_to(seen.sum(-1)[:, None], self.extreme.shape).reshape(-1)
        rows = self.draws.permutation(by_row.size)
        rows = rows[by_row[rows] > 0]
        if problem.backward:  # NaN of a row reaches the gradients of all keys that it sees
            rows = rows[np.argsort(by_row[rows], kind="stable")]
        self.rows = list(rows[: max(1, len(rows) // 2)])
        pairs = self.draws.permutation(problem.key_batch * problem.key_heads)
        half = len(pairs) // 2
        #: NaN of a key is in all that its queries get, that of a value in one column: they lie in heads of their own
        self.pairs = {"k": pairs[: max(1, half)], "v": pairs[0 if problem.backward else half :][: len(pairs) - half]}
        self.columns = {name: self.draws.permutation(values.shape[-1]) for name, values in operands.items()}
        self.used: set[tuple[int, int]] = set()
        for kind in ROWS:
            if not ("subnormal" in kind and contract.flushes_subnormals):
                self.plant(kind)

    def plant(self, what: str) -> None:
        """Plants one kind, unless there is no place left."""
        name, kind = what.split()
        index = self._key(name) if name in ("k", "v") else self._row()
        if index is None:
            return
        column = int(self.columns["grad_out" if name == "out" else name][len(self.used) % 4])
        if name == "out":
            assert self.out is not None
            self.out[index][column] = True
            return
        if (name, kind) == ("q", "largest"):
            self.extreme[index] = True
        line = self.operands[name][index]
        form = FORMATS[self.problem.dtype]
        if kind == "largest":
            scale = 2.0 ** max(0, math.frexp(self.problem.softmax_scale)[1])
            line[column] = min(form.largest, LARGEST_VALUE if name == "v" else LARGEST_SCORE / scale)
        else:
            plant(kind, line, column, form)

    def _row(self) -> tuple[int, ...] | None:
        """Returns a row that sees a key and holds nothing special."""
        if not self.rows:
            return None
        return tuple(int(i) for i in np.unravel_index(self.rows.pop(0), self.extreme.shape))

    def _key(self, name: str) -> tuple[int, ...] | None:
        """A key that a query sees and that holds nothing special; one that few see if NaN of it is in all they get."""
        problem = self.problem
        pair = int(self.pairs[name][len(self.used) % len(self.pairs[name])])
        batch, head = divmod(pair, problem.key_heads)
        counts = (self.seen if problem.key_batch < problem.batch else self.seen[batch : batch + 1]).sum((0, 1))
        keys = self.draws.permutation(problem.keys)
        keys = keys[(counts[keys] > 0) & np.array([(pair, int(key)) not in self.used for key in keys])]
        if name == "k" or problem.backward:
            keys = keys[np.argsort(counts[keys], kind="stable")]
        if not len(keys):
            return None
        self.used.add((pair, int(keys[0])))
        return batch, head, int(keys[0])

    def tensors(self, inputs: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """``inputs`` with the operands, and the same with 0 for NaN and infinities."""
        planted = {name: round_to(torch.from_numpy(values), self.form) for name, values in self.operands.items()}
        finite = {name: np.where(np.isfinite(values), values, 0.0) for name, values in self.operands.items()}
        calm = {name: round_to(torch.from_numpy(values), self.form) for name, values in finite.items()}
        return {**inputs, **planted}, {**inputs, **calm}


def _meets(pairs: Tensor, values: Tensor) -> Tensor:
    """Returns a mask of the places where a row of ``pairs`` (..., rows, keys) meets one of ``values`` (..., keys, dim),
    both bool."""
    return pairs.double() @ values.double() > 0


def _added(contract: Contract, seen: Tensor) -> Tensor:
    """Returns a mask of the masked pairs whose scores may reach a result, because the mask is added to them."""
    return ~seen if contract.hidden_nan == "added" else torch.zeros_like(seen)


def _forward(request: FillRequest[Attention], inputs: Mapping[str, Tensor], places: _Places) -> Results:
    problem, contract = request.problem, request.contract
    given, calm = places.tensors(inputs)
    true, scored = (meaning.scores(problem, tensors, device=request.device) for tensors in (given, calm))
    seen = true.visible.expand(true.score.shape)
    scores = torch.where(seen, true.score, 0.0)
    is_nan, is_up = scores.isnan().any(-1), (scores == math.inf).any(-1)
    lost = scores == -math.inf
    is_void = seen.any(-1) & ~(seen & ~lost).any(-1)
    if problem.score.kind == "soft-cap":
        flat = torch.where(true.scaled.isinf(), true.scaled.sign() * FLAT * problem.score.cap, scored.scaled)
        scored = dataclasses.replace(
            scored, scaled=flat, score=torch.tanh(flat / problem.score.cap) * problem.score.cap
        )
    extreme = torch.from_numpy(places.extreme).to(seen.device)
    exact = meaning.attended(dataclasses.replace(scored, visible=seen & ~lost))
    error, lse_error = attention_bounds.forward_error(problem, contract, exact, extreme=extreme)

    heavy = seen & (exact.weights >= WEIGHS) & ~extreme.unsqueeze(-1)
    v = true.v
    infinite, odd = v.isinf(), ~v.isfinite()
    up, down = (_meets(heavy, v == end) for end in (math.inf, -math.inf))
    out = torch.where(up, math.inf, torch.where(down, -math.inf, exact.out))
    out = torch.where(_meets(heavy, v.isnan()) | (up & down), math.nan, out)
    error = torch.where(_meets(seen & ~heavy, infinite), math.inf, error)  # the infinity, NaN, or nothing of either
    or_nan = _meets(seen & ~heavy, odd)
    if contract.hidden_nan != "skipped":
        or_nan = or_nan | _meets(~seen, odd)
    leaks = (_added(contract, seen) & ~true.score.isfinite()).any(-1)
    out = torch.where((is_nan | is_up).unsqueeze(-1), math.nan, out)
    lse = torch.where(is_up, math.inf, torch.where(is_nan, math.nan, exact.lse))
    open_rows = {"out": or_nan | (is_void | leaks).unsqueeze(-1), "lse": is_up | is_void | leaks}
    return Results(given, {"out": out, "lse": lse}, (error, lse_error), open_rows)


def _backward(request: FillRequest[Attention], inputs: Mapping[str, Tensor], places: _Places) -> Results:
    problem, contract, device = request.problem, request.contract, request.device
    given, calm = places.tensors(inputs)
    ahead = meaning.forward(dataclasses.replace(problem, op="attention"), calm, device=device)
    out = round_to(ahead.out.cpu(), problem.operand("out").dtype)
    calm |= {"out": out, "lse": round_to(ahead.lse.cpu(), "fp32")}
    given |= {"out": out.masked_fill(torch.from_numpy(places.out), math.nan), "lse": calm["lse"]}
    exact = meaning.backward(problem, calm, device=device)
    errors = attention_bounds.backward_error(problem, contract, exact)

    true = meaning.scores(problem, given, device=device)
    bad_q, bad_k, bad_v = true.q.isnan(), true.k.isnan(), true.v.isnan()
    bad_grad, bad_out = (given[name].to(true.q.device).isnan() for name in ("grad_out", "out"))
    rows = bad_grad.any(-1, keepdim=True) | bad_out.any(-1, keepdim=True)
    seen = (true.visible & exact.lse.isfinite().unsqueeze(-1)).expand(true.score.shape)
    score = bad_q.any(-1, keepdim=True) | bad_k.any(-1).unsqueeze(-2)
    grad = rows | bad_v.any(-1).unsqueeze(-2)
    heavy = seen & (exact.probabilities >= WEIGHS)
    certain = (seen & score) | (heavy & grad)  # gradients of scores that are NaN
    # and those that may be: a masked pair has P = 0, whatever its score is, and the cap's slope is that of the score
    hidden = torch.zeros_like(seen) if contract.hidden_nan == "skipped" else ~seen
    unsure = grad | score if problem.score.kind == "soft-cap" else grad
    leaks = _added(contract, seen) & score
    either = (seen & ~heavy & grad) | (hidden & unsure) | leaks

    def keys(pairs: Tensor, values: Tensor) -> Tensor:
        """Returns a mask of the places where a key meets a value of a query in a pair, over all queries that share the
        key."""
        met = pairs.transpose(-1, -2).double() @ values.double()
        return meaning.gathered(problem, met) > 0

    every = torch.ones_like(bad_q[..., :1])
    all_keys = torch.ones_like(bad_k[..., :1])
    nan = {
        "grad_q": _meets(certain, all_keys).expand(exact.grad_q.shape),
        "grad_k": keys(certain, every).expand(exact.grad_k.shape),
        "grad_v": keys(seen & score, every) | keys(heavy, bad_grad),
    }
    or_nan = {
        "grad_q": _meets(either, all_keys) | _meets(hidden, bad_k),
        "grad_k": keys(either, every) | keys(hidden, bad_q),
        "grad_v": keys((seen & ~heavy) | hidden, bad_grad) | keys(leaks, every),
    }
    values = {name: torch.where(nan[name], math.nan, value) for name, value in exact.outputs.items()}
    return Results(given, values, errors, or_nan)
