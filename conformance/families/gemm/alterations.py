"""Faults of products: operands of another matrix, epilogues in another order, what an element depends on."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.families.family import Indices, Needed, chosen, divided, every
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Bias, Gemm, addmm, mm
from conformance.families.gemm.reference import error_bound, row_sums
from conformance.families.products import Product, padded, with_inputs
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import round_to
from conformance.problems import DTYPES, Problem

Inputs = Mapping[str, Tensor]
Change = Callable[[Inputs], Inputs]


def alterations(problem: Gemm, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; ``exact``: the fills round nothing, so no bounds are needed."""
    make = functools.partial(_altered, contract, exact)
    if problem.batch is not None:
        yield from _about_batch(problem, make)
    if problem.op == "mm_plus_mm":
        yield from _about_two_products(problem, make)
    if problem.op == "dual_mm":
        yield from _about_dual_product(problem, make)
    if len(problem.outputs) > 1:
        yield from _about_row_sums(problem, contract)
    if problem.op in ("int_mm", "mixed_mm"):
        yield from _about_integers(problem, make)
    if problem.scaling in BLOCK_SCALINGS:
        yield from _about_block_scales(problem, make, tiling)
    if problem.scaling is not None:
        yield from _about_scales(problem, make)
    if problem.fusion is not None:
        yield from _about_fusion(problem, make)
    if problem.reads_bias:
        yield from _about_bias(problem, make)
    if problem.op == "baddbmm":
        yield from _about_factors(problem, make)
    if problem.op not in ("mm", "addmm"):
        cause = "the product is absent: no k was summed, or an operand was read as zeros"
        yield make(cause, problem, with_input(a=lambda t: 0 * t.double()))
    if tiling.splits and problem.op == "mm":
        yield from _about_splits(problem, contract, tiling.splits)
    elif (
        tiling.splits and exact and problem.has_product and not problem.K % tiling.splits and len(problem.outputs) == 1
    ):
        yield from _about_epilogues_of_parts(problem, tiling.splits)


def _altered(contract: Contract, exact: bool, cause: str, problem: Gemm, change: Change) -> Alteration:
    """Returns the problem's own computation over changed inputs."""

    def compute(inputs: Inputs) -> Outputs:
        changed = change(inputs)
        value, error = gemm.value(problem, changed, device="cpu"), None
        if not exact:
            size = gemm.magnitude(problem, changed, device="cpu")
            error = error_bound(problem, contract, value, size, changed)
        sums = {"sums": row_sums(contract, changed["a"])} if len(problem.outputs) > 1 else {}
        return {"out": (value, error), **sums}

    return Alteration(cause, compute)


def with_input(**changes: Callable[[Tensor], Tensor]) -> Change:
    """Inputs of which those named are changed."""
    return lambda inputs: {**inputs, **{name: change(inputs[name]) for name, change in changes.items()}}


def through(form: str, tensor: Tensor) -> Tensor:
    """``tensor`` (fp32 or integers) rounded to ``form`` on the way, in fp32."""
    return tensor.float().to(DTYPES[form]).float()


def lines(index: Sequence[int] | Tensor, dim: int = 0) -> Callable[[Tensor], Tensor]:
    """Picks these lines along ``dim``."""
    numbers = torch.as_tensor(index)
    return lambda tensor: _picked(tensor, dim, numbers)


def _picked(tensor: Tensor, dim: int, index: Tensor) -> Tensor:
    if tensor.element_size() == 1:  # index_select knows no fp8
        return tensor.view(torch.uint8).index_select(dim, index).view(tensor.dtype)
    return tensor.index_select(dim, index)


