"""Faults of attention, in masks, heads, keys, scores, maxima, merges and gradients; what an element depends on."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import SCALES, Attention
from conformance.families.family import Indices, Needed, chosen, divided, every
from conformance.families.gemm.alterations import other_indices
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS, round_to

Inputs = Mapping[str, Tensor]
#: Changes the scores of a problem, whose operands they hold too.
Rescored = Callable[[meaning.Scores, Inputs], meaning.Scores]
LOG2E = math.log2(math.e)
#: Where a bound is that of the right computation, the altered one may err by this much more. Evidence is what lies
#: further away than that.
LOOSE = 16.0
#: The first of the misjudgements, which concern all tiles of a kind.
PLAIN = 3


def unchanged(scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    """Returns the right scores."""
    return scored


def outputs_of(problem: Attention, contract: Contract, change: Rescored, inputs: Inputs) -> Outputs:
    """Returns the outputs that follow from changed scores, with their bounds."""
    scored = change(meaning.scores(problem, inputs), inputs)
    if problem.backward:
        gradients = meaning.gradients(problem, inputs, scored)
        return with_errors(gradients.outputs, attention_bounds.backward_error(problem, contract, gradients))
    values = meaning.attended(scored)
    return with_errors(values.outputs, attention_bounds.forward_error(problem, contract, values))


def with_errors(values: Mapping[str, Tensor], errors: tuple[Tensor, ...]) -> Outputs:
    """Outputs by name, each with its bound."""
    return {name: (value, error) for (name, value), error in zip(values.items(), errors, strict=True)}


def where_applied(problem: Attention, tiling: Tiling, visible: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the mask ``visible`` everywhere, or only in the tiles that a kernel masks. A kernel leaves out tiles of
    which nothing is seen, and does not mask those that are seen whole. The last masks are the right one where a kernel
    takes the tiles of ``visible`` for seen whole, or for hidden. Each comes with text that says where."""
    yield "", visible
    right = meaning.visible(problem, {})[0, 0]
    for rows, columns in tile_shapes(problem, tiling):
        some, every = _by_tiles(right, rows, columns)
        yield f" (in tiles of {rows} x {columns} of which anything is seen)", visible & some
        yield f" (in tiles of {rows} x {columns} that the mask crosses)", (visible & some) | every
        yield f" (in tiles of {rows} x {columns} that are not seen whole)", visible | every
    for rows, columns in tile_shapes(problem, tiling):
        some, every = _by_tiles(visible, rows, columns)
        yield f" (where tiles of {rows} x {columns} are taken for seen whole)", right | every
        yield f" (where tiles of {rows} x {columns} are taken for hidden)", right & some


def tile_shapes(problem: Attention, tiling: Tiling) -> list[tuple[int, int]]:
    """(rows, columns) of the tiles that a kernel may mask."""
    m, n, _ = tiling.block
    edges = {(m, n), (n, m)} if problem.backward else {(m, n)}
    return sorted(edges | ({(problem.block, problem.block)} if problem.block else set()))


def tiles_misjudged(problem: Attention, tiling: Tiling) -> Iterator[tuple[str, Tensor]]:
    """Returns the masks that result if whole tiles are masked, not masked or left out that should not be. Each with its
    cause."""
    right = meaning.visible(problem, {})[0, 0]
    shapes = tile_shapes(problem, tiling)
    for rows, columns in shapes:
        some, every = _by_tiles(right, rows, columns)
        tiles = f"tiles of {rows} x {columns}"
        yield f"{tiles} that the mask crosses are not masked", some
        yield f"nothing is seen of {tiles} that the mask crosses", every
        yield f"nothing is seen of {tiles} that the mask does not cross", right & ~every
    for rows, columns in shapes:
        tiles = f"tiles of {rows} x {columns}"
        for which, line in (("first", 0), ("last", -1)):
            for what, axis in (("query", 0), ("key", 1)):
                some, every = _by_tiles(right, rows, columns, axis, line)
                yield f"{tiles} are not masked if their {which} {what} is seen whole", right | every
                yield f"{tiles} are hidden if nothing of their {which} {what} is to be seen", right & some


def _by_tiles(seen: Tensor, rows: int, columns: int, axis: int | None = None, line: int = 0) -> tuple[Tensor, Tensor]:
    """Returns two masks: whether anything, and whether everything, is seen of the tile in which each element of
    ``seen`` lies; with an ``axis``, of its first (0) or last (-1) ``line`` along it."""
    m, n = seen.shape
    some, every = torch.zeros_like(seen), torch.zeros_like(seen)
    for i, j in itertools.product(range(0, m, rows), range(0, n, columns)):
        tile = seen[i : i + rows, j : j + columns]
        part = tile if axis is None else tile.select(axis, line)
        some[i : i + rows, j : j + columns] = part.any()
        every[i : i + rows, j : j + columns] = part.all()
    return some, every


