"""Records what each program of a launch reads and stores of the operands, axis by axis, in the interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from conformance.execution.interpreter.regions import TensorRegion

#: For each dimension of a tensor, which of its indices were touched.
Touched = tuple[Tensor, ...]


@dataclass
class Footprint:
    """The accesses of one ``program`` of launch number ``launch``, by operand: the indices along each dimension.
    ``lines`` are those of the kernel, as file:line, that read it."""

    launch: int
    program: tuple[int, ...]
    loads: dict[str, Touched] = field(default_factory=dict)
    stores: dict[str, Touched] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)


class Footprints:
    """The footprints of all programs that run over the ``operands``, which include the outputs. ``unwritten`` has what
    was read of a workspace before any program had stored it, by workspace."""

    def __init__(self, operands: Mapping[str, Tensor]) -> None:
        self._regions = [TensorRegion(name, tensor) for name, tensor in operands.items() if tensor.numel()]
        self._launch = -1
        self._by_program: dict[tuple[int, tuple[int, ...]], Footprint] = {}
        self._workspaces: list[tuple[TensorRegion, np.ndarray]] = []  # and which elements have been stored
        self.unwritten: dict[str, str] = {}

    @property
    def footprints(self) -> list[Footprint]:
        return list(self._by_program.values())

    def workspace(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """New memory for intermediate results, which is watched."""
        memory = torch.empty(shape, dtype=dtype)
        if memory.numel() and dtype.is_floating_point:
            region = TensorRegion("a workspace", memory)
            self._workspaces.append((region, np.zeros(region.count, dtype=bool)))
        return memory

    def launch(self, tensors: Mapping[str, object]) -> None:
        """The next launch begins, over these arguments."""
        self._launch += 1
        names = {value.data_ptr(): name for name, value in tensors.items() if isinstance(value, Tensor)}
        for region, _ in self._workspaces:
            region.name = names.get(region.first, region.name)

    def touched(self, what: str, program: tuple[int, ...], addresses: np.ndarray, line: str) -> None:
        """``program`` "loads" or "stores" (``what``) at ``addresses``, in this ``line`` of the kernel."""
        if not addresses.size:
            return
        first, last = int(addresses.min()), int(addresses.max())
        for region in self._regions:
            if last < region.first or first >= region.end:
                continue
            inside = addresses[region.holds(addresses, 1)]
            if not inside.size:
                continue
            footprint = self._by_program.setdefault((self._launch, program), Footprint(self._launch, program))
            by_operand = getattr(footprint, what)
            if region.name not in by_operand:
                by_operand[region.name] = tuple(torch.zeros(extent, dtype=torch.bool) for extent in region.shape)
            for axis, index in zip(by_operand[region.name], region.coordinates(inside), strict=True):
                axis[slice(None) if index is None else torch.from_numpy(np.unique(index))] = True
            lines = footprint.lines.setdefault(region.name, [])
            if what == "loads" and line not in lines:
                lines.append(line)
        for region, written in self._workspaces:
            if first < region.end and last >= region.first:
                elements = region.indices(addresses[region.holds(addresses, 1)])
                if what == "stores":
                    written[elements] = True
                elif not written[elements].all():
                    text = f"program {program} reads {region.name} where no program has stored, at {line}"
                    self.unwritten.setdefault(region.name, text)
