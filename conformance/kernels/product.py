"""What the pointer kernels of products other than mm, addmm and scaled mm share: their requirements and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton.language as tl
from torch import Tensor

from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan, check_tensors
from conformance.problems import Gemm, Operand

FLOATS = ("bf16", "fp16", "fp32")

#: From this many elements on, offsets do not fit in 32 bits.
WIDE = 2**31

#: Programs along the second and the third dimension of a grid, at most (CUDA's limit).
GRID_LIMIT = 65_535


class ProductKernel(PointerGemm):
    """A kernel with pointer loads and stores and one tile per program; operands of any order and strides."""

    def __init__(self, name: str, operation: str, table: str, dtypes: tuple[str, ...] = FLOATS) -> None:
        super().__init__(name, operation, table)
        self.dtypes = dtypes

    def _arguments(self, plan: Plan, tensors: Mapping[str, Tensor], *, out: str = "c") -> dict[str, Any]:
        """What each of these kernels takes: A, B and the output, called ``out`` there, with the strides of their
        matrices, sizes, the tile, and the constexpr switches of the main loop.

        Raises NotApplicable if a tensor is not what the plan was made for.
        """
        check_tensors(self.name, plan.problem, tensors)
        problem, config = plan.problem, plan.config
        a, b, result = problem.operand("a"), problem.operand("b"), problem.output
        # alpha == 0 ignores the product, NaN included: the kernel is told that there is no K at all.
        sizes: dict[str, Any] = {"M": problem.M, "N": problem.N, "K": self._depth(plan) if problem.has_product else 0}
        if plan.variant.static:
            sizes = {name: tl.constexpr(size) for name, size in sizes.items()}
        return {
            "a_ptr": tensors["a"],
            "b_ptr": tensors["b"],
            f"{out}_ptr": tensors["out"],
            **sizes,
            "stride_am": a.strides[-2],
            "stride_ak": a.strides[-1],
            "stride_bk": b.strides[-2],
            "stride_bn": b.strides[-1],
            f"stride_{out}m": result.strides[-2],
            f"stride_{out}n": result.strides[-1],
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            # Only a size known when compiling says that there is no tail for every later launch too.
            "EVEN_K": plan.variant.static and self._depth(plan) % config.block_k == 0,
            "WIDE_INDEX": spans_wide(problem),
            "PRECISION": problem.precision if problem.dtype == "fp32" else "ieee",
        }

    def _bias_arguments(self, problem: Gemm, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The bias and its strides as an M x N matrix; without one where the problem reads none."""
        if not problem.reads_bias:
            return {"bias_ptr": None, "stride_bias_m": 0, "stride_bias_n": 0, "HAS_BIAS": False}
        _, m, n = broadcast_strides(problem.operand("bias"))
        return {"bias_ptr": tensors["bias"], "stride_bias_m": m, "stride_bias_n": n, "HAS_BIAS": True}

    def _depth(self, plan: Plan) -> int:
        """How many k one program multiplies."""
        return int(plan.problem.K)


def broadcast_strides(bias: Operand) -> tuple[int, int, int]:
    """Strides of the bias as a (batch, M, N) tensor: 0 along a dimension that it lacks or is one element wide in."""
    missing = 3 - len(bias.shape)
    shape, strides = (1,) * missing + bias.shape, (0,) * missing + bias.strides
    z, m, n = (stride if extent != 1 else 0 for extent, stride in zip(shape, strides, strict=True))
    return z, m, n


def spans_wide(problem: Gemm) -> bool:
    """Whether an operand or output spans more elements than 32-bit offsets reach."""
    return any(operand.span >= WIDE for operand in problem.tensors)
