"""Grouped matrix products: one product per group, the groups' sizes given by offsets on the device.

Their kernels are persistent, so a bound of the tiles stands for a grid.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.families.family import Tiles, blocks
from conformance.families.gemm.problem import Gemm, mm, scaled_mm
from conformance.problems import (
    DTYPES,
    EVERY_FP8,
    PRECISIONS,
    RESULTS,
    Layout,
    Operand,
    Problem,
    check_choice,
    itemsize,
)

#: How A and B lie -> the dimension in which the groups differ. "3d-3d" is a plain batch without offsets.
KINDS = {"2d-3d": "M", "3d-2d": "N", "2d-2d": "K", "3d-3d": ""}


@dataclass(frozen=True)
class GroupedGemm(Problem):
    """One product ``A_g @ B_g`` per group g, in one of these kinds, where total is ``sum(sizes)``:

    * "2d-3d": A (total, K) and out (total, N) split by rows, B (groups, K, N);
    * "3d-2d": A (groups, M, K), B (K, total) and out (M, total) split by columns;
    * "2d-2d": A (M, total) and B (total, N) split along k, out (groups, M, N);
    * "3d-3d": A (groups, M, K), B (groups, K, N), out (groups, M, N).

    ``sizes`` holds the extent of each group in the dimension that is split, 0 for an empty group. That dimension is M,
    N or K, whose own field is then None. A "3d-3d" product splits none: there ``sizes`` are the rows of each group, and
    all equal M. The operand ``offsets`` (groups,), int32, holds where each group ends; the last group ends with the
    operand. The result of a group without k is zero.

    With ``scaling`` the operands are fp8 and each product is multiplied by fp32 scales. "row": one for each row of A_g
    and each column of B_g, (total,) or (groups, rows) as the groups share that dimension or not. "tensor": one for each
    A_g and each B_g, (groups,). The result is bf16 unless ``out_dtype`` says another.
    """

    kind: str
    sizes: tuple[int, ...]
    M: int | None = None
    N: int | None = None
    K: int | None = None
    dtype: str = "bf16"
    out_dtype: str | None = None
    precision: str = "ieee"
    layout_a: Layout = Layout()
    layout_b: Layout = Layout()
    layout_out: Layout = Layout()
    scaling: str | None = None
    fast_accum: bool = False
    op: str = field(default="grouped_mm", init=False)

    def __post_init__(self) -> None:
        if self.scaling is not None:
            check_choice("scaling", self.scaling, ("tensor", "row"))
            check_choice("dtype of scaled operands", self.dtype, EVERY_FP8)
            object.__setattr__(self, "op", "scaled_grouped_mm")
        check_choice("grouped kind", self.kind, KINDS)
        if not self.sizes or min(self.sizes) < 0:
            raise ValueError(f"sizes are {self.sizes}: at least one group is required, and sizes >= 0")
        for name in "MNK":
            extent = getattr(self, name)
            if (name == self.ragged) != (extent is None):
                required = "None, since the sizes say it" if name == self.ragged else "an extent"
                raise ValueError(f"{name} is {extent}: a {self.kind} product needs {required}")
            if extent is not None and extent < 0:
                raise ValueError(f"{name} is {extent}: sizes must be >= 0")
        if not self.ragged and set(self.sizes) != {self.M}:
            raise ValueError(f"sizes are {self.sizes}: in a 3d-3d product each is M, {self.M}")
        check_choice("dtype", self.dtype, DTYPES)
        check_choice("dtype of the result", self.result_dtype, RESULTS)
        check_choice("precision", self.precision, PRECISIONS)
        for name in ("layout_a", "layout_b", "layout_out"):
            if getattr(self, name).batch == "zero":
                raise ValueError(f"{name} has batch 'zero': each group has a matrix of its own")

    @property
    def ragged(self) -> str:
        """The dimension in which the groups differ: "M", "N", "K" or "" for none."""
        return KINDS[self.kind]

    @property
    def groups(self) -> int:
        return len(self.sizes)

    @property
    def result_dtype(self) -> str:
        """dtype of the result: as given, else bf16 of scaled operands, else theirs."""
        return self.out_dtype or ("bf16" if self.scaling else self.dtype)

    @property
    def has_product(self) -> bool:
        """True if any group has anything to multiply."""
        return 0 not in (self.groups, *(self.extent(name) for name in "MNK"))

    @property
    def ends(self) -> tuple[int, ...]:
        """Returns the end of each group in the dimension that is split: the values of ``offsets``."""
        return tuple(itertools.accumulate(self.sizes))

    @property
    def fixed_values(self) -> Mapping[str, Sequence[int]]:
        return {"offsets": self.ends}

    def extent(self, name: str) -> int:
        """M, N or K of a tensor of two dimensions: for the split one the sum over all groups."""
        extent: int | None = getattr(self, name)
        return self.ends[-1] if extent is None else extent

    def group_product(self, group: int) -> Gemm:
        """Returns the product of one group, in its plainest layout."""
        m, n, k = self.group_extents(group)
        return self.product_of(m, n, k)

    def product_of(self, m: int, n: int, k: int) -> Gemm:
        """Returns a product of these sizes, otherwise like that of a group."""
        fields: dict[str, Any] = {"out_dtype": self.out_dtype, "precision": self.precision}
        if self.scaling is None:
            return mm(m, n, k, self.dtype, **fields)
        return scaled_mm(m, n, k, self.dtype, scaling=self.scaling, fast_accum=self.fast_accum, **fields)

    def group_extents(self, group: int) -> tuple[int, int, int]:
        """(M, N, K) of one group's product."""
        extents = (getattr(self, name) for name in "MNK")
        m, n, k = (self.sizes[group] if extent is None else extent for extent in extents)
        return m, n, k

    def _matrices(self, name: str, rows: str, columns: str, layout: Layout, dtype: str) -> Operand:
        """Returns a matrix split among the groups, or a batch of one matrix per group."""
        lead = () if self.ragged and self.ragged in (rows, columns) else (self.groups,)
        shape = (*lead, self.extent(rows), self.extent(columns))
        return layout.operand(name, shape, dtype)

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """a, b, the scales if there are any: scale_a, scale_b; and, unless it is a plain batch, offsets."""
        operands = [
            self._matrices("a", "M", "K", self.layout_a, self.dtype),
            self._matrices("b", "K", "N", self.layout_b, self.dtype),
        ]
        for name, lines in (("scale_a", "M"), ("scale_b", "N")) if self.scaling else ():
            lead = () if self.ragged == lines and self.scaling == "row" else (self.groups,)
            shape = (*lead, self.extent(lines)) if self.scaling == "row" else lead
            operands.append(Operand(name, shape, (max(shape[-1], 1), 1)[-len(shape) :], "fp32"))
        if self.ragged:
            operands.append(Operand("offsets", (self.groups,), (1,), "int32"))
        return tuple(operands)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        return (self._matrices("out", "M", "N", self.layout_out, self.result_dtype),)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``grouped_mm-2d-3d-40.0.25x56x40-bf16-row.row.row``."""
        split = ".".join(map(str, self.sizes))
        extents = "x".join(split if getattr(self, name) is None else str(getattr(self, name)) for name in "MNK")
        if not self.ragged:
            extents = f"{self.groups}x{extents}"
        dtype = self.precision if (self.dtype, self.precision) == ("fp32", "tf32") else self.dtype
        parts = [self.op, self.kind, extents, dtype]
        parts += [f"to.{self.out_dtype}"] if self.out_dtype not in (None, self.dtype) else []
        parts += [f"{self.scaling}{'.fast' if self.fast_accum else ''}"] if self.scaling else []
        parts.append(".".join(layout.id for layout in (self.layout_a, self.layout_b, self.layout_out)))
        return "-".join(parts)


def spaced(problem: Any, operands: Sequence[str], unit: int) -> Any:
    """Returns ``problem`` with layouts of ``operands`` that a descriptor can have. Bases, rows and matrices lie at
    multiples of ``unit`` bytes."""
    layouts = {}
    for name in operands:
        layout, operand = getattr(problem, f"layout_{name}"), problem.operand(name)
        step = unit // itemsize(operand.dtype)
        if layout.batch == "inner":
            layout = dataclasses.replace(layout, batch="outer", batch_pad=step)
        layout = dataclasses.replace(layout, step=1)
        pitch = layout.strides(operand.shape)[-2 if layout.order == "row" else -1]
        more = {key: -(-getattr(layout, key) // step) * step for key in ("batch_pad", "offset")}
        layouts[f"layout_{name}"] = dataclasses.replace(layout, pad=layout.pad + -pitch % step, **more)
    return dataclasses.replace(problem, **layouts)


def tiles(problem: Any, config: Any) -> Tiles | None:
    """Returns the most tiles that the output may have: the host does not know the sizes of the groups. In the dimension
    that is split each group has at most one ragged tile, and no tile is empty."""
    block_m, block_n = (getattr(config, name, None) for name in ("block_m", "block_n"))
    if not block_m or not block_n:
        return None
    rows, columns = problem.extent("M") if problem.ragged != "K" else problem.M or 0, problem.N or 0
    if problem.ragged == "M":
        return min(rows // block_m + problem.groups, rows), -(-columns // block_n), 1
    if problem.ragged == "N":
        total = problem.extent("N")
        return -(-(problem.M or 0) // block_m), min(total // block_n + problem.groups, total), 1
    return -(-(problem.M or 0) // block_m) * problem.groups, -(-columns // block_n), 1


def judged_tiles(problem: GroupedGemm, config: Any) -> tuple[int, int]:
    """Returns the tiles of all groups: no two groups share one."""
    rows, columns = problem.output.shape[-2:]
    split_rows = problem.sizes if problem.ragged == "M" else (rows,)
    split_columns = problem.sizes if problem.ragged == "N" else (columns,)
    return (
        sum(blocks(size, config, "block_m") for size in split_rows),
        sum(blocks(size, config, "block_n") for size in split_columns),
    )
