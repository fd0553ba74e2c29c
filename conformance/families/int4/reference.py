"""The reference of a product with four-bit weights: the weights that codes, scales and zero points stand for,
in fp64."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.int4.problem import Int4Gemm
from conformance.problems import DTYPES, Device, check_inputs


def unpacked(stored: Tensor, axis: int, signed: bool) -> Tensor:
    """Returns the codes in ``stored``, uint8 or int8, as fp64: twice as long along ``axis``, the lower half of a byte
    first."""
    byte = stored.long() & 255
    codes = torch.stack([byte & 15, byte >> 4], axis + 1).flatten(axis, axis + 1)
    return (codes - 16 * (codes >> 3) if signed else codes).double()


def weights(problem: Int4Gemm, inputs: Mapping[str, Tensor]) -> Tensor:
    """W (K, N) in fp64: values of the problem's dtype. A code that is its zero point times infinity is NaN."""
    codes = unpacked(inputs["b"], "kn".index(problem.packed), problem.signed)
    length = problem.group or max(problem.K, 1)

    def per_k(values: Tensor) -> Tensor:
        return values.repeat_interleave(length, 0)[: problem.K]

    if problem.zero != "none":
        packed = problem.zero == "packed"
        codes = codes - per_k(unpacked(inputs["zero"], 1, problem.signed) if packed else inputs["zero"].double())
    in_fp32 = (codes * per_k(inputs["scale"].double())).float()
    return in_fp32.to(DTYPES[problem.dtype]).double()


def decoded(problem: Int4Gemm, inputs: Mapping[str, Tensor], device: Device = None) -> tuple[Tensor, Tensor]:
    """Returns A (M, K) and W (K, N) in fp64. Raises KeyError or ValueError for inputs that are missing or of another
    shape."""
    check_inputs(problem, inputs)
    target = inputs["a"].device if device is None else torch.device(device)
    moved = {name: tensor.to(target) for name, tensor in inputs.items()}
    return moved["a"].double(), weights(problem, moved)


def value(problem: Int4Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.value`."""
    a, b = decoded(problem, inputs, device)
    return (a @ b).add_(0.0)  # a sum that starts from +0 is never -0


def magnitude(problem: Int4Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """See :func:`conformance.problems.magnitude`."""
    a, b = decoded(problem, inputs, device)
    return a.abs() @ b.abs()