def other_indices(count: int) -> Iterator[tuple[str, Tensor]]:
    """Yields the indices that may stand for index i, each once, with its name: the first, the next, the previous one,
    the mirror."""
    numbers = torch.arange(count)
    partner = numbers ^ 1
    others = {
        "the first one is used for all": 0 * numbers,
        "the last one is used for all": 0 * numbers + count - 1,
        "neighbours are exchanged": torch.where(partner < count, partner, numbers),
        "the next one is used": (numbers + 1).clamp(max=count - 1),
        "the next one is used, cyclically": (numbers + 1) % count,
        "the previous one is used": (numbers - 1).clamp(min=0),
        "the previous one is used, cyclically": (numbers - 1) % count,
        "they are read in reverse": count - 1 - numbers,
        "every one is used twice": numbers // 2,
    }
    seen = {tuple(numbers.tolist())}
    for name, index in others.items():
        if tuple(index.tolist()) not in seen:
            seen.add(tuple(index.tolist()))
            yield name, index


def _about_batch(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    count = problem.batch or 0
    names = {"a": "A", "b": "B"}
    if problem.bias is not None and problem.bias.kind.startswith("b"):
        names["bias"] = "the bias"
    for what, index in other_indices(count):
        for name, text in names.items():
            yield make(f"{text} of another matrix: {what}", problem, with_input(**{name: lines(index)}))
        every = dict.fromkeys(names, lines(index))
        yield make(f"all operands of another matrix: {what}", problem, with_input(**every))


def _about_two_products(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    def swapped(**names: str) -> Change:
        return lambda inputs: {**inputs, **{name: inputs[other] for name, other in names.items()}}

    for name, other in (("c", "a"), ("d", "b"), ("a", "c"), ("b", "d")):
        yield make(f"{name.upper()} is read as {other.upper()}", problem, swapped(**{name: other}))
    yield make("A and C are exchanged", problem, swapped(a="c", c="a"))
    yield make("B and D are exchanged", problem, swapped(b="d", d="b"))
    for factors, cause in (((0, 1), "A @ B is absent"), ((1, 0), "C @ D is absent"), ((2, 1), "A @ B is added twice")):
        yield make(cause, problem, _times(factors))
    yield make("C @ D is added twice", problem, _times((1, 2)))
    yield make("C @ D is subtracted", problem, _times((1, -1)))


def _about_dual_product(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    yield make("B and D are exchanged", problem, lambda inputs: {**inputs, "b": inputs["d"], "d": inputs["b"]})
    yield make("D is read as B", problem, lambda inputs: {**inputs, "d": inputs["b"]})
    yield make("B is read as D", problem, lambda inputs: {**inputs, "b": inputs["d"]})
    for cause, activation in _INSTEAD_OF_SILU.items():
        yield Alteration(f"{cause} instead of silu", functools.partial(_dual_with, problem, activation))
    added = functools.partial(_dual_with, problem, gemm.silu, combine=torch.add)
    yield Alteration("the products are added, not multiplied", added)


#: What may stand for silu.
_INSTEAD_OF_SILU: dict[str, Callable[[Tensor], Tensor]] = {
    "nothing is computed": lambda x: x,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "x * sigmoid(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "x / (1 + exp(x))": lambda x: x / (1 + torch.exp(x)),
}


def _dual_with(
    problem: Gemm,
    activation: Callable[[Tensor], Tensor],
    inputs: Inputs,
    combine: Callable[[Tensor, Tensor], Tensor] = torch.mul,
) -> Outputs:
    """Returns a dual product with another ``activation``. Its result may err by 2**-10 of itself and by what sums that
    cancel lose, which distinguishes what differs more."""
    gate, factor = gemm.product(problem, inputs, device="cpu").chunk(2, -1)
    value = combine(activation(gate), factor)
    sizes = gemm.magnitude(problem, inputs, device="cpu").chunk(2, -1)
    return {"out": (value, value.abs() * 2.0**-10 + torch.maximum(combine(*sizes), sizes[0]) * 2.0**-16)}


def _about_row_sums(problem: Gemm, contract: Contract) -> Iterator[Alteration]:
    """Yields other sums with the right product."""

    def beside(cause: str, change: Callable[[Tensor], Tensor]) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            value, size = (of(problem, inputs, device="cpu") for of in (gemm.value, gemm.magnitude))
            sums, error = row_sums(contract, inputs["a"])
            return {"out": (value, error_bound(problem, contract, value, size, inputs)), "sums": (change(sums), error)}

        return Alteration(cause, compute)

    for form in ("fp16", "bf16"):
        yield beside(f"the row sums are rounded to {form}", functools.partial(_rounded, form))
    yield beside("the row sums are absent", torch.zeros_like)
    yield beside("the row sums are taken twice", lambda sums: 2 * sums)
    for what, index in other_indices(problem.M):
        yield beside(f"the row sums are those of another row: {what}", lines(index))


def _rounded(form: str, values: Tensor) -> Tensor:
    return round_to(values, form).double()


def _times(factors: tuple[int, int]) -> Change:
    """A and C times integers, in fp64: what is computed is fp64 anyway."""
    return with_input(a=lambda t: t.double() * factors[0], c=lambda t: t.double() * factors[1])


def _about_integers(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    if problem.converts_b:
        other = torch.uint8 if problem.second_dtype == "int8" else torch.int8
        name = "unsigned" if problem.second_dtype == "int8" else "signed"
        yield make(f"B is read as {name}", problem, with_input(b=lambda b: b.contiguous().view(other)))
        for form in ("e4m3", "e5m2"):
            yield make(f"B passes through {form}", problem, with_input(b=functools.partial(through, form)))
        return
    for width in (8, 16, 24):
        wrapped = functools.partial(_wrapped, problem, 2.0**width)
        yield Alteration(f"sums wrap at {width} bits", wrapped)
    yield Alteration("sums pass through fp32", functools.partial(_through, problem, torch.float32))
    yield Alteration("sums pass through fp16", functools.partial(_through, problem, torch.float16))
    for name in "ab":
        signed = with_input(**{name: lambda t: t.contiguous().view(torch.uint8)})
        yield make(f"{name.upper()} is read as unsigned", problem, signed)


def _wrapped(problem: Gemm, span: float, inputs: Inputs) -> Outputs:
    value = gemm.value(problem, inputs, device="cpu")
    return {"out": (torch.remainder(value + span / 2, span) - span / 2, None)}


def _through(problem: Gemm, dtype: torch.dtype, inputs: Inputs) -> Outputs:
    value = gemm.value(problem, inputs, device="cpu").to(dtype).double()
    # what is too large for int32 becomes the least of them in the interpreter
    return {"out": (torch.where(value.abs() < 2.0**31, value, -(2.0**31)), None)}


# Scales


def _about_scales(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    """Scales of which both are read wrongly; those of one alone belong to the tile's search."""
    both: dict[str, Callable[[Tensor], Tensor]] = {
        "no scale is applied": torch.ones_like,
        "both scales are applied twice": lambda t: t.double() ** 2,
        "both scales are inverted": lambda t: 1 / t.double(),
    }
    if problem.scaling != "tensor":
        both["the first scale_a and the first scale_b are used for all"] = lambda t: t.flatten()[0].expand(t.shape)
    if problem.scaling in BLOCK_SCALINGS:
        first_k = with_input(scale_a=lambda t: t[:, :1].expand(t.shape), scale_b=lambda t: t[:1].expand(t.shape))
        yield make("both scales are those of the first block of k", problem, first_k)
    for cause, change in both.items():
        yield make(cause, problem, with_input(scale_a=change, scale_b=change))
    for name in ("scale_a", "scale_b"):
        yield make(f"{name} is not applied", problem, with_input(**{name: torch.ones_like}))
        yield make(f"{name} is applied twice", problem, with_input(**{name: lambda t: t.double() ** 2}))
        yield make(f"{name} is inverted", problem, with_input(**{name: lambda t: 1 / t.double()}))
        for dim, extent in enumerate(problem.operand(name).shape):
            if extent < 2:
                continue
            for what, index in other_indices(extent):
                axis = ("row", "column")[dim]
                yield make(f"{name} of another {axis}: {what}", problem, with_input(**{name: lines(index, dim)}))
        for form in ("fp16", "bf16"):
            rounded = with_input(**{name: functools.partial(through, form)})
            yield make(f"{name} is rounded to {form}", problem, rounded)


def _about_block_scales(problem: Gemm, make: Callable[..., Alteration], tiling: Tiling) -> Iterator[Alteration]:
    """The number of a scale's block, computed from another block size; sums that are scaled again with each block."""
    for name, axis, extent, tile in (
        ("scale_a", 0, problem.M, tiling.block[0]),
        ("scale_a", 1, problem.K, tiling.block[2]),
        ("scale_b", 0, problem.K, tiling.block[2]),
        ("scale_b", 1, problem.N, tiling.block[1]),
    ):
        count = problem.operand(name).shape[axis]
        if count == extent or count < 2:
            continue
        numbers = torch.arange(extent)
        along = "rows" if (name, axis) == ("scale_a", 0) else "columns" if (name, axis) == ("scale_b", 1) else "k"
        for size in dict.fromkeys((tile, 2 * SCALE_BLOCK, SCALE_BLOCK // 2)):
            index = (numbers // size).clamp(max=count - 1)
            cause = f"{name} is indexed by blocks of {size} {along} instead of {SCALE_BLOCK}"
            yield Alteration(cause, functools.partial(_with_scale_index, problem, name, axis, index))
    for scaled in (("scale_a", "scale_b"), ("scale_a",), ("scale_b",)):
        cause = f"the sum so far is scaled again with every k-block ({' and '.join(scaled)})"
        yield Alteration(cause, functools.partial(_scaled_again, problem, tiling.block[2], scaled))


def _with_scale_index(problem: Gemm, name: str, axis: int, index: Tensor, inputs: Inputs) -> Outputs:
    def change(operand: str, values: Tensor) -> Tensor:
        if operand != name:
            return values
        scale = inputs[name].double().index_select(axis, index)
        other = 1 - axis
        return scale if scale.shape[other] == values.shape[other] else _spread(scale, other, values.shape[other])

    a, b = gemm.factors(problem, inputs, device="cpu", change=change)
    return {"out": (gemm.epilogue(problem, inputs, a @ b), None)}


def _spread(scale: Tensor, axis: int, extent: int) -> Tensor:
    return scale.repeat_interleave(SCALE_BLOCK, axis).narrow(axis, 0, extent)


def _scaled_again(problem: Gemm, size: int, scaled: tuple[str, ...], inputs: Inputs) -> Outputs:
    a, b = (inputs[name].double() for name in "ab")
    scales = gemm.block_scales(problem, inputs["scale_a"].double(), inputs["scale_b"].double())
    total = torch.zeros(problem.M, problem.N, dtype=torch.float64)
    for k in range(0, problem.K, size):
        left, right = scales[0][:, k : k + 1], scales[1][k : k + 1]
        part = a[:, k : k + size] @ b[k : k + size]
        part = part if "scale_a" in scaled else part * left
        part = part if "scale_b" in scaled else part * right
        total = total + part
        total = total * left if "scale_a" in scaled else total
        total = total * right if "scale_b" in scaled else total
    return {"out": (gemm.epilogue(problem, inputs, total), None)}


# Fused products


def _about_fusion(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    assert problem.fusion is not None
    steps, prologue = problem.fusion.epilogue, problem.fusion.prologue

    def with_steps(cause: str, chosen: tuple[str, ...]) -> Alteration:
        fusion = dataclasses.replace(problem.fusion, epilogue=chosen)  # type: ignore[type-var]
        bias = problem.bias if "bias" in chosen else None
        return make(cause, dataclasses.replace(problem, fusion=fusion, bias=bias), lambda inputs: inputs)

    for place, step in enumerate(steps):
        yield with_steps(f"the epilogue's step {step!r} is absent", steps[:place] + steps[place + 1 :])
    for order in itertools.permutations(steps):
        if order != steps and len(steps) < 5:
            yield with_steps(f"the epilogue's steps run in the order {', '.join(order)}", order)
    for place, step in enumerate(steps):
        instead = {"relu": ("gelu",), "gelu": ("relu",)}.get(step, ())
        for other in instead:
            if other not in steps:
                chosen = (*steps[:place], other, *steps[place + 1 :])
                yield with_steps(f"{other} is computed instead of {step}", chosen)
    if "dropout" in steps:
        yield make("dropout keeps what the mask drops", problem, with_input(mask=lambda m: (m == 0).to(m.dtype)))
        yield make("dropout drops nothing", problem, with_input(mask=torch.ones_like))
        halved = _step_replaced(problem, "dropout", lambda v, i: torch.where(i["mask"] != 0, v, 0.0))
        yield Alteration("dropout does not scale what it keeps", halved)
        if "mask" in {operand.name for operand in problem.operands}:
            for what, index in other_indices(problem.M):
                yield make(f"dropout's mask of another row: {what}", problem, with_input(mask=lines(index)))
    if "gelu" in steps:
        for cause, function in _ACTIVATIONS.items():
            yield Alteration(f"{cause} instead of gelu", _step_replaced(problem, "gelu", function, contract_error=True))
    if "residual" in steps:
        for what, index in other_indices(problem.M):
            yield make(f"the residual of another row: {what}", problem, with_input(residual=lines(index)))
        yield make("the residual is added twice", problem, with_input(residual=lambda t: 2 * t.double()))
    if prologue == "gather":
        yield make("A is not gathered", problem, with_input(rows=lambda r: torch.arange(len(r)).to(r.dtype)))
        for what, index in other_indices(problem.M):
            yield make(f"A is gathered by the index of another row: {what}", problem, with_input(rows=lines(index)))
    if prologue == "scatter":
        yield make("rows are not scattered", problem, with_input(rows=lambda r: torch.arange(len(r)).to(r.dtype)))
        yield make("rows are gathered, not scattered", problem, with_input(rows=torch.argsort))
    for name, of, extent in (("row_scale", "row", problem.M), ("k_scale", "k", problem.K)):
        if name not in {operand.name for operand in problem.operands}:
            continue
        yield make(f"{name} is not applied", problem, with_input(**{name: torch.ones_like}))
        yield make(f"{name} is applied twice", problem, with_input(**{name: lambda t: t**2}))
        for what, index in other_indices(extent):
            yield make(f"{name} of another {of}: {what}", problem, with_input(**{name: lines(index)}))
        for form in ("fp16", "bf16"):
            rounded = with_input(**{name: functools.partial(through, form)})
            yield make(f"{name} is rounded to {form}", problem, rounded)
    if prologue == "cast":
        for form in ("bf16", "fp16"):
            if form != problem.dtype:
                narrow = with_input(a=functools.partial(through, form))
                yield make(f"A is cast to {form} on the way", problem, narrow)


#: What may stand for gelu.
_ACTIVATIONS: dict[str, Callable[[Tensor, Inputs], Tensor]] = {
    "x * sigmoid(1.702 x)": lambda v, _: v * torch.sigmoid(1.702 * v),
    "gelu by tanh": lambda v, _: torch.nn.functional.gelu(v, approximate="tanh"),
    "x * sigmoid(x)": lambda v, _: v * torch.sigmoid(v),
}


def _step_replaced(
    problem: Gemm, replaced: str, function: Callable[[Tensor, Inputs], Tensor], *, contract_error: bool = False
) -> Callable[[Inputs], Outputs]:
    """Returns the problem's computation with ``function`` for one step. With ``contract_error`` its result may err by
    2**-10 of itself, which distinguishes what differs more."""

    def compute(inputs: Inputs) -> Outputs:
        assert problem.fusion is not None
        value = gemm.product(problem, inputs, device="cpu")
        for name in problem.fusion.epilogue:
            single = dataclasses.replace(problem.fusion, epilogue=(name,))
            bias = problem.bias if name == "bias" else None
            step = dataclasses.replace(problem, fusion=single, bias=bias)
            value = function(value, inputs) if name == replaced else gemm.fused_steps(step, inputs, value)[-1]
        return {"out": (value, value.abs() * 2.0**-10 if contract_error else None)}

    return compute


# Bias and splits


def _about_bias(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    operand = problem.operand("bias")
    yield make("the bias is absent", problem, with_input(bias=torch.zeros_like))
    yield make("the bias is added twice", problem, with_input(bias=lambda t: 2 * t.double()))
    for dim, axis in zip(
        range(-len(operand.shape), 0), ("matrix", "row", "column")[-len(operand.shape) :], strict=True
    ):
        extent = operand.shape[dim]
        if extent < 2 or (dim == -3):
            continue
        for what, index in other_indices(extent):
            yield make(f"the bias of another {axis}: {what}", problem, with_input(bias=lines(index, dim)))


def _about_factors(problem: Gemm, make: Callable[..., Alteration]) -> Iterator[Alteration]:
    """alpha and beta of a batch; those of one product belong to the tile's search."""
    for cause, alpha, beta in other_factors(problem.alpha, problem.beta):
        yield make(cause, dataclasses.replace(problem, alpha=alpha, beta=beta), lambda inputs: inputs)


def other_factors(alpha: float, beta: float) -> Iterator[tuple[str, float, float]]:
    """Yields other factors of a product and of its bias with the cause for which they stand; each pair once."""
    others = {
        "alpha is not applied": (1.0, beta),
        "beta is not applied": (alpha, 1.0),
        "neither alpha nor beta is applied": (1.0, 1.0),
        "alpha and beta are exchanged": (beta, alpha),
        "the product is scaled by beta instead of alpha": (beta, beta),
        "the bias is scaled by alpha instead of beta": (alpha, alpha),
        "the product is scaled by beta too": (alpha * beta, beta),
        "the bias is scaled by alpha too": (alpha, alpha * beta),
        "alpha is applied twice": (alpha * alpha, beta),
        "beta is applied twice": (alpha, beta * beta),
        "alpha and beta are applied twice": (alpha * alpha, beta * beta),
    }
    seen = {(alpha, beta)}
    for cause, factors in others.items():
        if factors not in seen:
            seen.add(factors)
            yield (cause, *factors)


def _about_splits(problem: Gemm, contract: Contract, splits: int) -> Iterator[Alteration]:
    """Parts of K that are summed wrongly; parts that are left out belong to the search by segments."""
    if problem.K % splits:
        return
    depth = problem.K // splits

    def parts(inputs: Inputs) -> Tensor:
        a, b = (inputs[name].double() for name in "ab")
        return torch.stack([a[:, k : k + depth] @ b[k : k + depth] for k in range(0, problem.K, depth)])

    def summed(change: Callable[[Tensor], Tensor]) -> Callable[[Inputs], Outputs]:
        return lambda inputs: {"out": (change(parts(inputs)), None)}

    for name in ("bf16", "fp16"):
        each = summed(functools.partial(_rounded_parts, name))
        yield Alteration(f"every part of K is rounded to {name} before the parts are summed", each)
        running = summed(functools.partial(_rounded_sums, name))
        yield Alteration(f"the sum of the parts of K is rounded to {name} after each part", running)
    for modulus in range(1, splits):
        again = summed(functools.partial(_sum_of_parts, [part % modulus for part in range(splits)]))
        yield Alteration(f"parts of K are read again: part i is part i % {modulus}", again)
    yield Alteration("only the last part of K is kept", summed(lambda p: p[-1]))
    for count in range(1, splits):
        few = summed(functools.partial(_sum_of_parts, list(range(count))))
        yield Alteration(f"only the first {count} of {splits} parts of K are summed", few)
    yield Alteration("every part of K is summed twice", summed(lambda p: 2 * p.sum(0)))


def _about_epilogues_of_parts(problem: Gemm, splits: int) -> Iterator[Alteration]:
    """Epilogues that each part of K applies, and that belong to the sum: a bias, and scales of the sum so far."""
    depth = problem.K // splits
    if not is_plain(problem):
        return

    def parts(inputs: Inputs) -> list[Tensor]:
        a, b = gemm.factors(problem, inputs, device="cpu")
        return [a[:, k : k + depth] @ b[k : k + depth] for k in range(0, problem.K, depth)]

    def every_bias(inputs: Inputs) -> Outputs:
        of_parts = [gemm.epilogue(problem, inputs, part) for part in parts(inputs)]
        return {"out": (torch.stack(of_parts).sum(0), None)}

    def running(inputs: Inputs) -> Outputs:
        without_bias = {**inputs, "bias": torch.zeros_like(inputs["bias"])} if problem.reads_bias else inputs
        first, *rest = parts(inputs)
        total = first
        for part in rest:
            total = gemm.epilogue(problem, without_bias, total) + part
        return {"out": (gemm.epilogue(problem, inputs, total), None)}

    if problem.reads_bias:
        yield Alteration(f"the bias is counted {splits} times: each of {splits} parts of K adds it", every_bias)
    if problem.scaling is not None or problem.alpha != 1.0:
        name = "alpha" if problem.scaling is None else "the scales"
        once_more = f"each of {splits} parts of K applies {'it' if name == 'alpha' else 'them'} to the sum so far"
        yield Alteration(f"{name} counted twice: {once_more}", running)


def _rounded_parts(name: str, parts: Tensor) -> Tensor:
    return round_to(parts, name).double().sum(0)


def _rounded_sums(name: str, parts: Tensor) -> Tensor:
    total = 0 * parts[0]
    for part in parts:
        total = round_to(total + part, name).double()
    return total


def _sum_of_parts(chosen: list[int], parts: Tensor) -> Tensor:
    return parts[chosen].sum(0)


#: Names of the last two axes of an operand of a product.
_MATRIX = {
    **dict.fromkeys(("a", "c"), ("row", "k")),
    **dict.fromkeys(("b", "d"), ("k", "column")),
    "scale_a": ("row", "block of k"),
    "scale_b": ("block of k", "column"),
}


def axes(problem: Gemm, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``."""
    return matrix_axes(problem, name, "matrix")


def matrix_axes(problem: Problem, name: str, lead: str) -> tuple[str, ...]:
    """Returns the axes of an operand of products; ``lead`` names the axis before those of one matrix."""
    rank = len(problem.operand(name).shape)
    if name == "bias" and rank == 1:
        return ("column",)
    return (lead, *_MATRIX.get(name, ("row", "column")))[-rank:] if rank > 1 else ("row",) * rank


def needed(problem: Gemm, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    if output == "sums":
        return {"a": (stored[0], every(problem.K))} if problem.K else {}
    return _of_product(problem, inputs, stored)


def _of_product(problem: Gemm, inputs: Mapping[str, Tensor], stored: Indices) -> Needed:
    *lead, rows, columns = stored
    result: Needed = {}
    if problem.has_product:
        of_a = rows
        if "rows" in inputs and problem.fusion is not None and problem.fusion.prologue == "gather":
            of_a = chosen(problem.operand("a").shape[-2], inputs["rows"].cpu().long()[rows])
            result["rows"] = (rows,)
        if "rows" in inputs and problem.fusion is not None and problem.fusion.prologue == "scatter":
            of_a = rows[inputs["rows"].cpu().long()]
            result["rows"] = (of_a,)
        more = {"mm_plus_mm": (("c", "d"),), "dual_mm": (("a", "d"),)}.get(problem.op, ())
        for left, right in (("a", "b"), *more):
            result[left] = (*lead, of_a, every(problem.K))
            result[right] = (*lead, every(problem.K), columns)
        result |= _of_scales(problem, rows, columns)
        if problem.fusion is not None and problem.fusion.prologue == "scale":
            result["row_scale"] = (rows,)
        if problem.fusion is not None and problem.fusion.prologue == "scale-k":
            result["k_scale"] = (every(problem.K),)
    if problem.reads_bias and problem.bias is not None:
        kind = problem.bias.kind
        own = {"m": rows, "1": every(1), "n": columns, "b": lead[0] if lead else rows}
        result["bias"] = tuple(own[letter] for letter in kind)
    for step, name in (("residual", "residual"), ("dropout", "mask")):
        if problem.fusion is not None and step in problem.fusion.epilogue:
            result[name] = (rows, columns)
    return result


def _of_scales(problem: Gemm, rows: Tensor, columns: Tensor) -> Needed:
    if problem.scaling is None or problem.scaling == "tensor":
        return {}
    shapes = {name: problem.operand(name).shape for name in ("scale_a", "scale_b")}
    if problem.scaling in BLOCK_SCALINGS:
        kinds = problem.scaling.split("/")
        rows, columns = (
            index if kind == "1x128" else divided(index, SCALE_BLOCK, extent)
            for index, kind, extent in zip(
                (rows, columns), kinds, (shapes["scale_a"][0], shapes["scale_b"][1]), strict=True
            )
        )
    return {"scale_a": (rows, every(shapes["scale_a"][1])), "scale_b": (every(shapes["scale_b"][0]), columns)}


def products(problem: Gemm, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the products with a wrong element; see :class:`~conformance.families.family.Family`."""
    block_k, k = tiling.block[2], problem.K
    if problem.batch is not None:
        operation = addmm if problem.bias is not None else mm
        fields: dict[str, Any] = {"out_dtype": problem.out_dtype, "precision": problem.precision}
        if problem.bias is not None:
            kind = problem.bias.kind.removeprefix("b")
            fields |= {"alpha": problem.alpha, "beta": problem.beta, "bias": Bias(kind, problem.bias.dtype)}
        for z in bad.flatten(1).any(1).nonzero()[:, 0].tolist():
            inputs = {name: fill.inputs[name][z] for name in "ab"}
            if problem.bias is not None:
                bias = fill.inputs["bias"]
                inputs["bias"] = bias[z] if problem.bias.kind.startswith("b") else bias
                if problem.bias.kind == "b1n":
                    inputs["bias"] = inputs["bias"].reshape(1, -1)
            inner = operation(problem.M, problem.N, k, problem.dtype, **fields)
            yield Product(f"matrix {z}", inner, with_inputs(fill, inputs), out[z], bad[z], ((0, k),))
        return
    if problem.op == "mm_plus_mm" or (tiling.splits and problem.op == "mm" and k and not k % tiling.splits):
        a, b = gemm.factors(problem, fill.inputs, device="cpu")
        count = 2 if problem.op == "mm_plus_mm" else tiling.splits or 1
        a, b, segments = padded(a, b, [a.shape[1] // count] * count, block_k)
        inner = mm(problem.M, problem.N, a.shape[1], problem.dtype, out_dtype=problem.output_dtype)
        name = "product" if problem.op == "mm_plus_mm" else "part of K"
        yield Product("", inner, with_inputs(fill, {"a": a, "b": b}), out, bad, segments, name)
        return
    plain = problem.fusion is None and problem.scaling not in BLOCK_SCALINGS
    yield Product("", problem, fill, out, bad, ((0, k),), plain=plain)


def is_plain(problem: Gemm) -> bool:
    """True for one product of mm, addmm or scaled_mm with scales of whole operands, rows or columns."""
    return problem.op in ("mm", "addmm", "scaled_mm") and problem.scaling not in BLOCK_SCALINGS
