"""The reference of a product of block-scaled operands: its codes times its scales, multiplied in fp64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.problems import Device, check_inputs

#: The values of e2m1's codes 0 to 7; code 8 + c is the negative of code c (OCP Microscaling Formats 1.0, 5.3.3).
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def unscaled(problem: MicroscaledGemm, name: str, stored: Tensor) -> Tensor:
    """Returns the codes of operand ``name``, "a" or "b", as fp64: (M, K) or (K, N), with the batch in front."""
    if problem.format_of(name).codes != "e2m1":
        return stored.double()
    values = torch.tensor([*E2M1, *(-value for value in E2M1)], dtype=torch.float64, device=stored.device)
    pairs = torch.stack([values[(stored & 15).long()], values[(stored >> 4).long()]], -1)
    if problem.packed(name) == ("k" if name == "a" else "n"):
        return pairs.flatten(-2)
    return pairs.movedim(-1, -2).flatten(-3, -2)


def in_lines(problem: MicroscaledGemm, name: str, swizzled: Tensor) -> Tensor:
    """Returns the swizzled scales of operand ``name`` in lines and blocks of k: (lines, blocks), with the batch in
    front."""
    tiles = swizzled.movedim(-2, -4).transpose(-2, -3)  # (lines / 128, 4, 32, blocks / 4, 4)
    lines = problem.M if name == "a" else problem.N
    return tiles.flatten(-2).flatten(-4, -2)[..., :lines, : problem.blocks(name)]


def scales(problem: MicroscaledGemm, name: str, stored: Tensor) -> Tensor:
    """Returns the scale of each element of operand ``name`` as fp64, in the shape of :func:`unscaled`."""
    form = problem.format_of(name)
    if problem.swizzled:
        stored = in_lines(problem, name, stored)
    if form.scale == "uint8":
        exponents = stored.double() - 127.0
        values = torch.where(stored == 255, torch.nan, torch.exp2(exponents))
    else:
        values = stored.double()
    each = values.repeat_interleave(form.block, -1)[..., : problem.K]
    return each if name == "a" else each.mT


def decoded(problem: MicroscaledGemm, inputs: Mapping[str, Tensor], device: Device = None) -> tuple[Tensor, Tensor]:
    """A (M, K) and B (K, N) in fp64, codes times scales; a zero times a scale of NaN is NaN. Raises KeyError or
    ValueError for inputs that are missing or of another shape."""
    check_inputs(problem, inputs)
    target = inputs["a"].device if device is None else torch.device(device)
    matrices = []
    for name in "ab":
        matrix = unscaled(problem, name, inputs[name].to(target))
        if f"scale_{name}" in inputs:
            matrix = matrix * scales(problem, name, inputs[f"scale_{name}"].to(target))
        matrices.append(matrix)
    return matrices[0], matrices[1]


def value(problem: MicroscaledGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.value`."""
    a, b = decoded(problem, inputs, device)
    return (a @ b).add_(0.0)  # a sum that starts from +0 is never -0


def magnitude(problem: MicroscaledGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.magnitude`."""
    a, b = decoded(problem, inputs, device)
    return a.abs() @ b.abs()
