"""mm, addmm and scaled mm by pointer loads and stores, and what every GEMM kernel shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.examples import FLOATS
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.device.pointer import gemm_pointer
from conformance.kernels.families.gemm import GemmFamily
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import (
    Launch,
    broadcast_strides,
    dot_precision,
    pointer_arguments,
    size_arguments,
    spans_wide,
)
from conformance.numerics.contract import FMA, SPLITS, Accumulator, Contract, Split
from conformance.numerics.sum_order import SumOrder
from conformance.problems import EVERY_FP8, FNUZ, FP8, PRECISIONS, SPLIT_PRECISIONS, itemsize
from conformance.records import ExecutorName, Reason, ReasonCode

#: With fast accumulation off, an fp8 partial sum is added to an fp32 sum after this many k (or BLOCK_K if smaller).
PROMOTION_CHUNK = 128


def output_tiles(plan: Plan) -> int:
    """Tiles of the config that cover one M x N result of the plan's problem."""
    config: Config = plan.config
    tiles: int = triton.cdiv(plan.problem.M, config.block_m) * triton.cdiv(plan.problem.N, config.block_n)
    return tiles


def _uses_wgmma(plan: Plan) -> bool:
    """Hopper's warpgroup instruction needs 64 rows and whole warpgroups; smaller tiles use mma.sync."""
    config = plan.config
    return plan.target.capability("wgmma").available and config.block_m >= 64 and config.num_warps % 4 == 0


def _split(plan: Plan) -> Split | None:
    """Returns the split of the fp32 operands of the plan's products; None if they are not split."""
    return SPLITS.get(plan.problem.precision) if plan.problem.dtype == "fp32" else None