def about_softmax(problem: Attention, contract: Contract, tiling: Tiling) -> Iterator[Alteration]:
    """Alterations of what follows the scores of a forward problem."""

    def of_values(
        cause: str, change: Callable[[meaning.ForwardValues], Mapping[str, Tensor]], special: bool = False
    ) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            values = meaning.forward(problem, inputs)
            errors = attention_bounds.forward_error(problem, contract, values)
            changed = change(values)
            # what is changed is no larger than some multiple of the right result, and so is its error
            scale = {name: torch.where(values.outputs[name] == 0, 1.0, (value / values.outputs[name]).abs())
                     for name, value in changed.items()}  # fmt: skip
            return {
                name: (value, error * scale[name].nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0))
                for (name, value), error in zip(changed.items(), errors, strict=True)
            }

        return Alteration(cause, compute, special)

    def lse_as(
        change: Callable[[meaning.ForwardValues], Tensor],
    ) -> Callable[[meaning.ForwardValues], Mapping[str, Tensor]]:
        return lambda values: {"out": values.out, "lse": torch.where(values.live, change(values), -math.inf)}

    yield of_values("lse holds log2 of the sum, and not its logarithm", lse_as(lambda v: v.top + torch.log2(v.total)))
    yield of_values("lse is in base 2", lse_as(lambda v: (v.top + torch.log(v.total)) * LOG2E))
    yield of_values("lse lacks the maximum", lse_as(lambda v: torch.log(v.total)))
    yield of_values("lse lacks the logarithm of the sum", lse_as(lambda v: v.top))
    yield of_values(
        "the output is not divided by the sum of the weights",
        lambda v: {"out": v.out * torch.where(v.live, v.total, 1.0).unsqueeze(-1), "lse": v.lse},
    )
    yield of_values(
        "a query that sees no key gives NaN",
        lambda v: {
            "out": torch.where(v.live.unsqueeze(-1), v.out, torch.nan),
            "lse": torch.where(v.live, v.lse, torch.nan),
        },
        special=True,
    )
    block, splits = tiling.block[1], tiling.splits
    for cause, options in (
        ("the output is not rescaled when the maximum grows", (False, True)),
        ("the sum of the weights is not rescaled when the maximum grows", (True, False)),
        ("neither output nor sum is rescaled when the maximum grows", (False, False)),
    ):
        for more, from_sums in (("", False), (", from the logarithm of the sum so far", True)):
            stepped = functools.partial(_by_blocks, problem, contract, block, options, from_sums)
            yield Alteration(f"{cause}{more} ({block} keys a step)", stepped)
    for cause, largest in (
        ("no maximum is subtracted from the scores", lambda top: 0 * top),
        ("the running maximum begins at 0", lambda top: top.clamp(min=0.0)),
    ):
        yield Alteration(cause, functools.partial(_with_maximum, problem, contract, largest), special=True)
    if splits:
        yield Alteration(
            "the parts of the keys are merged without their weights",
            functools.partial(_merged_equally, problem, contract, block, splits),
        )


def _by_blocks(
    problem: Attention,
    contract: Contract,
    block: int,
    rescaled: tuple[bool, bool],
    from_sums: bool,
    inputs: Inputs,
) -> Outputs:
    """The softmax in steps of ``block`` keys; ``rescaled``: whether the output and the sum so far are. ``from_sums``:
    the maximum grows from the logarithm of the sum so far, as in FlashAttention's kernel for Triton."""
    rescale_out, rescale_sum = rescaled
    scored = meaning.scores(problem, inputs)
    hidden = torch.where(scored.visible, scored.score, -math.inf)
    shape = (*hidden.shape[:-1], 1)
    top = torch.full(shape, -math.inf, dtype=torch.float64)
    total, out = torch.zeros(shape).double(), torch.zeros(*hidden.shape[:-1], scored.v.shape[-1]).double()
    for start in range(0, problem.keys, block):
        part = hidden[..., start : start + block]
        before = top + torch.log(total) if from_sums else top
        larger = torch.maximum(before, part.amax(-1, keepdim=True))
        reference = torch.where(larger.isfinite(), larger, 0.0)
        shrink = torch.exp(torch.where(top.isfinite(), top - reference, -math.inf))
        weights = torch.exp(part - reference)
        total = (total * shrink if rescale_sum else total) + weights.sum(-1, keepdim=True)
        out = (out * shrink if rescale_out else out) + weights @ scored.v[:, :, start : start + block]
        top = larger
    live = total > 0
    result = out / torch.where(live, total, 1.0)
    lse = torch.where(live, top + torch.log(total), -math.inf)
    return _with_right_errors(problem, contract, inputs, result, lse[..., 0])


