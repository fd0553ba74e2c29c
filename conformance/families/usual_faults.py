"""Faults that kernels of every family may have: altered operands, numbers of the problem, sums and results.

They need only the reference of a family and the shapes and strides of its operands. Names of axes make them plainer.
So the author of a family writes none of them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from conformance.families.gemm.alterations import lines, other_indices
from conformance.numerics.alterations import LIKE_THE_RIGHT_ONE, Alteration, Outputs, Tiling
from conformance.numerics.error_bounds import Change, Computed, changed_steps
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Operand, Problem, value

Inputs = Mapping[str, Tensor]
#: Computes the outputs of a problem, with their bounds.
Evaluate = Callable[[Any, Inputs], Outputs]
#: Returns the name of one index along each dimension of an operand or output.
Axes = Callable[[Any, str], tuple[str, ...]]

#: Numbers of a problem below this are added, as eps is; larger ones multiply.
ADDED = 2.0**-6
#: What stands for 0 where a problem refuses 0.
NEARLY_ZERO = 2.0**-140
#: Operands that span more elements than this are not modelled as memory.
MOST_SPANNED = 1 << 20


def first_output(problem: Problem, inputs: Inputs) -> Outputs:
    """Returns the value of the first output by the family's reference, with the bound of the right result."""
    return {problem.output.name: (value(problem, inputs, device="cpu"), LIKE_THE_RIGHT_ONE)}


def usual_faults(
    problem: Any, tiling: Tiling, axes: Axes | None = None, evaluate: Evaluate = first_output
) -> Iterator[Alteration]:
    """Yields the usual faults, the plainest first.

    ``evaluate(problem, inputs)`` returns the outputs; it may be asked about inputs of another dtype, and about the
    problem with another number in a field. Without ``axes`` dimensions have numbers.
    """
    blocks = [*dict.fromkeys(tiling.block)]
    parts = (
        _of_numbers(problem, evaluate),
        _of_operands(problem, evaluate, axes, blocks),
        _of_steps(problem, evaluate),
        _of_reductions(problem, evaluate, blocks),
        _of_outputs(problem, evaluate, axes, blocks),
    )
    for cause, compute in itertools.chain.from_iterable(parts):
        yield Alteration(cause, compute, special="maximum" in cause, general=True)


#: A cause, and what is computed if it is what happened.
Fault = tuple[str, Callable[[Inputs], Outputs]]


def _of_numbers(problem: Any, evaluate: Evaluate) -> Iterator[Fault]:
    """Faults of the numbers and switches among the problem's fields."""
    fields = {each.name: getattr(problem, each.name) for each in dataclasses.fields(problem) if each.init}
    numbers = {name: number for name, number in fields.items() if type(number) is float and number}
    for name, number in numbers.items():
        added = 0 < number < ADDED
        others = {
            f"{name} is left out": 0.0 if added else 1.0,
            f"{name} is applied twice": 2 * number if added else number * number,
            f"{name} is inverted": 1 / number,
            f"{name} is negated": -number,
            f"{name} is read as 0": 0.0,
        }
        for cause, other in list(others.items())[: 2 if added else None]:
            if other != number:
                yield from _with_fields(problem, evaluate, cause, {name: other})
    for (first, one), (second, two) in itertools.combinations(numbers.items(), 2):
        if one != two:
            yield from _with_fields(problem, evaluate, f"{first} and {second} are exchanged", {first: two, second: one})
    for name, switch in fields.items():
        if type(switch) is bool:
            yield from _with_fields(problem, evaluate, f"{name} is taken for {not switch}", {name: not switch})


def _with_fields(problem: Any, evaluate: Evaluate, cause: str, changes: Mapping[str, Any]) -> Iterator[Fault]:
    """Yields the fault of other fields, if there is such a problem and it has the same operands."""
    for zero in (0.0, NEARLY_ZERO):
        try:
            other = dataclasses.replace(
                problem, **{name: zero if number == 0.0 and zero else number for name, number in changes.items()}
            )
        except ValueError:
            continue
        if [each.shape for each in other.tensors] == [each.shape for each in problem.tensors]:
            yield cause, functools.partial(evaluate, other)
        return