class GemmKernel(GemmFamily):
    """Base of all GEMM kernels: what they demand of the operation, what they promise, their launch arguments."""

    limits: GemmLimits = GemmLimits()

    def __init__(
        self,
        name: str,
        operation: str,
        table: str | None = None,
        dtypes: tuple[str, ...] = (),
        *,
        weight: int | None = None,
        configs: tuple[AnyConfig, ...] = (),
        rare_dtypes: tuple[str, ...] = (),
    ) -> None:
        """``operation`` is the op of its problems, ``table`` the config table in ``conformance.heuristics``, or None
        with its own ``configs``; without ``dtypes`` it takes those of the operation. ``weight`` and
        ``rare_dtypes``: see :class:`Kernel`. Raises ValueError for a table together with configs, and for neither."""
        if (table is None) != bool(configs):
            raise ValueError(f"{name} has the table {table!r} and {len(configs)} configs: give one of both")
        self.name = name
        self.operations = frozenset({operation})
        if weight is not None:
            self.weight = weight
        self.dtypes = dtypes or (FP8 if operation == "scaled_mm" else FLOATS)
        self.rare_dtypes = rare_dtypes
        self.table = table
        self.configs = configs if table is None else BASE.table(table)
        # matrix units of Hopper read k of fp8 operands side by side
        self.any_order = not set(self.dtypes) <= set(FP8)

    # Requirements

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, dtypes, layouts and config are checked in this order."""
        checks = (self._operation, self._dtype, self._layout, self._config)
        return next((reason for check in checks if (reason := check(plan))), None)

    def _operation(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        if (reason := self.foreign(plan)) or problem.scaling in (None, *self.limits.scalings):
            return reason
        detail = f"scaling is {problem.scaling!r}, {self.name} takes {' or '.join(self.limits.scalings)}"
        return Reason(ReasonCode.SCALE, "scaling", detail)

    def _dtype(self, plan: Plan) -> Reason | None:
        problem, target = plan.problem, plan.target
        for name, dtype in (("a", problem.a_dtype), ("b", problem.second_dtype)):
            if dtype not in (accepted := (*self.dtypes, *self.limits.dtypes, *self.rare_dtypes)):
                listed = ", ".join(accepted)
                detail = f"{name} is {dtype}, {self.name} takes {listed}: convert the operand"
                return Reason(ReasonCode.DTYPE, name, detail)
        pair = {problem.a_dtype, problem.second_dtype}
        if len(pair) > 1 and not (pair <= set(FP8) or pair <= set(FNUZ)):
            detail = f"a is {problem.a_dtype} and b is {problem.second_dtype}: both must have one dtype"
            return Reason(ReasonCode.DTYPE, "b", detail)
        names = {problem.a_dtype, problem.second_dtype, problem.output_dtype} & {*EVERY_FP8, "bf16", "fp16", "fp64"}
        if problem.a_dtype == "fp32":
            names.add(problem.precision)
            if problem.precision not in self.limits.precisions:
                listed = ", ".join(self.limits.precisions)
                detail = f"precision is {problem.precision}, {self.name} takes {listed}"
                return Reason(ReasonCode.PRECISION, problem.precision, detail)
        unrolled = problem.dtype == "fp32" and problem.precision in PRECISIONS
        if unrolled and target.vendor == "amd" and not target.capability("mfma").available:
            detail = (
                f"{target.id} has no matrix instruction for fp32 operands: a tile unrolls into single multiply-adds, "
                "which the compiler does not finish in minutes. Use fp16 or bf16"
            )
            return Reason(ReasonCode.PRECISION, problem.precision, detail)
        for name in sorted(names):
            capability = target.capability(name)
            if not capability.available:
                code = ReasonCode.PRECISION if name in (*PRECISIONS, *SPLIT_PRECISIONS) else ReasonCode.DTYPE
                return Reason(code, name, f"{target.id}: {capability.why}")
        return None

    def _layout(self, plan: Plan) -> Reason | None:
        if self.any_order:
            return None
        required = (("a", plan.problem.layout_a, "row", -1), ("b", plan.problem.layout_b, "col", -2))
        for name, layout, order, inner in required:
            strides = plan.problem.operand(name).strides
            if layout.order != order or strides[inner] != 1:
                detail = f"{name} has strides {strides}: {self.name} needs it {order}-major with unit inner stride"
                return Reason(ReasonCode.LAYOUT, name, detail)
        return None

    def _config(self, plan: Plan) -> Reason | None:
        problem, config, target = plan.problem, plan.config, plan.target
        if plan.variant.static and not (constants := target.capability("constant-argument")).available:
            return Reason(ReasonCode.CAPABILITY, constants.name, constants.why)
        if plan.variant.implied_dtype and problem.dtype != "int8":
            detail = f"{self.name} says in which dtype it sums, '{plan.variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        minimum = 32 if problem.dtype in EVERY_FP8 else 16
        if config.block_k < minimum or min(config.block_m, config.block_n) < 16:
            detail = f"{config.id}: {problem.dtype} needs BLOCK_M and BLOCK_N >= 16 and BLOCK_K >= {minimum}"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        packed = 16 * dict(config.vendor).get("kpack", 1)
        if target.vendor == "amd" and problem.precision == "tf32" and config.block_k < packed:
            detail = (
                f"{config.id}: with this kpack tf32 operands are packed {packed} deep, and compilers have aborted on a "
                f"BLOCK_K of {config.block_k}: use {packed} or more"
            )
            return Reason(ReasonCode.CONFIG, "kpack", detail)
        return None

    def shared_memory(self, plan: Plan) -> int:
        """Bytes of shared memory that one block needs, by estimate.

        Here those of the pipelined operand tiles, (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize * num_stages, and of the
        parts of one of each, where they are split.
        """
        config: Config = plan.config
        size = itemsize(plan.problem.dtype) * config.num_stages
        if (split := _split(plan)) is not None:
            size += split.bits // split.part_bits * (4 if split.part_bits > 8 else 2)
        return (config.block_m + config.block_n) * config.block_k * size

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile of the result. A persistent kernel has one per SM at most."""
        tiles = output_tiles(plan)
        return (min(carveout.available_sms(plan), tiles) if self.persistent else tiles,)

    # Arithmetic

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`. The interpreter, and fp32 products in fp32, use fused multiply-adds."""
        problem, target = plan.problem, plan.target
        overflow = "saturate" if problem.output_dtype in FP8 else "ieee"
        operand = problem.precision if problem.dtype == "fp32" and problem.precision != "ieee" else "exact"
        if executor == ExecutorName.INTERPRETER:
            return Contract(problem.output_dtype, FMA, operand, overflow, zero_sign=self.declared_zero_sign)
        if problem.dtype == "fp32" and problem.precision == "ieee":
            return Contract(problem.output_dtype, FMA, operand, overflow)
        return Contract(problem.output_dtype, self._accumulator(plan), operand, overflow, target.vendor == "amd")

    def _accumulator(self, plan: Plan) -> Accumulator:
        """Returns the arithmetic of the target's matrix unit for the dtype of the plan's operands."""
        unit, dtype = plan.target.matrix_unit, plan.problem.dtype
        if dtype in EVERY_FP8 and unit.fp8_bits is not None:
            bits, promote = unit.fp8_bits, self.promotion(plan)
            return Accumulator(alignment_bits=bits, result_bits=bits, chunk=32, promote=promote, assumed=unit.assumed)
        split = _split(plan)
        size = 2 if split is not None and split.part_bits == 8 else itemsize(dtype)
        return Accumulator(alignment_bits=unit.alignment_bits, chunk=unit.products[size], assumed=unit.assumed)

    def promotion(self, plan: Plan) -> int | None:
        """Consecutive k between promotions of an fp8 partial sum to fp32; None where the compiler offers none."""
        if plan.problem.dtype not in EVERY_FP8 or plan.problem.fast_accum or not _uses_wgmma(plan):
            return None
        return min(PROMOTION_CHUNK, int(plan.config.block_k))

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: k from the first to the last. None where no tensor core multiplies, and where a compiler
        may sum products of parts in more than one order."""
        unit = self._matrix_unit(plan)
        if unit is None or plan.problem.dtype == "int8" or _split(plan) is not None:
            return None
        return SumOrder(unit.name.lower(), self.promotion(plan))

    # Code

    def _matrix_unit(self, plan: Plan) -> codegen.Feature | None:
        """The matrix instruction that the main loop must use on the plan's target; None for fp32 arithmetic."""
        problem, config, target = plan.problem, plan.config, plan.target
        if not problem.has_product:
            return None
        if target.vendor == "amd":
            return codegen.MFMA if target.capability("mfma").available else codegen.WMMA
        if target.vendor != "nvidia":
            return None  # its matrix instructions are not known
        if problem.dtype == "fp32" and problem.precision == "ieee":
            return None
        if _uses_wgmma(plan):
            return codegen.WGMMA
        if target.capability("tcgen05").available and config.block_m >= 64 and config.num_warps in (4, 8):
            return codegen.TCGEN05
        return codegen.MMA

    # Launch arguments

    def _arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Sizes, tile and switches of the main loop, under the names that all kernels here have for them.

        Raises NotApplicable if a tensor is not what the plan was made for.
        """
        check_tensors(self.name, plan.problem, tensors)
        problem, config = plan.problem, plan.config
        # alpha == 0 ignores the product, NaN included: the kernel is told that there is no K at all.
        sizes = {"M": problem.M, "N": problem.N, "K": self._depth(plan) if problem.has_product else 0}
        return {
            **size_arguments(sizes, plan.variant.static),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            "WIDE_INDEX": spans_wide(problem),
        }

    def _depth(self, plan: Plan) -> int:
        """Returns the number of k that one program multiplies."""
        return int(plan.problem.K)

    def _bias_arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns the bias and its strides as an M x N matrix; None where the problem reads none."""
        if not plan.problem.reads_bias:
            return {"bias_ptr": None, "stride_bias_m": 0, "stride_bias_n": 0}
        _, m, n = broadcast_strides(plan.problem.operand("bias"))
        return {"bias_ptr": tensors["bias"], "stride_bias_m": m, "stride_bias_n": n}

    def _epilogue_arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns the output, scales, factors and bias of mm, addmm and scaled mm, and the constexpr switches
        of each."""
        problem = plan.problem
        scaled, bias = problem.scaling is not None, self._bias_arguments(plan, tensors)
        return {
            **pointer_arguments("c", tensors["out"], problem.output, "mn"),
            **bias,
            "scale_a_ptr": tensors.get("scale_a"),
            "scale_b_ptr": tensors.get("scale_b"),
            "stride_scale_a": _step(tensors, "scale_a", 0) if scaled else 0,
            "stride_scale_b": _step(tensors, "scale_b", 1) if scaled else 0,
            "alpha": problem.alpha,
            "beta": problem.beta,
            "PRECISION": dot_precision(problem),
            "PROMOTE": self.promotion(plan),
            "SCALED": scaled,
            "HAS_BIAS": bias["bias_ptr"] is not None,
            "ADDMM": problem.bias is not None and not scaled,
        }


def _step(tensors: Mapping[str, Tensor], name: str, dim: int) -> int:
    """Stride from one scale to the next; 0 for a scale of the whole tensor."""
    scale = tensors[name]
    return 0 if scale.numel() == 1 else scale.stride(dim)


class PointerGemm(GemmKernel):
    """One tile per program, pointer loads and stores, operands of any order and strides."""

    shows_matrix_unit = True
    banded_tiles = True
    zero_sign = "ieee"

    def _config(self, plan: Plan) -> Reason | None:
        return self.other_variant(plan) or super()._config(plan)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        arguments = {**self._pointer_arguments(plan, tensors), **self._epilogue_arguments(plan, tensors)}
        return Launch(gemm_pointer, plan.grid, arguments, plan.config.options)

    def _launch(self, function: Any, plan: Plan, tensors: Mapping[str, Tensor], **more: Any) -> Launch:
        """Returns the launch of ``function`` with A, B, the output as c, and its further arguments."""
        output = pointer_arguments("c", tensors["out"], plan.problem.output, "mn")
        arguments = {**self._pointer_arguments(plan, tensors), **output, **more}
        return Launch(function, plan.grid, arguments, plan.config.options)

    def _pointer_arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """:meth:`_arguments`, with A, B, the strides of their matrices, and EVEN_K."""
        return {
            **self._arguments(plan, tensors),
            **pointer_arguments("a", tensors["a"], plan.problem.operand("a"), "mk"),
            **pointer_arguments("b", tensors["b"], plan.problem.operand("b"), "kn"),
            # Only a size known when compiling says that there is no tail for every later launch too.
            "EVEN_K": plan.variant.static and self._depth(plan) % plan.config.block_k == 0,
        }

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: pointer loads and stores, the target's matrix instruction, nothing of descriptors."""
        required = {codegen.POINTER_STORE}
        if plan.problem.has_product:
            required.add(codegen.POINTER_LOAD)
        if unit := self._matrix_unit(plan):
            required.add(unit)
            if plan.problem.dtype in FNUZ:
                required.add(codegen.MFMA_FP8)
        forbidden = {codegen.TENSOR_DESCRIPTOR, codegen.TMA_LOAD, codegen.TMA_STORE}
        return Features(frozenset(required), frozenset(forbidden))


class TunedMm(PointerGemm):
    """mm, which is also offered the rows that a learned choice may pick, and takes every precision."""

    limits = GemmLimits(precisions=(*PRECISIONS, *SPLIT_PRECISIONS))
    extra_table = "extra_mm"
    zero_sign = "ieee"


KERNELS: tuple[GemmKernel, ...] = (
    TunedMm("mm", "mm", "mm"),
    PointerGemm("addmm", "addmm", "mm", weight=2),
    PointerGemm("scaled_mm", "scaled_mm", "scaled_mm", rare_dtypes=FNUZ),
)
