"""The fills of a problem under a contract: what a family registers, and the fills of any problem.

A fill depends on the operation, sizes, dtypes, bias kind, alpha, beta, scaling, contract and seed, never on layouts.
One set of fills serves all layouts of a problem. A family registers its fills for its problems' class, in its folder of
:mod:`conformance.families` or anywhere else. It registers its reference as :mod:`conformance.reference` says::

    RANDN = FillKind("randn", exact=False, holds="near-normal values", shows="errors past the bound")

    def build(request):
        return request.fill("bounded", inputs, expected, error)

    register_fills(MyProblem, FillSet((RANDN,), applicable=lambda problem, contract: ("randn",), build=build))

Random draws have the same bits on every machine: they are a counter-based generator's raw words and exact arithmetic.
NumPy promises the raw stream of Philox across releases, not that of its distributions, and libm differs between
machines. Operands without a promise, for timing, are drawn here too.
"""

from __future__ import annotations

import functools
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conformance.numerics.contract import FMA, Contract
from conformance.numerics.fill import Fill
from conformance.problems import DTYPES, Device, Problem

SomeProblem = TypeVar("SomeProblem", bound=Problem)


class FillError(AssertionError):
    """A fill does not hold what it promises; the message has the figures. Always an error of the harness."""


@dataclass(frozen=True)
class FillRequest(Generic[SomeProblem]):
    """One fill to build: its name, for which problem and contract, from which seed, and where fp64 values live."""

    name: str
    problem: SomeProblem
    contract: Contract
    seed: int
    device: Device

    def draws(self, salt: str = "") -> Draws:
        """Returns the random numbers of this fill; another ``salt`` gives a fill of the same name others."""
        return Draws(self.seed, f"{salt} {self.name}" if salt else self.name)

    def fill(
        self,
        method: str,
        inputs: Mapping[str, Tensor],
        expected: Tensor,
        error: Tensor | None,
        meta: dict[str, Any] | None = None,
    ) -> Fill:
        """The fill, once it is built; see :class:`Fill` for the arguments."""
        return Fill(self.name, self.seed, method, inputs, expected, error, meta or {})

    def bounded_fill(self, method: str, inputs: Mapping[str, Tensor], expected: Tensor, error: Tensor) -> Fill:
        """A fill that is judged by a bound; it says whether that rests on figures that were not measured."""
        return self.fill(method, inputs, expected, error, {"contract_assumed": self.contract.accumulator.assumed})


@dataclass(frozen=True)
class FillKind:
    """One row of the table of fills: its name, whether it is judged bit for bit, what it holds, what it shows; and
    whether only a test that names it runs it."""

    name: str
    exact: bool
    holds: str
    shows: str
    on_request: bool = False


@dataclass(frozen=True)
class FillSet:
    """The fills of a family.

    ``kinds``: every fill of the family, in the order in which they run. ``applicable(problem, contract)``: the names
    of those that this problem has. ``build(request)``: one of them; it raises FillError if the fill breaks its promise.
    ``sample``: a small problem with all outputs of the family. Its fills are built when they are registered.
    """

    kinds: tuple[FillKind, ...]
    applicable: Callable[[Any, Contract], tuple[str, ...]]
    build: Callable[[FillRequest[Any]], Fill]
    sample: Problem | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)


#: The fills of every family, by the class of its problems.
REGISTERED: dict[type[Problem], FillSet] = {}


@functools.singledispatch
def fill_set(problem: Problem) -> FillSet:
    """Returns the fills of the problem's family. Raises TypeError if none are registered for it."""
    registered = ", ".join(sorted(family.__name__ for family in REGISTERED))
    name = type(problem).__name__
    raise TypeError(
        f"{problem.id} is a {name}, for which there are no fills: register some; there are for {registered}"
    )