def _with_right_errors(problem: Attention, contract: Contract, inputs: Inputs, out: Tensor, lse: Tensor) -> Outputs:
    """Outputs with the bounds of the right computation, grown as much as the outputs themselves."""
    right = meaning.forward(problem, inputs)
    errors = attention_bounds.forward_error(problem, contract, right)
    growth = out.abs().amax(-1, keepdim=True) / right.out.abs().amax(-1, keepdim=True).clamp(min=2.0**-60)
    growth = growth.nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0)
    return {"out": (out, LOOSE * errors[0] * growth), "lse": (lse, LOOSE * errors[1] + 2.0**-20)}


def _with_maximum(
    problem: Attention, contract: Contract, largest: Callable[[Tensor], Tensor], inputs: Inputs
) -> Outputs:
    """Weights relative to another number than the largest score, in the range of fp32."""
    scored = meaning.scores(problem, inputs)
    hidden = torch.where(scored.visible, scored.score, -math.inf)
    top = hidden.amax(-1, keepdim=True)
    reference = largest(torch.where(top.isfinite(), top, 0.0))
    weights = torch.exp(hidden - reference).float().double()
    total = weights.sum(-1, keepdim=True).float().double()
    if bool(((total > 0) & (total < 2.0**-100)).any()):
        raise ValueError("sums of subnormal weights depend on their order")
    out = (weights @ scored.v).float().double() / torch.where(total > 0, total, 1.0)
    lse = torch.where(total > 0, reference + torch.log(total), -math.inf)
    return _with_right_errors(problem, contract, inputs, out, lse[..., 0])


