"""Faults of products with four-bit weights: codes, scales and zero points that are read wrongly, and their products."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.family import Indices, Needed, divided, every
from conformance.families.gemm.alterations import other_indices
from conformance.families.gemm.problem import mm
from conformance.families.int4 import reference as int4
from conformance.families.int4.problem import PER_BYTE, Int4Gemm
from conformance.families.products import Product, with_inputs
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill

#: What a kernel makes of codes, zero points and scales, each (K, N) in fp64.
Decoding = Callable[[Tensor, Tensor, Tensor], Tensor]


def alterations(problem: Int4Gemm, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; none unless the fills are ``exact``."""
    if not exact or not problem.has_product:
        return
    range_ = 16 if problem.signed else -16
    decodings: dict[str, Decoding] = {
        "the scale is not applied": lambda code, zero, scale: code - zero,
        "the scale is applied twice": lambda code, zero, scale: (code - zero) * scale * scale,
        f"the codes are read as {'unsigned' if problem.signed else 'signed'}": lambda code, zero, scale: (
            (torch.where((code < 0) if problem.signed else (code > 7), code + range_, code) - zero) * scale
        ),
    }
    if problem.zero != "none":
        decodings |= {
            "the zero point is not subtracted": lambda code, zero, scale: code * scale,
            "the zero point is added": lambda code, zero, scale: (code + zero) * scale,
            "the zero point plus 1 is subtracted": lambda code, zero, scale: (code - zero - 1) * scale,
            "the zero point minus 1 is subtracted": lambda code, zero, scale: (code - zero + 1) * scale,
            "the zero point is not scaled": lambda code, zero, scale: code * scale - zero,
        }
    for cause, decode in decodings.items():
        yield Alteration(cause, functools.partial(_computed, problem, decode))
    codes = torch.arange(problem.K if problem.packed == "k" else problem.N)
    for cause, index in {
        "the halves of each byte are exchanged": codes ^ 1,
        "the lower half of each byte stands for both": codes & ~1,
        "the upper half of each byte stands for both": codes | 1,
    }.items():
        yield Alteration(cause, functools.partial(_recoded, problem, index))
    yield from _of_other_groups(problem, tiling)


def _of_other_groups(problem: Int4Gemm, tiling: Tiling) -> Iterator[Alteration]:
    right, blocks = _group_of(problem), torch.arange(problem.K) // tiling.block[2]
    which = {
        f"the group is counted by blocks of {tiling.block[2]} k": blocks.clamp(max=problem.groups - 1),
        **{f"of another group: {what}": index[right] for what, index in other_indices(problem.groups)},
    }
    both = ("scale", "zero") if problem.zero != "none" else ("scale",)
    for what, groups in which.items():
        for names in dict.fromkeys((both, ("scale",), both[-1:])):
            if not torch.equal(groups, right):
                cause = (
                    f"{' and '.join(names)} {what}" if what.startswith("of") else f"{what} for {' and '.join(names)}"
                )
                yield Alteration(cause, functools.partial(_regrouped, problem, dict.fromkeys(names, groups)))
    for what, columns in other_indices(problem.N):
        yield Alteration(f"scale of another column: {what}", functools.partial(_recolumned, problem, columns))


def _group_of(problem: Int4Gemm) -> Tensor:
    """Returns the group of each k."""
    return torch.arange(problem.K) // (problem.group or max(problem.K, 1))


def _parts(problem: Int4Gemm, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns codes (K, N), zero points and scales (groups, N) in fp64."""
    codes = int4.unpacked(inputs["b"], "kn".index(problem.packed), problem.signed)
    scale = inputs["scale"].double()
    if problem.zero == "none":
        return codes, torch.zeros_like(scale), scale
    packed = problem.zero == "packed"
    return codes, int4.unpacked(inputs["zero"], 1, problem.signed) if packed else inputs["zero"].double(), scale


def _product(problem: Int4Gemm, inputs: Mapping[str, Tensor], weights: Tensor) -> Outputs:
    rounded = weights.float().to(inputs["a"].dtype).double()
    return {"out": (inputs["a"].double() @ rounded + 0.0, None)}


def _computed(problem: Int4Gemm, decode: Decoding, inputs: Mapping[str, Tensor]) -> Outputs:
    (codes, zero, scale), group = _parts(problem, inputs), _group_of(problem)
    return _product(problem, inputs, decode(codes, zero[group], scale[group]))


def _recoded(problem: Int4Gemm, index: Tensor, inputs: Mapping[str, Tensor]) -> Outputs:
    """The codes ``index`` along the packed dimension."""
    (codes, zero, scale), group = _parts(problem, inputs), _group_of(problem)
    codes = codes.index_select("kn".index(problem.packed), index)
    return _product(problem, inputs, (codes - zero[group]) * scale[group])


def _regrouped(problem: Int4Gemm, groups: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Outputs:
    """The scale or zero point of these groups for each k."""
    (codes, zero, scale), group = _parts(problem, inputs), _group_of(problem)
    return _product(problem, inputs, (codes - zero[groups.get("zero", group)]) * scale[groups.get("scale", group)])


def _recolumned(problem: Int4Gemm, columns: Tensor, inputs: Mapping[str, Tensor]) -> Outputs:
    (codes, zero, scale), group = _parts(problem, inputs), _group_of(problem)
    return _product(problem, inputs, (codes - zero[group]) * scale[group][:, columns])


def axes(problem: Int4Gemm, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand or output ``name``."""
    columns = {"b": problem.packed == "n", "zero": problem.zero == "packed"}
    column = "pair of columns" if columns.get(name, False) else "column"
    rows = {"a": "row", "out": "row", "b": "pair of k" if problem.packed == "k" else "k"}
    return rows.get(name, "group"), "k" if name == "a" else column


def needed(problem: Int4Gemm, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns the elements that ``stored`` of ``output`` need; see :class:`~conformance.families.family.Family`."""
    if not problem.has_product:
        return {}
    rows, columns = stored
    pairs = divided(columns, PER_BYTE, problem.N // PER_BYTE)
    along_k = problem.packed == "k"
    needs: Needed = {
        "a": (rows, every(problem.K)),
        "b": (every(problem.K // PER_BYTE), columns) if along_k else (every(problem.K), pairs),
        "scale": (every(problem.groups), columns),
    }
    if problem.zero != "none":
        needs["zero"] = (every(problem.groups), pairs if problem.zero == "packed" else columns)
    return needs


def products(problem: Int4Gemm, fill: Fill, out: Tensor, bad: Tensor, tiling: Tiling) -> Iterator[Product]:
    """Returns the product of A and the decoded weights."""
    a, weights = int4.decoded(problem, fill.inputs)
    product = mm(problem.M, problem.N, problem.K, problem.dtype, out_dtype=problem.out_dtype)
    yield Product("", product, with_inputs(fill, {"a": a, "b": weights}), out, bad, ((0, problem.K),))
