"""Fills for graphs with a product: integers that use every bit of one factor, and sums that are ties of the output.

They are what the fills ``wide-A`` and ``wide-B`` are for a kernel, but found by trial. Values are drawn, the graph is
evaluated without rounding, and the values are narrowed until every sum is exact in any order.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.execution.compile.compile_worker import named
from conformance.families.gemm.fills import is_tie
from conformance.inductor.compile.program import Program
from conformance.inductor.replay.graph_evaluation import NARROW, Evaluation, NotExact, evaluate, right_results
from conformance.inputs.fills import Draws
from conformance.numerics.rounding import FORMATS
from conformance.problems import DTYPES, Operand

#: Bits of the integers that an operand holds; tf32 holds as many of fp32's as fp16 has.
BITS = {"fp32": 11, "fp16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3, "int8": 7}
#: Rows of the wide factor are multiplied by powers of two with exponents below this.
SPREAD = 3
#: Kernels of a library that a generated module calls, from Python or from C++.
LIBRARY = re.compile(r"\b(?:extern_kernels\.|torch\.ops\.aten\.|aoti_torch_\w*?_)(\w*mm\w*|\w*convolution\w*)\(")
#: With fewer, the integers of an operand are often equal.
USEFUL_BITS = 3
#: No result of fp16 is larger: it ends at 2**16.
LARGEST = 2.0**14
#: By more bits it is never made smaller.
LARGEST_SHIFT = 14
#: By so many bits the wide factor is made smaller where a result was infinite.
OVERFLOWN = 8
#: Values are drawn so often until sums fit.
ATTEMPTS = 16
#: With so large a share of ties that only one rounding makes right, no values with more of them are sought.
ENOUGH_TIES = 0.1
#: Operands with more elements together are not evaluated some ten times in fp64 on a CPU, which takes seconds.
MOST_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class GraphFill:
    """``values`` of the operands, in their order. ``right`` has tensors for each result: every element of a correct
    output equals that of one of them. ``ties`` is the share of ties in the output of 16 bits that has most of them."""

    name: str
    values: tuple[Tensor, ...]
    right: tuple[tuple[Tensor, ...], ...]
    ties: float


@dataclass(frozen=True)
class _Widths:
    """Bits of the integers of the wide factor, of the others, and by how many bits the wide factor is made smaller."""

    wide: int
    small: int
    shift: int = 0

    def narrower(self, bits: int) -> _Widths:
        """Fewer bits together: first of the others, then of the wide factor, as long as both stay useful."""
        wide, small = self.wide, self.small
        for _ in range(bits):
            if small > USEFUL_BITS or (wide <= small and small > 1):
                small -= 1
            else:
                wide = max(wide - 1, 1)
        return _Widths(wide, small, self.shift)


def graph_fills(program: Program, modules: Sequence[str], seed: int, chosen: Mapping[str, Tensor]) -> list[GraphFill]:
    """Returns the fills ``wide-A`` and ``wide-B`` of a program, generated as ``modules``. Operands that are ``chosen``,
    and those that index, keep the values that they have.

    In ``wide-B`` outputs of 16 bits have ties; without such outputs it is ``wide-A`` with the factors exchanged.

    Raises NotExact with the reason why the program has no such fills.
    """
    factors = [operand for operand in program.operands if operand.dtype in BITS and operand.name not in chosen]
    factors = [operand for operand in factors if len(operand.shape) > 1 and 0 not in operand.shape]
    if not factors:
        raise NotExact("operands", "the test chooses the values of all matrices")
    if sum(math.prod(operand.shape) for operand in program.operands) > MOST_ELEMENTS:
        raise NotExact("operands", f"they have more than {MOST_ELEMENTS} elements")
    narrow = [operand.name for operand in factors if operand.dtype in ("fp16", "bf16")]
    calls = LIBRARY.findall("\n".join(modules))
    if any("convolution" in call for call in calls):
        raise NotExact("convolution", "a library may transform its operands")
    if calls and narrow:
        raise NotExact(narrow[0], "a library may round sums of parts of K to 16 bits")
    search = _Search(program, seed, chosen)
    first, last = factors[0].name, factors[-1].name
    wide = search.widest("wide-A", first)
    if any(dtype in NARROW for dtype in wide[1].dtypes):
        return [search.fill("wide-A", *wide), search.with_ties("wide-B", first)]
    return [search.fill("wide-A", *wide), search.fill("wide-B", *search.widest("wide-B", last))]


class _Search:
    def __init__(self, program: Program, seed: int, chosen: Mapping[str, Tensor]) -> None:
        self.program, self.seed, self.chosen = program, seed, chosen
        self.evaluate = functools.partial(evaluate, named(program.graph), arguments=dict(program.arguments))

    def fill(self, name: str, values: list[Tensor], evaluation: Evaluation) -> GraphFill:
        right = right_results(named(self.program.graph), values, dict(self.program.arguments), evaluation.choices)
        return GraphFill(name, tuple(values), tuple(map(tuple, right)), _ties(evaluation, right))

    def widest(self, name: str, wide: str) -> tuple[list[Tensor], Evaluation]:
        """Returns values for which every sum is exact, with the operand ``wide`` as wide as possible, and the graph's
        evaluation."""
        return self._fitting(name, wide, _Widths(max(BITS.values()), max(BITS.values())), spread=True)

    def with_ties(self, name: str, wide: str) -> GraphFill:
        """Values whose results have one or two bits more than an output of 16 bits, so that many are ties."""
        widths, best = _Widths(4, 4), None
        for _ in range(3):
            values, evaluation = self._fitting(name, wide, widths, spread=False)
            fill = self.fill(name, values, evaluation)
            best = fill if best is None or fill.ties > best.ties else best
            missing = _missing_bits(evaluation)
            if fill.ties >= ENOUGH_TIES or not missing:
                break
            limit = min(BITS[operand.dtype] for operand in self.program.operands if operand.dtype in BITS)
            larger = min(max(widths.wide + missing, 1), limit)
            widths = _Widths(larger, min(max(widths.small + missing - (larger - widths.wide), 1), limit))
        assert best is not None
        return best

    def _fitting(self, name: str, wide: str, widths: _Widths, *, spread: bool) -> tuple[list[Tensor], Evaluation]:
        """Returns the same with ``widths`` at most. With ``spread`` rows differ by powers of two, and too narrow
        integers are refused."""
        for _ in range(ATTEMPTS):
            values = [
                self._value(name, operand, operand.name == wide, widths, spread) for operand in self.program.operands
            ]
            evaluation = self.evaluate(operands=values)
            if evaluation.excess > 0:
                widths = widths.narrower(math.ceil(evaluation.excess))
            elif not evaluation.largest <= LARGEST:
                past = evaluation.largest / LARGEST
                more = math.ceil(math.log2(past)) if math.isfinite(past) else OVERFLOWN
                shifted = _Widths(widths.wide, widths.small, widths.shift + more)
                # where the other operands make results as large, or the values would be subnormal in fp16
                useless = bool(widths.shift) or shifted.shift > LARGEST_SHIFT
                widths = widths.narrower(more) if useless else shifted
            elif spread and widths.wide < USEFUL_BITS:
                raise NotExact(
                    "graph", f"sums leave {widths.wide} bits for the integers of {wide}: small ones have more"
                )
            else:
                return values, evaluation
        raise NotExact("graph", f"no values were found in {ATTEMPTS} attempts for which every sum is exact")

    def _value(self, name: str, operand: Operand, wide: bool, widths: _Widths, spread: bool) -> Tensor:
        if operand.name in self.chosen:
            return self.chosen[operand.name]
        stored = tuple(extent if stride else 1 for extent, stride in zip(operand.shape, operand.strides, strict=True))
        draws = Draws(self.seed, f"graph {name} {operand.name}")
        if operand.dtype in ("uint8", "int32"):  # what masks or indexes
            least = 0 if operand.dtype == "uint8" else -4
            values = torch.from_numpy(draws.below(5 - least, stored) + least)
            return values.to(DTYPES[operand.dtype]).expand(operand.shape)
        bits = min(widths.wide if wide else widths.small, BITS[operand.dtype])
        values = torch.from_numpy(draws.nonzero(2**bits - 1, stored)).double()
        if operand.dtype != "int8" and wide:
            if spread and len(stored) > 1:
                exponents = torch.from_numpy(draws.below(SPREAD, (stored[-2], 1))).double()
                values = values * torch.exp2(exponents)
            values = values * 2.0**-widths.shift
        return values.to(DTYPES[operand.dtype]).expand(operand.shape)


def _ties(evaluation: Evaluation, right: Sequence[Sequence[Tensor]]) -> float:
    """The largest share of ties, among outputs of 16 bits, of which one result alone is right."""
    shares = [0.0]
    for value, dtype, results in zip(evaluation.results, evaluation.dtypes, right, strict=True):
        if dtype in NARROW and value.numel():
            one = torch.stack([result == results[0] for result in results]).all(0)
            shares.append(float((is_tie(value, NARROW[dtype]) & (value != 0) & one).double().mean()))
    return max(shares)


def _missing_bits(evaluation: Evaluation) -> int:
    """Returns the number of bits by which the results of 16 bits are too small to have many ties; negative if they are
    too large."""
    for value, dtype in zip(evaluation.results, evaluation.dtypes, strict=True):
        sizes = value[value != 0].abs()
        if dtype in NARROW and sizes.numel():
            return round(FORMATS[NARROW[dtype]].significand + 0.8 - math.log2(float(sizes.median())))
    return 0
