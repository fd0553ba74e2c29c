"""Launch arguments that kernels of several families share: strides, switches of the main loop, limits of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton.language as tl
from torch import Tensor

from conformance.problems import Operand, Problem

#: From this many elements on, offsets do not fit in 32 bits.
INDEX_LIMIT = 2**31

#: Programs along the second and the third dimension of a grid, at most (CUDA's limit).
GRID_LIMIT = 65_535


def size_arguments(sizes: Mapping[str, int], static: bool) -> dict[str, Any]:
    """``sizes`` as a launch takes them, constants of the compiler if ``static``."""
    return {name: tl.constexpr(size) if static else size for name, size in sizes.items()}


def spans_wide(problem: Problem) -> bool:
    """True if an operand or output of ``problem`` spans more elements than 32-bit offsets reach."""
    return any(operand.span >= INDEX_LIMIT for operand in problem.tensors)


def dot_precision(problem: Any) -> str:
    """Returns the ``input_precision`` of the products of ``problem``: its own for fp32 operands, "ieee" for all
    others."""
    return str(problem.precision) if problem.dtype == "fp32" else "ieee"


def pointer_arguments(name: str, tensor: Tensor, operand: Operand, axes: str) -> dict[str, Any]:
    """Returns a tensor and the strides of its last dimensions as kernels name them: ``a_ptr``, ``stride_am``,
    ``stride_ak``.

    ``axes`` has one letter for each of these dimensions, "mk" for the matrix A. Strides are in elements.
    """
    strides = zip(axes, operand.strides[-len(axes) :], strict=True)
    return {f"{name}_ptr": tensor, **{f"stride_{name}{axis}": stride for axis, stride in strides}}


def broadcast_strides(bias: Operand) -> tuple[int, int, int]:
    """Strides of the bias as a (batch, M, N) tensor: 0 along a dimension that it lacks or is one element wide in."""
    missing = 3 - len(bias.shape)
    shape, strides = (1,) * missing + bias.shape, (0,) * missing + bias.strides
    z, m, n = (stride if extent != 1 else 0 for extent, stride in zip(shape, strides, strict=True))
    return z, m, n
