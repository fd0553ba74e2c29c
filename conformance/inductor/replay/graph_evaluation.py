"""Evaluates a graph without rounding, and proves for given operands that every correct implementation gives the same
bits. Roundings of intermediate results to 16 bits are excepted: a fused kernel may leave them out."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from conformance.inductor.compile.program import Unsupported
from conformance.numerics.rounding import round_to
from conformance.records import Reason, ReasonCode

#: Formats to which a fused kernel may round an intermediate result, or not.
NARROW = {torch.float16: "fp16", torch.bfloat16: "bf16"}
#: Bits of an fp32 accumulator, and of a sum of int8 products.
FLOAT_BITS, INTEGER_BITS = 24, 31
#: Bits of an operand of a convolution: torch lets it be tf32.
CONVOLUTION_BITS = 11
#: The most places that may be rounded or not; each doubles the number of right results.
MOST_CHOICES = 3


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operations that round to the same bits whether their operands were rounded before or not.
SELECTING = _names(
    "_unsafe_view alias as_strided cat clone constant_pad_nd copy_ detach diagonal expand index lift_fresh neg permute "
    "relu select slice squeeze stack t transpose unsqueeze view where"
)
#: Operations whose result is exact if fp32 holds it.
POINTWISE = _names("_local_scalar_dense _to_copy add add_ eq ge gt le lt mul mul_ ne rsub scalar_tensor sub")
IN_PLACE = _names("add_ mul_")
ADDING = _names("add add_ sub")
PRODUCTS = _names("_int_mm addmm baddbmm bmm convolution mm")


class NotExact(Unsupported):
    """A graph of which this module cannot prove anything."""

    def __init__(self, subject: str, detail: str) -> None:
        super().__init__(Reason(ReasonCode.OPERATION, subject, detail))


@dataclass(frozen=True)
class _Sum:
    """The sum for each element of a result: the sum of the absolute ``terms``. All of them are multiples of its unit, a
    power of two."""

    terms: Tensor
    units: Tensor

    def plus(self, other: _Sum) -> _Sum:
        return _Sum(self.terms + other.terms, torch.minimum(self.units, other.units))


@dataclass
class Evaluation:
    """The evaluation of a graph. ``results`` are in fp64, not rounded, with the ``dtypes`` that they are rounded to.

    ``excess`` is by how many bits the largest sum is past what its accumulator holds exactly, 0 if all fit;
    ``largest`` the largest value of fp16. ``choices`` are the places where a result of 16 bits is read that
    may be rounded before or not, where that makes a difference."""

    results: list[Tensor] = field(default_factory=list)
    dtypes: list[torch.dtype] = field(default_factory=list)
    excess: float = 0.0
    largest: float = 0.0
    choices: list[int] = field(default_factory=list)


def evaluate(
    graph: Callable[..., Any],
    operands: Sequence[Tensor],
    arguments: Mapping[str, Any],
    rounded: frozenset[int] = frozenset(),
) -> Evaluation:
    """Calls ``graph`` with ``operands``, whose dtypes are those of the program. ``rounded`` are those of the choices
    at which the value that is read is rounded first.

    Raises NotExact for an operation of which nothing is known here.
    """
    mode = _Shadowed(rounded)
    stand_ins = [mode.stand_in(value) for value in operands]
    try:
        with mode:
            result = graph(*stand_ins, **arguments)
    except NotExact:
        raise
    except Exception as error:  # torch raises whatever it likes where it has no shapes for an operation
        raise NotExact("graph", f"cannot be evaluated without rounding: {type(error).__name__}: {error}") from error
    for output in result if isinstance(result, (tuple, list)) else (result,):
        mode.evaluation.results.append(mode.shadow(output))
        mode.evaluation.dtypes.append(output.dtype)
        mode.note_size(mode.shadow(output), output.dtype)
    return mode.evaluation


def right_results(
    graph: Callable[..., Any], operands: Sequence[Tensor], arguments: Mapping[str, Any], choices: Sequence[int]
) -> list[list[Tensor]]:
    """For each result of the graph all tensors, in its dtype, of which an element of a correct output has the value of
    one."""
    right: list[list[Tensor]] = []
    for number in range(2 ** len(choices)):
        rounded = frozenset(choice for bit, choice in enumerate(choices) if number >> bit & 1)
        one = evaluate(graph, operands, arguments, rounded)
        values = [to_dtype(value, dtype) for value, dtype in zip(one.results, one.dtypes, strict=True)]
        right = [[value] for value in values] if not number else [[*a, b] for a, b in zip(right, values, strict=True)]
    return right


def to_dtype(values: Tensor, dtype: torch.dtype) -> Tensor:
    """fp64 values in ``dtype``, rounded once to nearest even."""
    return round_to(values, NARROW[dtype]) if dtype in NARROW else values.to(dtype)


class _Shadowed(TorchDispatchMode):
    """Runs each operation on tensors without memory, for shapes and dtypes, and on their shadows: fp64 where the
    program has floats, else the values themselves."""

    def __init__(self, rounded: frozenset[int]) -> None:
        super().__init__()
        self.rounded = rounded
        self.evaluation = Evaluation()
        self.reads = 0
        self._sums: dict[int, _Sum] = {}  # of the products
        self._shadows: dict[int, tuple[Tensor, Tensor]] = {}  # the stand-in is kept, so that its id stays its own

    def stand_in(self, value: Tensor) -> Tensor:
        """Returns the tensor without memory of an operand."""
        empty = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        self._keep(empty, value.double() if value.dtype.is_floating_point else value)
        return empty

    def shadow(self, stand_in: Any) -> Tensor:
        if id(stand_in) not in self._shadows:
            raise NotExact("graph", "a result is no tensor that was computed from the operands")
        values: Tensor = self._shadows[id(stand_in)][1]
        return values

    def note_size(self, values: Tensor, dtype: torch.dtype) -> None:
        if dtype == torch.float16 and values.numel():
            largest = float(values.abs().max())  # NaN where infinities met
            self.evaluation.largest = max(self.evaluation.largest, math.inf if math.isnan(largest) else largest)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if name not in SELECTING | POINTWISE | PRODUCTS and not (name == "div" and not isinstance(args[1], Tensor)):
            raise NotExact(name, "it is not known to be exact wherever its result is")
        if name == "_local_scalar_dense":
            return self.shadow(args[0]).item()
        result = func(*args, **{**kwargs, **({"device": "meta"} if "device" in kwargs else {})})
        if name in PRODUCTS:
            value, self._sums[id(result)] = self._product(name, args, kwargs, result.dtype)
        else:
            if name in ADDING:
                self._with_products(args)
            read = self._values if name in SELECTING else self._read
            wide = {**kwargs, **({"device": "cpu"} if "device" in kwargs else {})}
            if result.dtype.is_floating_point and wide.get("dtype") is not None:
                wide["dtype"] = torch.float64
            changed = _mapped(read, args)
            if name in IN_PLACE and changed[0] is not (own := self.shadow(args[0])):
                changed = (own.copy_(changed[0]), *changed[1:])  # whatever views it sees the change
            value = func(*changed, **_mapped(read, wide))
            self._check(value)
        self._keep(result, value)
        self.note_size(value, result.dtype)
        return result

    def _keep(self, stand_in: Tensor, value: Tensor) -> None:
        self._shadows[id(stand_in)] = stand_in, value

    def _values(self, value: Any) -> Any:
        return self.shadow(value) if isinstance(value, Tensor) else value

    def _read(self, value: Any) -> Any:
        """Returns the operand of an operation that does more than to select: rounded before, if this choice is so."""
        return self._chosen(self.shadow(value), value.dtype) if isinstance(value, Tensor) else value

    def _chosen(self, exact: Tensor, dtype: torch.dtype) -> Tensor:
        if dtype not in NARROW:
            return exact
        narrow = round_to(exact, NARROW[dtype]).double()
        if torch.equal(narrow, exact):
            return exact
        self.reads += 1
        self.evaluation.choices.append(self.reads)
        if len(self.evaluation.choices) > MOST_CHOICES:
            raise NotExact("graph", f"more than {MOST_CHOICES} results of 16 bits may be rounded or not")
        return narrow if self.reads in self.rounded else exact

    def _factor(self, stand_in: Tensor) -> Tensor:
        """A factor of a product lies in memory, or is cast before: it is rounded to its dtype."""
        return to_dtype(self.shadow(stand_in), stand_in.dtype).double()

    def _product(self, name: str, args: Any, kwargs: Mapping[str, Any], dtype: torch.dtype) -> tuple[Tensor, _Sum]:
        addend, factors = None, args[:2]
        if name in ("addmm", "baddbmm"):
            addend, factors = args[0], args[1:3]
        a, b = (self._factor(factor) for factor in factors)
        if name == "convolution":
            rest = [None, *args[3:]]
            addend = args[2]
            total: Tensor = torch.ops.aten.convolution(a, b, *rest)
            summed = _Sum(torch.ops.aten.convolution(a.abs(), b.abs(), *rest), _unit(a) * _unit(b))
            for factor in (a, b):
                self._fits(_Sum(factor.abs(), _unit(factor)), CONVOLUTION_BITS)
        else:
            total, summed = a @ b, _Sum(a.abs() @ b.abs(), _unit(a, -1) * _unit(b, -2))
        self._fits(summed, FLOAT_BITS if dtype.is_floating_point else INTEGER_BITS)
        if not dtype.is_floating_point:
            return total.to(dtype), summed
        if addend is not None:
            self.note_size(total, dtype)
            alpha = kwargs.get("alpha", 1)
            total = self._chosen(total, dtype) * alpha
            self._check(total)
            more = self._read(addend) * kwargs.get("beta", 1)
            more = more.view(1, -1, *[1] * (total.dim() - 2)) if name == "convolution" else more
            total = total + more
            self._check(total)
            summed = _Sum(summed.terms * abs(alpha), summed.units * _unit(torch.tensor(alpha).double()))
            summed = summed.plus(_Sum(more.abs(), _unit(more)))
            self._fits(summed, FLOAT_BITS)  # the sum may begin with the addend
        return total, summed

    def _with_products(self, operands: Sequence[Any]) -> None:
        """Adds values to a product where its sum may begin with them: all of it together must fit."""
        tensors = [one for one in operands if isinstance(one, Tensor)]
        if any(id(one) in self._sums for one in tensors):
            sums = [self._sums.get(id(one)) or _Sum(self.shadow(one).abs(), _unit(self.shadow(one))) for one in tensors]
            self._fits(functools.reduce(_Sum.plus, sums), FLOAT_BITS)

    def _fits(self, summed: _Sum, limit: int) -> None:
        ratios = summed.terms / summed.units
        if ratios.numel():
            self._exceeds(math.log2(max(float(ratios.max()), 1.0)), limit)

    def _exceeds(self, bits: float, limit: int) -> None:
        self.evaluation.excess = max(self.evaluation.excess, bits - limit)

    def _check(self, values: Tensor) -> None:
        """fp32 must hold what is computed in it."""
        if values.dtype == torch.float64 and not torch.equal(values.float().double(), values):
            self._exceeds(FLOAT_BITS + 1, FLOAT_BITS)


def _mapped(change: Callable[[Any], Any], values: Any) -> Any:
    """``values`` with each tensor in them changed."""
    if isinstance(values, Mapping):
        return {name: _mapped(change, value) for name, value in values.items()}
    if isinstance(values, (tuple, list)):
        return type(values)(_mapped(change, value) for value in values)
    return change(values)


def _unit(values: Tensor, dimension: int | None = None) -> Tensor:
    """The largest power of two of which all ``values`` are multiples, or all along a dimension; 1 where all are 0."""
    fraction, exponent = torch.frexp(values)
    whole = (fraction * 2.0**53).long()
    units = torch.ldexp((whole & -whole).double(), exponent - 53)
    units = torch.where(values == 0, torch.inf, units)
    if not units.numel():
        return torch.ones((), dtype=torch.float64)
    least = units.min() if dimension is None else units.amin(dimension, keepdim=True)
    return torch.where(least.isinf(), 1.0, least)
