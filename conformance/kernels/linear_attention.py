"""Chunked gated linear attention (Mamba-2's state): an accumulator that decays in every turn and is an operand, too.

Such a loop is where Triton may miscompile for Blackwell: https://github.com/triton-lang/triton/issues/10993.

It can also be computed by products of transposed products, of the scores and of the state.

The transposed result of a product as an operand: https://github.com/triton-lang/triton/issues/6124.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import triton
from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.family import LEAST, whole
from conformance.families.gemm.problem import mm
from conformance.families.limits import KernelLimits
from conformance.families.linear_attention.problem import OPERANDS, LinearAttention
from conformance.heuristics.configs import AnyConfig, Config, LinearAttentionConfig
from conformance.kernels.device.linear_attention import linear_attention, linear_attention_transposed
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Kernel, Plan, Variant, check_tensors
from conformance.kernels.launch import GRID_LIMIT, INDEX_LIMIT, Launch, pointer_arguments, size_arguments
from conformance.numerics.contract import Contract
from conformance.records import ExecutorName, Reason, ReasonCode

#: Configs in which either block is the smaller one, with one stage or several, and one warp or several.
CONFIGS: tuple[AnyConfig, ...] = (
    LinearAttentionConfig(16, 16, 1, 1),
    LinearAttentionConfig(32, 64, 3, 4),
    LinearAttentionConfig(64, 32, 2, 4),
    LinearAttentionConfig(64, 64, 2, 8),
)

#: The kernel of the products inside: it says what they ask of dtype and target, and what their arithmetic is.
_PRODUCT = PointerGemm("mm", "mm", "mm")


class GatedLinearAttention(Kernel):
    """A block of the state's columns of one batch and head per program, which walks over all positions."""

    problems = LinearAttention
    weight = 1
    family = "linear-attention"
    operations = frozenset({"linear_attention"})
    dtypes = OPERANDS
    limits = KernelLimits(variant=frozenset({"static"}))
    configs = CONFIGS
    #: whether its products are those of the transposed operands
    transposed: ClassVar[bool] = False
    #: the device function of its launch
    function: ClassVar[Any] = linear_attention

    def __init__(self, name: str) -> None:
        self.name = name

    def multiply_adds(self, problem: Any, config: Any) -> int:
        """See :class:`Kernel`: q times the state, scores, scores times v, and the sum of the state."""
        t, v, d = config.block_t, config.block_v, problem.head_dim
        return t * (2 * v * d + t * (v + d))  # type: ignore[no-any-return]

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, variant, extents, blocks and the products' own reasons in this order."""
        problem, config = plan.problem, plan.config
        if reason := self.foreign(plan) or self.other_variant(plan):
            return reason
        for name in ("batch", "heads"):
            if getattr(problem, name) > GRID_LIMIT:
                detail = f"{name} is {getattr(problem, name)}: it is a dimension of the grid, at most {GRID_LIMIT}"
                return Reason(ReasonCode.EXTENT, name, detail)
        if problem.head_dim < LEAST:
            detail = f"head_dim is {problem.head_dim}: the matrix units need {LEAST} at least. Pad q and k"
            return Reason(ReasonCode.EXTENT, "head_dim", detail)
        if any(block < LEAST or block & (block - 1) for block in config.tile):
            detail = f"{config.id}: blocks must be powers of two, {LEAST} at least"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        if problem.chunk % config.block_t:
            detail = f"{config.id}: blocks of positions must divide the chunks of {problem.chunk}"
            return Reason(ReasonCode.CONFIG, "chunk", detail)
        return _PRODUCT.refusal(self._product_plan(plan))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (blocks of columns of v, heads, batch)."""
        problem = plan.problem
        return (triton.cdiv(problem.value_dim, plan.config.block_v), problem.heads, problem.batch)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: sizes as constants, or not."""
        return Variant(static=draw.chance(0.5))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        output = pointer_arguments("o", tensors["out"], problem.output, "bhmd")
        arguments = {
            **pointer_arguments("q", tensors["q"], problem.operand("q"), "bhmd"),
            **pointer_arguments("k", tensors["k"], problem.operand("k"), "bhmd"),
            **pointer_arguments("v", tensors["v"], problem.operand("v"), "bhmd"),
            "decay_ptr": tensors["decay"],
            "initial_ptr": tensors["initial"],
            "out_ptr": output.pop("o_ptr"),
            **output,
            "state_ptr": tensors["state"],
            **size_arguments({"length": problem.length, "chunks": problem.chunks}, plan.variant.static),
            "CHUNK": problem.chunk,
            "HEAD_DIM": problem.head_dim,
            "BLOCK_D": whole(problem.head_dim),
            "VALUE_DIM": problem.value_dim,
            "BLOCK_T": config.block_t,
            "BLOCK_V": config.block_v,
            "EVEN_K": plan.variant.static and problem.length % config.block_t == 0,
            "WIDE_INDEX": _spans_wide(problem),
        }
        return Launch(self.function, plan.grid, arguments, config.options)

    def _product_plan(self, plan: Plan) -> Plan:
        """Returns the product of a block of q by the state as a plan of the kernel of products, with one stage."""
        problem, block = plan.problem, plan.config.block_t
        product = mm(block, LEAST, problem.head_dim if problem.has_product else 0, problem.dtype)
        config = Config(block, LEAST, LEAST, 1, plan.config.num_warps)
        return Plan(_PRODUCT.name, product, config, Variant(), plan.target, (1,))

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of the products. The state and the scores are rounded to the operands' dtype."""
        contract = _PRODUCT.contract(self._product_plan(plan), executor)
        return dataclasses.replace(contract, intermediate=plan.problem.dtype)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the products."""
        return _PRODUCT.features(self._product_plan(plan))


def _spans_wide(problem: LinearAttention) -> bool:
    """True if the rows of one head are out of reach of 32-bit offsets."""
    tensors = (problem.operand(name) for name in ("q", "k", "v", "out"))
    return any(
        dataclasses.replace(operand, shape=(1, 1, *operand.shape[2:])).span >= INDEX_LIMIT for operand in tensors
    )


#: Either block the smaller one, one stage and several.
TRANSPOSED_CONFIGS: tuple[AnyConfig, ...] = (
    LinearAttentionConfig(16, 32, 1, 2),
    LinearAttentionConfig(64, 16, 2, 4),
    LinearAttentionConfig(32, 64, 3, 4),
)


class TransposedLinearAttention(GatedLinearAttention):
    """The same with the state and the scores summed the other way round."""

    configs = TRANSPOSED_CONFIGS
    transposed = True
    function = linear_attention_transposed


KERNELS = (
    GatedLinearAttention("gated_linear_attention"),
    TransposedLinearAttention("linear_attention_transposed"),
)