def _merged_equally(problem: Attention, contract: Contract, block: int, splits: int, inputs: Inputs) -> Outputs:
    scored = meaning.scores(problem, inputs)
    steps = -(-problem.keys // block)
    size = -(-steps // splits) * block
    total, out, top = torch.zeros(()).double(), torch.zeros(()).double(), []
    for start in range(0, problem.keys, size):
        inside = torch.zeros(problem.keys, dtype=torch.bool)
        inside[start : start + size] = True
        part = meaning.attended(dataclasses.replace(scored, visible=scored.visible & inside))
        total = total + part.total.unsqueeze(-1)
        out = out + part.out * part.total.unsqueeze(-1)
        top.append(torch.where(part.live, part.top, -math.inf))
    largest = torch.stack(top).amax(0)
    lse = torch.where(total[..., 0] > 0, largest + torch.log(total[..., 0]), -math.inf)
    return _with_right_errors(problem, contract, inputs, out / torch.where(total > 0, total, 1.0), lse)


def about_gradients(problem: Attention, contract: Contract, tiling: Tiling) -> Iterator[Alteration]:
    """Alterations of what follows the scores of a backward problem."""
    scale = problem.softmax_scale

    def times(cause: str, **factors: float) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            right = meaning.backward(problem, inputs)
            errors = attention_bounds.backward_error(problem, contract, right)
            by = [factors.get(name, 1.0) for name in right.outputs]
            pairs = zip(right.outputs.items(), errors, by, strict=True)
            return {name: (value * factor, error * abs(factor)) for (name, value), error, factor in pairs}

        return Alteration(cause, compute)

    if scale != 1.0:
        for names in (("grad_k",), ("grad_q",), ("grad_q", "grad_k")):
            text = " and ".join(names)
            yield times(f"the scale is not applied to {text}", **dict.fromkeys(names, 1 / scale))
            yield times(f"the scale is applied twice to {text}", **dict.fromkeys(names, scale))

    def of_inputs(cause: str, **changes: Callable[[Tensor], Tensor]) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            changed = {**inputs, **{name: change(inputs[name]) for name, change in changes.items()}}
            return outputs_of(problem, contract, unchanged, changed)

        return Alteration(cause, compute)

    def of_values(cause: str, change: Callable[[meaning.Scores, Inputs], dict[str, Tensor]]) -> Alteration:
        return Alteration(cause, functools.partial(_from_parts, problem, contract, change))

    yield of_values(
        "delta, the row sums of out * grad_out, is not subtracted", lambda scored, inputs: {"delta": 0 * _delta(inputs)}
    )
    yield of_values("delta is added, not subtracted", lambda scored, inputs: {"delta": -_delta(inputs)})
    for dim, axis, count in ((0, "batch", problem.batch), (1, "head", problem.heads)):
        for what, index in other_indices(count):
            operands: tuple[tuple[str, ...], ...] = (("grad_out",), ("lse",), ("out",), ("grad_out", "lse", "out"))
            for together in operands:
                pick = dict.fromkeys(together, functools.partial(torch.index_select, dim=dim, index=index))
                yield of_inputs(f"{' and '.join(together)} of another {axis}: {what}", **pick)
    for what, index in other_indices(problem.queries):
        yield of_values(f"delta of another row: {what}", functools.partial(_delta_of, index))
        yield of_inputs(f"lse of another row: {what}", lse=functools.partial(_rows_of, index))
    if problem.mask.kind in ("causal", "sliding-window"):
        right = meaning.visible(problem, {})[0, 0]
        for where, reached in where_applied(problem, tiling, torch.ones_like(right)):
            cause = f"gradients of hidden scores are not masked{where}"
            yield of_values(cause, functools.partial(_reached, reached.double()))
    if problem.score.kind == "soft-cap":
        capped = {
            "the slope of the soft cap is not applied": lambda t: 0 * t + 1,
            "the slope of the soft cap is 1 - t, not 1 - t * t": lambda t: 1 - t,
            "the slope of the soft cap is applied twice": lambda t: (1 - t * t) ** 2,
        }
        for cause, slope in capped.items():
            yield Alteration(cause, functools.partial(_with_slope, problem, contract, slope))
    group = problem.heads // problem.key_heads
    if group > 1:
        for place, what in ((0, "first"), (group - 1, "last")):
            kept = (torch.arange(problem.heads) % group == place)[:, None, None]
            yield Alteration(
                f"gradients of k and v are those of the {what} of the heads that share them",
                functools.partial(_of_some_heads, problem, contract, kept),
            )
    if problem.key_batch < problem.batch:
        for place, what in ((0, "first"), (problem.batch - 1, "last")):
            kept = (torch.arange(problem.batch) == place)[:, None, None, None]
            yield Alteration(
                f"gradients of k and v are those of the {what} batch",
                functools.partial(_of_some_heads, problem, contract, kept),
            )


def _rows_of(index: Tensor, statistics: Tensor) -> Tensor:
    return statistics[:, :, index]


def _delta_of(index: Tensor, _: meaning.Scores, inputs: Inputs) -> dict[str, Tensor]:
    return {"delta": _rows_of(index, _delta(inputs))}


def _reached(reached: Tensor, _: meaning.Scores, __: Inputs) -> dict[str, Tensor]:
    return {"reached": reached}


def _delta(inputs: Inputs) -> Tensor:
    return (inputs["out"].double() * inputs["grad_out"].double()).sum(-1)


def _with_slope(problem: Attention, contract: Contract, slope: Callable[[Tensor], Tensor], inputs: Inputs) -> Outputs:
    scored = meaning.scores(problem, inputs)
    right = meaning.gradients(problem, inputs, scored)
    errors = attention_bounds.backward_error(problem, contract, right)
    values = meaning.gradients(
        problem, inputs, dataclasses.replace(scored, slope=slope(scored.score / problem.score.cap))
    ).outputs
    outputs: dict[str, tuple[Tensor, Tensor | None]] = {}
    for (name, value), error in zip(values.items(), errors, strict=True):
        growth = max(1.0, float(value.abs().max() / right.outputs[name].abs().max()))
        outputs[name] = value, error * (LOOSE * growth)
    return outputs


def _from_parts(
    problem: Attention,
    contract: Contract,
    change: Callable[[meaning.Scores, Inputs], dict[str, Tensor]],
    inputs: Inputs,
) -> Outputs:
    """Returns the gradients with another delta, or with probabilities of hidden keys too."""
    scored = meaning.scores(problem, inputs)
    right = meaning.gradients(problem, inputs, scored)
    parts = change(scored, inputs)
    probabilities, delta = right.probabilities, parts.get("delta", right.delta)
    if "reached" in parts:
        probabilities = parts["reached"] * torch.exp(
            scored.score - torch.where(right.lse.isfinite(), right.lse, 0.0).unsqueeze(-1)
        )
    delta = delta.unsqueeze(-1)
    grad_scores = probabilities * (right.grad_probabilities - delta)
    grad_scaled = grad_scores if scored.slope is None else grad_scores * scored.slope
    scale = problem.softmax_scale
    altered = dataclasses.replace(
        right,
        delta=delta[..., 0],
        grad_scores=grad_scores,
        grad_scaled=grad_scaled,
        grad_q=(grad_scaled @ scored.k) * scale,
        grad_k=meaning.gathered(problem, grad_scaled.transpose(-1, -2) @ scored.q) * scale,
    )
    errors = attention_bounds.backward_error(problem, contract, altered)
    return {name: (value, LOOSE * error) for (name, value), error in zip(altered.outputs.items(), errors, strict=True)}


def _of_some_heads(problem: Attention, contract: Contract, kept: Tensor, inputs: Inputs) -> Outputs:
    right = meaning.backward(problem, inputs)
    errors = attention_bounds.backward_error(problem, contract, right)
    scale = problem.softmax_scale
    values = {
        "grad_q": right.grad_q,
        "grad_k": meaning.gathered(problem, (right.grad_scaled.transpose(-1, -2) @ right.scores.q) * kept) * scale,
        "grad_v": meaning.gathered(problem, (right.probabilities.transpose(-1, -2) @ right.grad_out) * kept),
    }
    return with_errors(values, errors)


#: More causes of one mask than this name nothing.
MOST_NAMES = 3


def alterations(problem: Attention, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Yields every alteration of ``problem``."""
    for cause, change in itertools.chain(_about_masks(problem, tiling), _about_scores(problem), _about_heads(problem)):
        yield Alteration(cause, functools.partial(outputs_of, problem, contract, change))
    for cause, altered in _about_problem(problem):
        yield Alteration(cause, functools.partial(outputs_of, altered, contract, unchanged))
    for name in SCALES if problem.scaled else ():
        yield Alteration(f"{name} is not applied", functools.partial(_unscaled, problem, contract, name))
    yield from (about_gradients if problem.backward else about_softmax)(problem, contract, tiling)
    yield from _about_rounding(problem, contract)
    for cause, change in _about_keys(problem, tiling):  # many
        yield Alteration(cause, functools.partial(outputs_of, problem, contract, change))


def _unscaled(problem: Attention, contract: Contract, name: str, inputs: Inputs) -> Outputs:
    return outputs_of(problem, contract, unchanged, {**inputs, name: torch.ones_like(inputs[name])})


def _about_rounding(problem: Attention, contract: Contract) -> Iterator[Alteration]:
    """Outputs that are rounded to a narrower format on the way."""
    for name in ("fp16", "bf16"):
        if any(FORMATS[output.dtype].significand > FORMATS[name].significand for output in problem.outputs):
            rounded = functools.partial(_rounded, problem, contract, name)
            yield Alteration(f"the results pass through {name}", rounded, special=name == "fp16")


def _rounded(problem: Attention, contract: Contract, name: str, inputs: Inputs) -> Outputs:
    outputs = {}
    for output, (value, error) in outputs_of(problem, contract, unchanged, inputs).items():
        narrow = round_to(value, name).double()
        unit = value.abs() * 2.0 ** (1 - FORMATS[name].significand) + FORMATS[name].smallest_normal
        outputs[output] = narrow, unit if error is None else error + unit
    return outputs


# Which keys a query sees


def _about_masks(problem: Attention, tiling: Tiling) -> Iterator[tuple[str, Rescored]]:
    offset = meaning.positions(problem)
    kind, size = problem.mask.kind, problem.mask.size
    everything = torch.ones_like(offset, dtype=torch.bool)
    seen: dict[str, Tensor] = {}
    if kind == "full":
        seen["keys behind the query's position are masked"] = offset <= 0
    if kind in ("causal", "sliding-window"):
        inside = everything if kind == "causal" else offset > -size
        seen["the mask is off by one: a query does not see its own position"] = (offset < 0) & inside
        seen["the mask is off by one: a query sees the key behind its position"] = (offset <= 1) & inside
        seen["keys behind the query's position are not masked"] = inside
        own = torch.arange(problem.keys) - torch.arange(problem.queries)[:, None]
        own_inside = everything if kind == "causal" else own > -size
        seen["a query's position is its own number, not counted from the last key"] = (own <= 0) & own_inside
    if kind == "sliding-window":
        for wrong in (size + 1, size - 1):
            cause = f"the mask is off by one: the window is {wrong} keys, not {size}"
            seen[cause] = (offset <= 0) & (offset > -wrong)
        seen["the window is not applied"] = offset <= 0
    for cause, changed in _distinct(problem, tiling, seen):
        yield cause, _with_mask(changed[None, None])
    yield "a key behind the last one is seen, as zeros", functools.partial(_more_keys, problem, 1)
    if behind := -problem.keys % tiling.block[1]:
        cause = "the keys behind the last one are seen, as zeros, to the end of the block"
        yield cause, functools.partial(_more_keys, problem, behind)
    if kind == "document":
        yield "the documents are not compared", _with_mask(everything[None, None])
        for cause, compare in (
            ("a document sees those with smaller numbers too", torch.ge),
            ("a document sees those with larger numbers too", torch.le),
        ):
            yield cause, functools.partial(_with_documents, compare)


def _distinct(problem: Attention, tiling: Tiling, masks: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yields ``masks`` by cause, everywhere or in some tiles only, and tiles that are misjudged. Of causes that show
    the same the plainest are named: those that hold everywhere or for all tiles alike. If there are none, all are named
    unless they are many."""
    if problem.mask.is_data:
        return
    named: dict[bytes, tuple[Tensor, list[str], list[str]]] = {}

    def add(cause: str, visible: Tensor, plain: bool) -> None:
        _, plainest, others = named.setdefault(bytes(visible.numpy().tobytes()), (visible, [], []))
        (plainest if plain else others).append(cause)

    masked = problem.mask.kind != "full"
    for cause, visible in masks.items():
        add(cause, visible, True)
    for number, (cause, visible) in enumerate(tiles_misjudged(problem, tiling) if masked else ()):
        add(cause, visible, number < PLAIN * len(tile_shapes(problem, tiling)))
    for cause, visible in masks.items() if masked else ():
        for where, changed in where_applied(problem, tiling, visible):
            if where:
                add(cause + where, changed, False)
    right = bytes(meaning.visible(problem, {})[0, 0].numpy().tobytes())
    for key, (visible, plain, others) in named.items():
        names = plain or others
        if key != right and len(names) <= MOST_NAMES:
            yield ", or ".join(names), visible


def _more_keys(problem: Attention, count: int, scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    """``count`` keys more, whose k and v are zero."""
    if problem.backward:
        raise ValueError("gradients have no place for more keys")

    def longer(tensor: Tensor, dim: int, fill: float = 0.0) -> Tensor:
        shape = list(tensor.shape)
        shape[dim] = count
        return torch.cat([tensor, torch.full(shape, fill, dtype=tensor.dtype)], dim)

    score, bias = longer(scored.score, -1), scored.bias
    if bias is not None:
        slopes = inputs["slopes"].double()[:, None, None]
        places = meaning.positions(problem)[:, -1:] + 1 + torch.arange(count)
        added = slopes * places
        score = torch.cat([scored.score, added.expand(*scored.score.shape[:-1], count)], -1)
        bias = torch.cat([bias, added], -1)
    visible = scored.visible.expand(*scored.visible.shape[:-1], problem.keys)
    return dataclasses.replace(
        scored,
        k=longer(scored.k, 2),
        v=longer(scored.v, 2),
        visible=longer(visible, -1, True),
        scaled=longer(scored.scaled, -1),
        score=score,
        slope=None if scored.slope is None else longer(scored.slope, -1, 1.0),
        bias=bias,
    )


def _with_mask(visible: Tensor) -> Rescored:
    return lambda scored, _: dataclasses.replace(scored, visible=visible)


def _with_documents(compare: Callable[..., Tensor], scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    query, key = inputs["query_document"], inputs["key_document"]
    return dataclasses.replace(scored, visible=compare(query[:, :, None], key[:, None, :]).unsqueeze(1))


def _about_keys(problem: Attention, tiling: Tiling) -> Iterator[tuple[str, Rescored]]:
    """Keys or queries that are left out or counted twice, and values of another block."""
    keys, number = problem.keys, torch.arange(problem.keys)
    for count in (keys - 1, *range(1, keys - 1)) if keys <= 256 else (keys - 1,):
        yield f"the keys from {count} of {keys} on are left out", _restricted(number < count)
        yield f"the first {count} of {keys} keys are left out", _restricted(number >= count)
    blocks = {tiling.block[0], tiling.block[1]} if problem.backward else {tiling.block[1]}
    for block in sorted(blocks):
        for t in range(-(-keys // block)):
            inside = number // block == t
            last = t == -(-keys // block) - 1
            where = f"keys {t * block}..{min((t + 1) * block, keys) - 1} (block {t} of {block})"
            if t and not last:
                yield f"{where} are left out", _restricted(~inside)
            yield f"{where} are counted twice", functools.partial(_twice, inside)
        stale = (number - block).clamp(min=0)
        yield f"v of the previous block of {block} keys is used", functools.partial(_other_values, stale)
        following = (number + block).clamp(max=keys - 1)
        yield f"v of the next block of {block} keys is used", functools.partial(_other_values, following)
    yield "every key is counted twice", functools.partial(_twice, number >= 0)
    if problem.backward:
        queries, place = problem.queries, torch.arange(problem.queries)
        for count in range(1, queries) if queries <= 256 else (queries - 1,):
            yield f"the queries from {count} of {queries} on are left out", _of_queries(place < count)
            yield f"the first {count} of {queries} queries are left out", _of_queries(place >= count)


def _restricted(kept: Tensor) -> Rescored:
    return lambda scored, _: dataclasses.replace(scored, visible=scored.visible & kept)


def _of_queries(kept: Tensor) -> Rescored:
    return lambda scored, _: dataclasses.replace(scored, visible=scored.visible & kept[:, None])


def _twice(inside: Tensor, scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    return dataclasses.replace(scored, score=scored.score + inside * math.log(2.0))


def _other_values(index: Tensor, scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    return dataclasses.replace(scored, v=scored.v[:, :, index])


# Scores


def _about_scores(problem: Attention) -> Iterator[tuple[str, Rescored]]:
    kind = problem.score.kind
    if kind == "soft-cap":
        yield (
            "the soft cap is not applied",
            lambda scored, _: dataclasses.replace(scored, score=scored.scaled, slope=None),
        )
    if kind == "alibi":
        heads = problem.heads
        yield (
            "alibi's slopes are not applied",
            lambda scored, _: dataclasses.replace(scored, score=scored.scaled, bias=None),
        )
        for off in (1, -1, problem.queries - problem.keys, problem.keys - problem.queries):
            if off:
                yield (
                    f"alibi's positions are off by {off}",
                    functools.partial(_alibi, problem, off, torch.arange(heads)),
                )
        for what, index in other_indices(heads):
            yield f"alibi's slope of another head: {what}", functools.partial(_alibi, problem, 0, index)
    scale = problem.softmax_scale
    if problem.backward and scale != 1.0:
        yield "the scores are not scaled", functools.partial(_scaled_anew, problem, lambda scaled: scaled / scale)
        yield "the scores are scaled twice", functools.partial(_scaled_anew, problem, lambda scaled: scaled * scale)
    yield (
        "the scale is added to the scores, which are not multiplied by it",
        functools.partial(_scaled_anew, problem, lambda scaled: scaled / scale + scale),
    )
    yield (
        "scores are multiplied by log2(e) once more",
        lambda scored, _: dataclasses.replace(scored, score=scored.score * LOG2E),
    )
    yield (
        "exp2 is computed of scores that are not multiplied by log2(e)",
        lambda scored, _: dataclasses.replace(scored, score=scored.score / LOG2E),
    )


def _scaled_anew(
    problem: Attention, change: Callable[[Tensor], Tensor], scored: meaning.Scores, _: Inputs
) -> meaning.Scores:
    """Other scaled scores, modified as the problem says."""
    scaled = change(scored.scaled)
    if problem.score.kind == "soft-cap":
        bent = torch.tanh(scaled / problem.score.cap)
        return dataclasses.replace(scored, scaled=scaled, score=bent * problem.score.cap, slope=1 - bent * bent)
    score = scaled if scored.bias is None else scaled + scored.bias
    return dataclasses.replace(scored, scaled=scaled, score=score)


def _alibi(problem: Attention, off: int, index: Tensor, scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    slopes = inputs["slopes"].double()[index]
    bias = slopes[:, None, None] * (meaning.positions(problem) + off)
    return dataclasses.replace(scored, score=scored.scaled + bias, bias=bias)


def _about_problem(problem: Attention) -> Iterator[tuple[str, Attention]]:
    scale = problem.softmax_scale
    others = {"the scale is not applied": 1.0, "the scale is applied twice": scale * scale}
    if problem.scale is not None:
        others["the scale is 1 / sqrt(head_dim), not the problem's"] = 1.0 / math.sqrt(problem.head_dim)
    for cause, other in others.items():
        if other != scale and not problem.backward:
            yield cause, dataclasses.replace(problem, scale=other)


# Heads and batches


def _about_heads(problem: Attention) -> Iterator[tuple[str, Rescored]]:
    group = problem.heads // problem.key_heads
    own = torch.arange(problem.heads)
    which: dict[str, Tensor] = {}
    if problem.key_heads > 1:
        right = own // group
        if group > 1:
            which["key head h % (heads // kv_heads) is used, not h // (heads // kv_heads)"] = (own % group).clamp(
                max=problem.key_heads - 1
            )
        which["key head h % kv_heads is used, not h // (heads // kv_heads)"] = own % problem.key_heads
        for what, index in other_indices(problem.key_heads):
            which[f"k and v of another head: {what}"] = index[right]
        unique = {tuple(index.tolist()): cause for cause, index in reversed(which.items())}
        which = {cause: torch.tensor(index) for index, cause in unique.items() if index != tuple(right.tolist())}
    for cause, index in which.items():
        for names in (("k", "v"), ("k",), ("v",)):
            text = cause if len(names) == 2 else f"{cause} (in {names[0]} only)"
            yield text, functools.partial(_other_rows, 1, index * group, names)
    if problem.heads > 1:
        for what, index in other_indices(problem.heads):
            yield f"q of another head: {what}", functools.partial(_other_rows, 1, index, ("q",))
    if problem.batch > 1:
        for what, index in other_indices(problem.batch):
            for names in (("k", "v"), ("k",), ("v",), ("q",)):
                if problem.key_batch > 1 or names == ("q",):
                    cause = f"{' and '.join(names)} of another batch: {what}"
                    yield cause, functools.partial(_other_rows, 0, index, names)
    for what, index in other_indices(problem.queries):
        yield f"q of another row: {what}", functools.partial(_other_rows, 2, index, ("q",))


def _other_rows(dim: int, index: Tensor, names: tuple[str, ...], scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    """Replaces rows of q, k or v along ``dim`` by the rows ``index`` and computes the scores again."""
    lines = {name: getattr(scored, name).index_select(dim, index) for name in names}
    q, k = lines.get("q", scored.q), lines.get("k", scored.k)
    if names == ("v",):
        return dataclasses.replace(scored, v=lines["v"])
    if scored.slope is not None:
        raise ValueError("capped scores are not computed again")
    scale = _scale_of(scored)
    scaled = (q @ k.transpose(-1, -2)) * scale
    score = scaled if scored.bias is None else scaled + scored.bias
    return dataclasses.replace(scored, q=q, k=k, v=lines.get("v", scored.v), scaled=scaled, score=score)


def _scale_of(scored: meaning.Scores) -> float:
    """Returns the factor between ``q k^T`` and the scaled scores."""
    products = scored.q @ scored.k.transpose(-1, -2)
    largest = products.abs().argmax()
    size = float(products.flatten()[largest])
    return float(scored.scaled.flatten()[largest]) / size if size else 1.0


_QUERIES = ("batch", "head", "query", "element")
_PAGES = ("page", "key head", "row", "element")
_KEYS = ("batch", "key head", "key", "element")
_AXES = {
    **dict.fromkeys(("q", "out", "grad_out", "grad_q"), _QUERIES),
    **dict.fromkeys(("k", "v", "grad_k", "grad_v"), _KEYS),
    "lse": _QUERIES[:3],
    "slopes": ("head",),
    "query_document": ("batch", "query"),
    "key_document": ("batch", "key"),
}


def axes(problem: Attention, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand or output ``name``."""
    return _PAGES if problem.page and name in ("k", "v") else _AXES[name]


def needed(problem: Attention, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    group = problem.heads // problem.key_heads
    visible = meaning.visible(problem, inputs)[:, 0].cpu()  # (batch or 1, queries, keys)
    by_key = output in ("grad_k", "grad_v")
    if by_key:
        key_batch, key_heads, keys = stored[:3]
        batch = key_batch.expand(problem.batch) if problem.key_batch < problem.batch else key_batch
        heads = key_heads.repeat_interleave(group)
    else:
        batch, heads, queries = stored[:3]
        key_batch = every(1) if problem.key_batch < problem.batch else batch
        key_heads = divided(heads, group, problem.key_heads)
    seen = visible[batch if len(visible) > 1 else slice(None)].any(0)
    if by_key:
        queries = seen[:, keys].any(1)
    else:
        keys = seen[queries].any(0)
    if not bool(keys.any()) or not bool(queries.any()):
        return {}
    d, e = every(problem.head_dim), every(problem.values_dim)
    of_queries, of_keys = (batch, heads, queries), (key_batch, key_heads, keys)
    if problem.page:
        pages, rows = meaning.key_places(problem, inputs)
        pool, _, page, _ = problem.operand("k").shape
        of_keys = (chosen(pool, pages[keys].cpu()), key_heads, chosen(page, rows[keys].cpu()))
    result: Needed = {"q": (*of_queries, d), "k": (*of_keys, d)}
    if problem.score.kind == "alibi":
        result["slopes"] = (heads,)
    if output == "lse":
        return result
    if output != "grad_v":
        result["v"] = (*of_keys, stored[3] if output == "out" else e)
    if problem.backward:
        result |= {"grad_out": (*of_queries, stored[3] if output == "grad_v" else e), "lse": of_queries}
        if output != "grad_v":
            result["out"] = (*of_queries, e)
    return result
