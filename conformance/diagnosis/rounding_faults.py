"""Hypotheses about precision: roundings that the contract does not allow, replayed in fp64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from conformance.diagnosis.fault_model import FaultModel, Hypothesis
from conformance.numerics.rounding import FORMATS, bits, round_to

#: Formats in which a kernel may hold what should be wider.
NARROW = ("fp16", "bf16")


def about_precision(model: FaultModel) -> Iterator[Hypothesis]:
    """Roundings that the contract does not allow, replayed."""
    contract, out = model.contract, FORMATS[model.contract.out_dtype]
    if out.lowest is not None:
        return  # sums of integers are not rounded

    def changed(cause: str, change: Callable[[Tensor], Tensor], special: bool = False) -> Hypothesis:
        return Hypothesis(cause, lambda rows, cols: change(_value(model, rows, cols)), special)

    towards_zero = functools.partial(_cut, name=contract.out_dtype, overflow=contract.overflow)
    yield changed("the output is rounded towards zero", towards_zero)
    for name in (*NARROW, "e5m2", "e4m3"):
        if name != contract.out_dtype:
            # Infinities are what such a fault makes of large values, so they are evidence. e4m3 has NaN in their
            # place, which many other faults make too.
            cause, special = f"the result passes through {name}", name != "e4m3"
            yield changed(cause, functools.partial(_nearest, name=name), special)
            yield changed(cause, functools.partial(_saturated, name=name), special)
    for width in range(out.significand + 1, min(out.significand + 13, 24)):
        cause = f"the result is rounded to {width} bits before it is rounded to the output"
        yield changed(cause, functools.partial(_to_width, width))
    if model.k:
        for name in ("tf32", *NARROW, "e5m2", "e4m3"):
            yield from _about_operands(model, name)
        cut = functools.partial(_cut_sum, model)
        yield model.from_raw("the accumulator is cut to 13 fraction bits after every k-block", cut)
        for name in NARROW:
            yield from _about_sums(model, name)


def _value(model: FaultModel, rows: Tensor, cols: Tensor) -> Tensor:
    return model.finish(model.product(rows, cols), rows, cols)


def _nearest(values: Tensor, name: str) -> Tensor:
    return round_to(values, name).double()


def _saturated(values: Tensor, name: str) -> Tensor:
    return round_to(values, name, overflow="saturate").double()


def _cut(values: Tensor, name: str, overflow: str = "ieee") -> Tensor:
    """``values`` rounded towards zero in the format ``name``: one code down where nearest went up."""
    nearest = round_to(values, name, overflow=overflow)
    code = bits(nearest)
    lower = torch.where(nearest.double().abs() > values.abs(), code - (1 << FORMATS[name].spare), code)
    return lower.to(code.dtype).view(nearest.dtype).double()


def _to_width(width: int, values: Tensor) -> Tensor:
    """``values`` rounded to nearest even at ``width`` significant bits."""
    fraction, exponent = torch.frexp(values)
    return torch.ldexp(torch.round(fraction * 2.0**width), exponent - width)


def _about_operands(model: FaultModel, name: str) -> Iterator[Hypothesis]:
    """Operands rounded or cut to a narrower format; those that it holds anyway predict nothing new."""
    for how in ("rounded", "cut"):
        for operands in ("AB", "A", "B"):
            which = "A and B are" if operands == "AB" else f"{operands} is"
            raw = functools.partial(_narrow_operands, model, name, how, operands)
            yield model.from_raw(f"{which} {how} to {name}", raw)


def _narrow_operands(model: FaultModel, name: str, how: str, operands: str, rows: Tensor, cols: Tensor) -> Tensor:
    convert = _nearest if how == "rounded" else _cut
    a, b = model.a[rows], model.b[:, cols]
    return (convert(a, name) if "A" in operands else a) @ (convert(b, name) if "B" in operands else b)


def _about_sums(model: FaultModel, name: str) -> Iterator[Hypothesis]:
    """Sums kept in, or passed through, the format ``name``."""
    if model.scaled or model.problem.bias is not None:
        whole = functools.partial(_split_sum, model, name, model.k, False)
        yield model.from_raw(f"the product is rounded to {name} before the epilogue", whole)
        before = functools.partial(_before_bias, model, name)
        yield Hypothesis(f"the product is rounded to {name} before the bias", before)
    size = model.block_k
    for step, dot, when in (
        (1, False, "k"),
        (16, False, "16 k"),
        (size, False, "k-block"),
        (size, True, "dot and k-block"),
    ):
        if (when, size) == ("16 k", 16):
            continue  # which a k-block is
        cause = f"the accumulator is rounded to {name} after every {when}"
        yield model.from_raw(cause, functools.partial(_narrow_sum, model, name, step, dot))
    parts = functools.partial(_rounded_parts, model, name)
    yield model.from_raw(f"the sum of each k-block is rounded to {name} before it is added", parts)
    for t in range(model.k_blocks - 1):
        k = (t + 1) * size
        first, both = (functools.partial(_split_sum, model, name, k, rest) for rest in (False, True))
        yield model.from_raw(f"the sum of k-blocks 0..{t} is rounded to {name}", first)
        yield model.from_raw(f"the sums of k-blocks 0..{t} and of the rest are each rounded to {name}", both)


def _narrow_sum(model: FaultModel, name: str, step: int, dot: bool, rows: Tensor, cols: Tensor) -> Tensor:
    """The product with the running sum, and with ``dot`` each partial product too, rounded every ``step`` k."""
    a, b = model.a[rows], model.b[:, cols]
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for k in range(0, model.k, step):
        part = a[:, k : k + step] @ b[k : k + step]
        total = _nearest(total + (_nearest(part, name) if dot else part), name)
    return total


def _rounded_parts(model: FaultModel, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    """The sum, not rounded, of each k-block's product rounded."""
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for t in range(model.k_blocks):
        total += _nearest(model.part(rows, cols, t, t), name)
    return total


def _split_sum(model: FaultModel, name: str, k: int, rest: bool, rows: Tensor, cols: Tensor) -> Tensor:
    """The sum of the first ``k`` products rounded, plus that of the others, rounded too if ``rest``."""
    a, b = model.a[rows], model.b[:, cols]
    second = a[:, k:] @ b[k:]
    return _nearest(a[:, :k] @ b[:k], name) + (_nearest(second, name) if rest else second)


def _cut_sum(model: FaultModel, rows: Tensor, cols: Tensor) -> Tensor:
    """The product with the running sum cut to 13 fraction bits, as Hopper's fp8 unit keeps it, after every k-block."""
    total = torch.zeros(len(rows), len(cols), dtype=torch.float64)
    for t in range(model.k_blocks):
        fraction, exponent = torch.frexp(total + model.part(rows, cols, t, t))
        total = torch.ldexp(torch.trunc(fraction * 2.0**14), exponent - 14)
    return total


def _before_bias(model: FaultModel, name: str, rows: Tensor, cols: Tensor) -> Tensor:
    whole = _value(model, rows, cols)
    product = model.finish(model.product(rows, cols), rows, cols, beta=0.0)
    return _nearest(product, name) + (whole - product)