def register_fills(family: type[Problem], fills: FillSet) -> None:
    """Makes ``fills`` the fills of the problems of class ``family`` and of its subclasses.

    Raises FillError if a fill of ``fills.sample`` breaks its promise or says nothing about an output.
    """
    if (sample := fills.sample) is not None:
        contract = Contract(sample.output_dtype, FMA)
        _built(fills, sample, contract, 0, fills.applicable(sample, contract), None)
    REGISTERED[family] = fills
    fill_set.register(family, lambda problem: fills)


__all__ = [
    "Fill",
    "FillError",
    "FillKind",
    "FillRequest",
    "FillSet",
    "applicable_fills",
    "fill_names",
    "fill_table",
    "fills",
    "register_fills",
]


def fills(
    problem: Problem,
    contract: Contract,
    seed: int = 0,
    names: Sequence[str] | None = None,
    *,
    device: Device = None,
) -> tuple[Fill, ...]:
    """Returns the fills that ``problem`` has under ``contract``, or those of them in ``names``, in the family's order.

    Inputs are CPU tensors; ``device`` is where fp64 values are computed and where ``expected`` and ``error`` live
    (None: the CPU). Raises ValueError for a name that the family does not know or a contract of another output dtype.
    Raises FillError if a fill breaks its promise or says nothing about an output.
    """
    chosen = applicable_fills(problem, contract, names)
    return _built(fill_set(problem), problem, contract, seed, chosen, device)


def _built(
    fills: FillSet, problem: Problem, contract: Contract, seed: int, names: Sequence[str], device: Device
) -> tuple[Fill, ...]:
    """Returns the fills called ``names``. Raises FillError if one of them says nothing about an output."""
    built = tuple(fills.build(FillRequest(name, problem, contract, seed, device)) for name in names)
    further = {output.name for output in problem.outputs[1:]}
    for fill in built:
        if missing := sorted(further - set(fill.parts)):
            raise FillError(
                f"{problem.id}, fill {fill.name}: the outputs {', '.join(missing)} have no expected values: give a "
                "part for each output after the first"
            )
    return built


def fill_names(problem: Problem) -> tuple[str, ...]:
    """The names of all fills of the problem's family; the problem itself may have fewer."""
    return fill_set(problem).names


