"""What a grouped product means: its fp64 value and the magnitude that error bounds need, group by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from conformance.problems import GroupedGemm
from conformance.references import dispatch
from conformance.references.dispatch import Device, check_inputs, in_fp64


def value(problem: GroupedGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The products of all groups in fp64; arguments and errors are those of :func:`.dispatch.value`.

    ``inputs["offsets"]`` must hold the problem's own offsets: ValueError is raised for others.
    """
    a, b = _operands(problem, inputs, device)
    return joined(problem, "out", _products(problem, a, b))


def magnitude(problem: GroupedGemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The same of ``|A|`` and ``|B|``."""
    a, b = _operands(problem, inputs, device)
    return joined(problem, "out", _products(problem, a.abs(), b.abs()))


def joined(problem: GroupedGemm, name: str, matrices: Sequence[Tensor]) -> Tensor:
    """The tensor called ``name`` ("a", "b" or "out") from the matrix of each group."""
    dim = _split_dim(problem, name)
    return torch.stack(list(matrices)) if dim is None else torch.cat(list(matrices), dim)


def parts(problem: GroupedGemm, name: str, tensor: Tensor) -> list[Tensor]:
    """The matrix of each group in the tensor called ``name``: views, the inverse of :func:`joined`."""
    dim = _split_dim(problem, name)
    if dim is None:
        return list(tensor.unbind(0))
    return list(tensor.split(list(problem.sizes), dim))


def _split_dim(problem: GroupedGemm, name: str) -> int | None:
    """The dimension of a two-dimensional tensor in which it is split; None for one matrix per group."""
    dims = {"a": "MK", "b": "KN", "out": "MN"}[name]
    return dims.index(problem.ragged) if problem.ragged and problem.ragged in dims else None


def _products(problem: GroupedGemm, a: Tensor, b: Tensor) -> list[Tensor]:
    pairs = zip(parts(problem, "a", a), parts(problem, "b", b), strict=True)
    return [(left @ right).add_(0.0) for left, right in pairs]  # a sum that starts from +0 is never -0


def _operands(problem: GroupedGemm, inputs: Mapping[str, Tensor], device: Device) -> list[Tensor]:
    check_inputs(problem, inputs)
    if problem.ragged and inputs["offsets"].tolist() != list(problem.ends):
        raise ValueError(f"{problem.id}: the offsets are {inputs['offsets'].tolist()}, they must be {problem.ends}")
    return in_fp64(inputs, "ab", device)


dispatch.value.register(GroupedGemm, value)
dispatch.magnitude.register(GroupedGemm, magnitude)