def _of_operands(problem: Any, evaluate: Evaluate, axes: Axes | None, blocks: list[int]) -> Iterator[Fault]:
    def changed(**changes: Callable[[Tensor], Tensor]) -> Callable[[Inputs], Outputs]:
        return lambda inputs: evaluate(
            problem, {**inputs, **{name: change(inputs[name]) for name, change in changes.items()}}
        )

    for operand in problem.operands:
        name, is_float = operand.name, FORMATS[operand.dtype].lowest is None
        if not operand.numel:
            continue
        if is_float:
            yield f"{name} is left out: it is read as 0", changed(**{name: torch.zeros_like})
            yield f"{name} is not applied: it is read as 1", changed(**{name: torch.ones_like})
            yield f"{name} is applied twice", changed(**{name: lambda t: t.double() ** 2})
            yield f"1 is added to {name}", changed(**{name: lambda t: t.double() + 1})
            yield f"{name} is inverted", changed(**{name: lambda t: 1 / t.double()})
            yield f"{name} is negated", changed(**{name: lambda t: -t.double()})
            yield f"{name} is added twice", changed(**{name: lambda t: 2 * t.double()})
            for form in ("bf16", "fp16", "e5m2", "e4m3"):
                if FORMATS[operand.dtype].significand > FORMATS[form].significand:
                    narrow = functools.partial(_rounded, form)
                    yield f"{name} is rounded to {form}", changed(**{name: narrow})
        for dim, axis in enumerate(_names(problem, operand, axes)):
            extent = operand.shape[dim]
            for what, index in other_indices(extent):
                yield f"{name} of another {axis}: {what}", changed(**{name: lines(index, dim)})
            for block in dict.fromkeys((*blocks, *_powers(extent))):
                if 1 < block < extent:
                    within = lines(torch.arange(extent) % block, dim)
                    yield f"{name} is indexed within the block of {block} ({axis})", changed(**{name: within})
                    start = (extent - 1) // block * block
                    if is_float and start < extent - 1:
                        last = functools.partial(_zeroed, dim, start)
                        yield f"{name} is read as 0 from {axis} {start} on", changed(**{name: last})
            if is_float and extent > 1:
                yield f"the last {axis} of {name} is read as 0", changed(**{name: _last_zeroed(dim, extent)})
        for cause, strides in _other_strides(operand):
            yield f"{name} is read {cause}", changed(**{name: functools.partial(_reread, operand, strides)})
    for first, second in itertools.combinations(problem.operands, 2):
        if (first.shape, first.dtype) == (second.shape, second.dtype):
            one, two = first.name, second.name
            yield f"{one} and {two} are exchanged", _swapped(problem, evaluate, {one: two, two: one})
            yield f"{one} is read as {two}", _swapped(problem, evaluate, {one: two})
            yield f"{two} is read as {one}", _swapped(problem, evaluate, {two: one})


def _names(problem: Any, tensor: Operand, axes: Axes | None) -> tuple[str, ...]:
    try:
        return axes(problem, tensor.name) if axes is not None else _numbered(tensor)
    except (KeyError, ValueError):  # outputs may have none
        return _numbered(tensor)


def _numbered(tensor: Operand) -> tuple[str, ...]:
    return tuple(f"index of dimension {dim}" for dim in range(len(tensor.shape)))


def _rounded(form: str, tensor: Tensor) -> Tensor:
    return round_to(tensor.double(), form).double()


def _zeroed(dim: int, start: int, tensor: Tensor) -> Tensor:
    changed = tensor.clone()
    changed.narrow(dim, start, tensor.shape[dim] - start).zero_()
    return changed


def _last_zeroed(dim: int, extent: int) -> Callable[[Tensor], Tensor]:
    return functools.partial(_zeroed, dim, extent - 1)