def applicable_fills(problem: Problem, contract: Contract, names: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of the fills that ``problem`` has under ``contract``, or of those of them in ``names``; without
    ``names`` none of those that run on request alone.

    Raises ValueError for a name that the family does not know or a contract of another output dtype.
    """
    all_names = fill_names(problem)
    unknown = sorted(set(names or ()) - set(all_names))
    if unknown:
        raise ValueError(f"fill names {unknown} are unknown for {problem.id}: use {', '.join(all_names)}")
    if contract.out_dtype != problem.output_dtype:
        raise ValueError(f"{problem.id} has output {problem.output_dtype}, its contract says {contract.out_dtype}")
    usual = [kind.name for kind in fill_set(problem).kinds if not kind.on_request] if names is None else names
    return tuple(name for name in fill_set(problem).applicable(problem, contract) if name in usual)


def fill_table() -> list[list[str]]:
    """A header and one row per fill of each family: family, name, how it is judged, what it holds, what it shows."""
    rows = [["problems", "fill", "judged", "holds", "shows"]]
    for family, registered in sorted(REGISTERED.items(), key=lambda item: item[0].__name__):
        for kind in registered.kinds:
            judged = "bit for bit" if kind.exact else "by a bound"
            rows.append([family.__name__, kind.name, judged, kind.holds, kind.shows])
    return rows


Shape = tuple[int, ...]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Draws:
    """A stream of draws named by ``seed`` and ``label``; streams of different names are independent."""

    def __init__(self, seed: int, label: str) -> None:
        if seed < 0:
            raise ValueError(f"seed is {seed}: it must be >= 0")
        self._source = np.random.Philox(key=np.array([seed, zlib.crc32(label.encode())], dtype=np.uint64))

    def words(self, shape: Shape) -> NDArray[np.uint64]:
        """Raw 64-bit words."""
        raw: NDArray[np.uint64] = np.asarray(self._source.random_raw(math.prod(shape)), dtype=np.uint64)
        return raw.reshape(shape)

    def below(self, limit: int, shape: Shape) -> Integers:
        """Integers in [0, limit), limit at most 2**53; of a limit past 2**31 up to a multiple of 2**22."""
        if limit > 2**31:
            return (self.below(limit >> 22, shape) << 22) + self.below(2**22, shape)
        scaled = (self.words(shape) >> np.uint64(32)) * np.uint64(limit)
        integers: Integers = (scaled >> np.uint64(32)).astype(np.int64)
        return integers

    def signs(self, shape: Shape) -> Integers:
        """-1 or 1."""
        signs: Integers = 1 - 2 * (self.words(shape) >> np.uint64(63)).astype(np.int64)
        return signs

    def chance(self, probability: float, shape: Shape) -> NDArray[np.bool_]:
        """True with the given probability."""
        threshold = np.uint64(min(max(probability, 0.0), 1.0) * 2**32)
        hits: NDArray[np.bool_] = (self.words(shape) >> np.uint64(32)) < threshold
        return hits

    def nonzero(self, largest: int, shape: Shape) -> Integers:
        """Integers in [-largest, largest] without 0."""
        words = self.words(shape)
        size: Integers = (((words >> np.uint64(32)) * np.uint64(largest)) >> np.uint64(32)).astype(np.int64) + 1
        return np.where(words & np.uint64(1), -size, size)

    def uniform(self, shape: Shape) -> Floats:
        """Multiples of 2**-52 in (0, 1]."""
        values: Floats = ((self.words(shape) >> np.uint64(12)) + np.uint64(1)).astype(np.float64) * 2.0**-52
        return values

    def normal(self, shape: Shape) -> Floats:
        """Near-normal of variance 1 and mean 0: eight 16-bit uniforms summed (at most 4.9 deviations out)."""
        halves = np.zeros(shape, dtype=np.uint64)  # two sums side by side, each of a word's every other uniform
        for _ in range(2):
            words = self.words(shape)
            halves += words & np.uint64(0x0000FFFF0000FFFF)
            halves += (words >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
        total: Floats = ((halves & np.uint64(0xFFFFFFFF)) + (halves >> np.uint64(32))).astype(np.float64)
        # variance of one: (2**32 - 1) / 12; 0.8164965 ~ sqrt(8 / 12)
        return (total - 4 * 65535.0) * (2.0**-16 / 0.8164965)

    def lognormal(self, shape: Shape) -> Floats:
        """Signed values with near-normal binary exponent (deviation 2 binades) and uniform significand."""
        exponent = np.rint(2 * self.normal(shape)).astype(np.int64)
        return np.ldexp(self.uniform(shape) + 1.0, exponent) * self.signs(shape)

    def permutation(self, count: int) -> Integers:
        """Returns a random order of range(count)."""
        return np.argsort(self.words((count,)), kind="stable")


#: Bytes of a page of a device's memory.
PAGE = 2 << 20


def random_tensors(problem: Problem, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """Random operands and outputs with the problem's strides. Never zeros: a device is faster on zeros. Each begins at
    a multiple of :data:`PAGE` bytes: elsewhere some kernels take longer, on an H200 a baddbmm in tf32 107 us for 99.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for operand in problem.tensors:
        dtype = DTYPES[operand.dtype]
        memory = _empty(max(operand.span, 1), dtype, device)
        if operand.name in problem.fixed_values:
            memory.copy_(torch.tensor(problem.fixed_values[operand.name], device=device))
        elif dtype.is_floating_point:
            memory.copy_(torch.randn(memory.shape, device=device, generator=generator))
        else:  # document numbers, row numbers and masks are small, and all of them may be 0 or 1
            memory.copy_(torch.randint(0, 2, memory.shape, device=device, generator=generator))
        tensors[operand.name] = memory.as_strided(operand.shape, operand.strides)
    return tensors


def _empty(span: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    size = span * dtype.itemsize
    memory = torch.empty(size + PAGE, dtype=torch.uint8, device=device)
    first = -memory.data_ptr() % PAGE
    return memory[first : first + size].view(dtype)