def _swapped(problem: Any, evaluate: Evaluate, names: Mapping[str, str]) -> Callable[[Inputs], Outputs]:
    return lambda inputs: evaluate(problem, {**inputs, **{name: inputs[other] for name, other in names.items()}})


def _other_strides(operand: Operand) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the strides by which a kernel may read a matrix wrongly."""
    if len(operand.shape) < 2 or operand.span > MOST_SPANNED:
        return
    *lead, rows, columns = operand.strides
    yield "with its last two strides exchanged (transposed)", (*lead, columns, rows)
    dense = [1]
    for extent in reversed(operand.shape[1:]):
        dense.insert(0, dense[0] * extent)
    if tuple(dense) != operand.strides:
        yield "as if it were contiguous", tuple(dense)


def _reread(operand: Operand, strides: tuple[int, ...], tensor: Tensor) -> Tensor:
    """Returns what the memory of ``tensor`` holds for other strides. Raises ValueError for what lies outside it."""
    memory = torch.full((operand.span,), torch.nan, dtype=torch.float64)
    memory.as_strided(operand.shape, operand.strides).copy_(tensor)
    if 1 + sum((extent - 1) * stride for extent, stride in zip(operand.shape, strides, strict=True)) > len(memory):
        raise ValueError(f"{operand.name} ends before that")
    read = memory.as_strided(operand.shape, strides).clone()
    if bool(read.isnan().any()):
        raise ValueError(f"memory between the elements of {operand.name} is read")
    return read


# Steps of a computation that is written over quantities


def _of_steps(problem: Any, evaluate: Evaluate) -> Iterator[Fault]:
    """Other functions in place of the right ones. Where a reference has no such step nothing changes, and a fault that
    changes nothing explains nothing."""
    others: list[tuple[str, Mapping[str, Change]]] = [
        ("values are not squared", {"square": lambda square, x: x}),
        ("absolute values are taken, not squares", {"square": lambda square, x: x.where(x.value >= 0, -x)}),
        ("no root is taken", {"rsqrt": lambda rsqrt, x: 1.0 / x, "sqrt": lambda sqrt, x: x}),
        ("a root is taken twice", {"rsqrt": lambda root, x: root(1.0 / root(x)), "sqrt": lambda f, x: f(f(x))}),
        ("exponentials have base 2, not e", {"exp": lambda exp, x: exp(x * math.log(2))}),
        ("logarithms have base 2, not e", {"log": lambda log, x: log(x) * (1 / math.log(2))}),
        ("no logarithm is taken", {"log": lambda log, x: x}),
        ("the sigmoid has the wrong sign: sigmoid(-x)", {"sigmoid": lambda sigmoid, x: sigmoid(-x)}),
        ("no maximum is subtracted", {"max": lambda largest, x, dim: largest(x, dim) * 0.0, "exp": _in_fp32}),
    ]  # fmt: skip
    for name in ("exp", "tanh", "sigmoid", "erf"):
        others.append((f"{name} is left out", {name: lambda step, x: x}))
    for cause, changes in others:
        yield cause, functools.partial(_evaluated, evaluate, problem, changes)
    for name, eps in [(each.name, getattr(problem, each.name)) for each in dataclasses.fields(problem)]:
        if type(eps) is float and 0 < eps < ADDED:
            after: dict[str, Change] = {
                "rsqrt": lambda rsqrt, x, eps=eps: 1.0 / (1.0 / rsqrt(x - eps) + eps),
                "sqrt": lambda sqrt, x, eps=eps: sqrt(x - eps) + eps,
            }
            yield f"{name} is added after the root", functools.partial(_evaluated, evaluate, problem, after)


def _in_fp32(exp: Callable[..., Computed], x: Computed) -> Computed:
    """Returns the exponential, or infinity or zero where fp32 holds no other number."""
    return Computed(*(part.float().double() for part in dataclasses.astuple(exp(Computed(x.value, x.value, x.value)))))


def _evaluated(
    evaluate: Evaluate, problem: Any, changes: Mapping[str, Change], inputs: Inputs, *, every: bool = False
) -> Outputs:
    """Returns the outputs of changed steps. Raises ValueError if the reference has none of them, or not ``every``
    one."""
    used: set[str] = set()

    def counted(name: str, change: Change, *arguments: Any) -> Computed:
        used.add(name)
        return change(*arguments)

    with changed_steps(**{name: functools.partial(counted, name, change) for name, change in changes.items()}):
        outputs = evaluate(problem, inputs)
    if not used or (every and used != changes.keys()):
        raise ValueError(f"the reference has only these of the steps {sorted(changes)}: {sorted(used)}")
    # a changed step may have no bound: a root of what may be 0
    return {
        name: (value, LIKE_THE_RIGHT_ONE if error is not None and bool(error.isnan().any()) else error)
        for name, (value, error) in outputs.items()
    }


def _of_reductions(problem: Any, evaluate: Evaluate, blocks: list[int]) -> Iterator[Fault]:
    """Sums, means and maxima of other elements of the last dimension, and means that are divided by another number."""
    if not problem.operands or not problem.operands[0].shape:
        return
    extent = problem.operands[0].shape[-1]
    sizes = [*dict.fromkeys(size for size in (*blocks, *_powers(extent)) if size < extent)]
    parts = [(0, extent - 1), (1, extent)]
    for size in sizes:
        start = (extent - 1) // size * size
        parts += [(start, extent), (0, size), (0, start)]
    for what, steps in (("sums", ("sum",)), ("maxima", ("max",)), ("sums and maxima", ("sum", "max"))):
        for start, stop in dict.fromkeys(parts):
            if start < stop:
                changes = dict.fromkeys(steps, functools.partial(_of_part, extent, start, stop))
                cause = f"columns {start}..{stop - 1} of {extent} alone enter the {what}"
                yield cause, functools.partial(_evaluated, evaluate, problem, changes, every=True)
    for what, of_squares in (("means", False), ("means of squares", True)):
        for count in dict.fromkeys((extent - 1, extent + 1, *_padded(extent, blocks))):
            if count > 0:
                changes = {"mean": functools.partial(_divided, extent, count, of_squares)}
                cause = f"{what} are divided by {count}, not by {extent}"
                yield cause, functools.partial(_evaluated, evaluate, problem, changes)
    for total in _padded(extent, blocks):
        changes = {
            "mean": functools.partial(_padded_mean, extent),
        }
        yield (
            f"columns {extent}..{total - 1} are not masked: as zeros they enter sums and maxima",
            functools.partial(_with_zeros, evaluate, problem, extent, total, changes),
        )


def _powers(extent: int) -> list[int]:
    return [1 << exponent for exponent in range(3, extent.bit_length())]


def _padded(extent: int, blocks: list[int]) -> list[int]:
    """Returns the extents of whole blocks that hold ``extent`` columns."""
    sizes = [-(-extent // size) * size for size in (*blocks, *_powers(2 * extent - 1)) if size > 1]
    return sorted({size for size in sizes if extent < size <= 4 * extent})


def _of_part(
    extent: int, start: int, stop: int, step: Callable[..., Computed], x: Computed, dim: int, *more: Any
) -> Computed:
    if x.value.shape[dim] != extent:
        return step(x, dim, *more)
    return step(Computed(*(part.narrow(dim, start, stop - start) for part in (x.value, x.low, x.high))), dim, *more)


def _divided(
    extent: int, count: int, of_squares: bool, mean: Callable[..., Computed], x: Computed, dim: int, *more: Any
) -> Computed:
    result = mean(x, dim, *more)
    changes = x.value.shape[dim] == extent and (not of_squares or bool((x.low >= 0).all()))
    return result * (extent / count) if changes else result


def _padded_mean(extent: int, mean: Callable[..., Computed], x: Computed, dim: int, *more: Any) -> Computed:
    return mean(x, dim, *more) * (x.value.shape[dim] / extent)


def _with_zeros(
    evaluate: Evaluate, problem: Any, extent: int, total: int, changes: Mapping[str, Change], inputs: Inputs
) -> Outputs:
    """Returns the outputs of operands that have zeros up to ``total`` columns. Raises ValueError if the problem has no
    one field for its columns."""
    names = [each.name for each in dataclasses.fields(problem) if getattr(problem, each.name) == extent]
    if len(names) != 1:
        raise ValueError(f"{len(names)} fields of the problem are {extent}")
    wider = dataclasses.replace(problem, **{names[0]: total})
    padded = {name: torch.nn.functional.pad(tensor.double(), (0, total - extent)) if tensor.shape[-1:] == (extent,)
              else tensor for name, tensor in inputs.items()}  # fmt: skip
    with changed_steps(**changes):  # which a reference without means does not have
        outputs = evaluate(wider, padded)
    shapes = {output.name: output.shape for output in problem.outputs}
    return {name: (_cut(value, shapes[name]), error if error is None or error is LIKE_THE_RIGHT_ONE else
                   _cut(error, shapes[name])) for name, (value, error) in outputs.items()}  # fmt: skip


def _differences(dim: int) -> Callable[[Tensor], Tensor]:
    """Returns what is left of sums along ``dim`` if each loses those before it."""

    def change(values: Tensor) -> Tensor:
        first = values.narrow(dim, 0, 1)
        return torch.cat([first, values.diff(dim=dim)], dim)

    return change


def _cut(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    return tensor[tuple(slice(extent) for extent in shape)]


# Results


def _of_outputs(problem: Any, evaluate: Evaluate, axes: Axes | None, blocks: list[int]) -> Iterator[Fault]:
    """Right results that are stored wrongly."""

    def stored(change: Callable[[Tensor], Tensor], name: str = "") -> Callable[[Inputs], Outputs]:
        def compute(inputs: Inputs) -> Outputs:
            outputs = dict(evaluate(problem, inputs))
            if name and name not in outputs:
                raise ValueError(f"the reference has no {name}")
            for output in [name] if name else [*outputs]:
                value, error = outputs[output]
                outputs[output] = change(value), None if error is None else LIKE_THE_RIGHT_ONE
            return outputs

        return compute

    yield "the result is negated", stored(torch.neg)
    yield "the result is counted twice", stored(lambda value: 2 * value)
    yield "the result is 0", stored(torch.zeros_like)
    for form in ("bf16", "fp16", "e5m2", "e4m3"):
        yield f"the result passes through {form}", stored(functools.partial(_rounded, form))
    for output in problem.outputs:
        for dim, axis in enumerate(_names(problem, output, axes)):
            extent = output.shape[dim]
            for what, index in other_indices(extent):
                yield (
                    f"{output.name} holds the result of another {axis}: {what}",
                    stored(lines(index, dim), output.name),
                )
            if extent > 1:
                summed = functools.partial(torch.cumsum, dim=dim)
                for cause, change in (
                    (f"holds the sum of the results of each {axis} up to its own", summed),
                    (f"holds the difference of its result and that of the {axis} before", _differences(dim)),
                ):
                    yield f"{output.name} {cause}", stored(change, output.name)
            for block in blocks:
                if 1 < block < extent:
                    exchanged = torch.arange(extent)
                    swapped = exchanged + torch.where(exchanged // block % 2 == 0, block, -block)
                    exchanged = torch.where(swapped < extent, swapped, exchanged)
                    yield (
                        f"{output.name}: blocks of {block} ({axis}) are exchanged with their neighbours",
                        stored(lines(exchanged, dim), output.name),
                    )
                    yield (
                        f"{output.name}: the first block of {block} ({axis}) is stored in all",
                        stored(lines(torch.arange(extent) % block, dim), output.name),
                    )
        if len(output.shape) > 1 and output.shape[-1] == output.shape[-2]:
            yield f"{output.name} is stored transposed", stored(lambda value: value.transpose(-1, -2), output.name)
