"""The GEMM kernels of the catalogue: pointer and persistent TMA forms of mm, addmm and scaled mm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import Config
from conformance.kernels import carveout
from conformance.kernels.device.persistent_tma import (
    gemm_persistent_device_descriptors,
    gemm_persistent_host_descriptors,
)
from conformance.kernels.device.pointer import gemm_pointer
from conformance.kernels.kernel import Kernel, Plan, Variant, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.problems import BASE_ALIGNMENT, BLOCK_SCALINGS, FP8, Gemm, Operand, itemsize
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

#: With fast accumulation off, an fp8 partial sum is added to an fp32 sum after this many k (or BLOCK_K if smaller).
PROMOTION_CHUNK = 128

#: Barriers of the load pipeline and descriptors, at most.
BARRIER_BYTES = 1024

#: TMA moves multiples of this many bytes: bases, leading strides and the inner extent of a stored tensor.
TMA_BYTES = 16


def _tiles(problem: Gemm, config: Config) -> int:
    return -(-problem.M // config.block_m) * -(-problem.N // config.block_n)


def _uses_wgmma(plan: Plan) -> bool:
    """Hopper's warpgroup instruction needs 64 rows and whole warpgroups; smaller tiles use mma.sync."""
    config = plan.config
    return plan.target.capability("wgmma").available and config.block_m >= 64 and config.num_warps % 4 == 0


class GemmKernel(Kernel):
    """What the pointer and the persistent form share: requirements of the operation, contract, epilogue arguments."""

    def __init__(self, name: str, operation: str, table: str) -> None:
        self.name = name
        self.operations = frozenset({operation})
        self.dtypes = FP8 if operation == "scaled_mm" else ("bf16", "fp16", "fp32")
        self.table = table
        self.configs = BASE.table(table) if isinstance(table, str) else table
        self.any_order = operation != "scaled_mm"

    # Requirements

    def refusal(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        checks = (self._operation, self._dtype, self._layout, self._config)
        return next((reason for check in checks if (reason := check(problem, config, target, variant))), None)

    def _operation(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if problem.op in self.operations:
            if problem.scaling is not None and (problem.scaling in BLOCK_SCALINGS) != self.block_scaled:
                takes = " or ".join(BLOCK_SCALINGS if self.block_scaled else ("tensor", "row"))
                detail = f"scaling is {problem.scaling!r}, {self.name} takes {takes}"
                return Reason(ReasonCode.SCALE, "scaling", detail)
            return None
        computes = ", ".join(sorted(self.operations))
        return Reason(ReasonCode.OPERATION, problem.op, f"{self.name} computes {computes}, not {problem.op}")

    def _dtype(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        for name, dtype in (("a", problem.a_dtype), ("b", problem.second_dtype)):
            if dtype not in self.dtypes:
                detail = f"{name} is {dtype}, {self.name} takes {', '.join(self.dtypes)}: convert the operand"
                return Reason(ReasonCode.DTYPE, name, detail)
        if problem.a_dtype != problem.second_dtype and problem.a_dtype not in FP8:
            detail = f"a is {problem.a_dtype} and b is {problem.second_dtype}: both must have one dtype"
            return Reason(ReasonCode.DTYPE, "b", detail)
        names = {problem.a_dtype, problem.second_dtype, problem.output_dtype} & {*FP8, "bf16", "fp16"}
        if problem.a_dtype == "fp32":
            names.add(problem.precision)
        if problem.dtype == "fp32" and target.vendor == "amd" and not target.capability("mfma").available:
            detail = (
                f"{target.id} has no matrix instruction for fp32 operands: a tile unrolls into single multiply-adds, "
                "which the compiler does not finish in minutes. Use fp16 or bf16"
            )
            return Reason(ReasonCode.PRECISION, problem.precision, detail)
        for name in sorted(names):
            capability = target.capability(name)
            if not capability.available:
                code = ReasonCode.PRECISION if name in ("tf32", "ieee") else ReasonCode.DTYPE
                return Reason(code, name, f"{target.id}: {capability.why}")
        return None

    def _layout(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if self.any_order:
            return None
        wanted = (("a", problem.layout_a, "row", 1), ("b", problem.layout_b, "col", 0))
        for name, layout, order, inner in wanted:
            strides = problem.operand(name).strides
            if layout.order != order or strides[inner] != 1:
                detail = f"{name} has strides {strides}: {self.name} needs it {order}-major with unit inner stride"
                return Reason(ReasonCode.LAYOUT, name, detail)
        return None

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        minimum = 32 if problem.dtype in FP8 else 16
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
        needed = self._shared_memory(problem, config, variant)
        limit = target.limits.shared_memory
        if needed > limit:
            detail = (
                f"{config.id}: {config.num_stages} stages of {problem.dtype} tiles need {needed} bytes of shared "
                f"memory, {target.id} has {limit} per block: use fewer stages or smaller tiles"
            )
            return Reason(ReasonCode.SHARED_MEMORY, config.id, detail)
        return None

    def shared_memory(self, problem: Gemm, config: Config, variant: Variant = Variant()) -> int:
        """Bytes of shared memory that one block needs, by estimate: what :meth:`refusal` compares with the limit."""
        return self._shared_memory(problem, config, variant)

    def _shared_memory(self, problem: Gemm, config: Config, variant: Variant) -> int:
        """Bytes of the pipelined operand tiles: (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize * num_stages."""
        return (config.block_m + config.block_n) * config.block_k * itemsize(problem.dtype) * config.num_stages

    # Arithmetic

    def contract(self, plan: Plan, executor: str) -> Contract:
        problem, target = plan.problem, plan.target
        overflow = "saturate" if problem.output_dtype in FP8 else "ieee"
        operand = "tf32" if problem.dtype == "fp32" and problem.precision == "tf32" else "exact"
        if executor == "interpreter" or (problem.dtype == "fp32" and problem.precision == "ieee"):
            return Contract(problem.output_dtype, FMA, operand, overflow)
        return Contract(problem.output_dtype, self._accumulator(plan), operand, overflow, target.vendor == "amd")

    def _accumulator(self, plan: Plan) -> Accumulator:
        """The arithmetic of the target's matrix unit for the dtype of the plan's operands."""
        unit, dtype = plan.target.matrix_unit, plan.problem.dtype
        if dtype in FP8 and unit.fp8_bits is not None:
            bits, promote = unit.fp8_bits, self.promotion(plan)
            return Accumulator(alignment_bits=bits, result_bits=bits, chunk=32, promote=promote, assumed=unit.assumed)
        return Accumulator(
            alignment_bits=unit.alignment_bits, chunk=unit.products[itemsize(dtype)], assumed=unit.assumed
        )

    def promotion(self, plan: Plan) -> int | None:
        """Consecutive k between promotions of an fp8 partial sum to fp32; None where the compiler offers none."""
        if plan.problem.dtype not in FP8 or plan.problem.fast_accum or not _uses_wgmma(plan):
            return None
        return min(PROMOTION_CHUNK, int(plan.config.block_k))

    # Code

    def _matrix_unit(self, plan: Plan) -> codegen.Feature | None:
        """The matrix instruction that the main loop must use on the plan's target; None for fp32 arithmetic."""
        problem, config, target = plan.problem, plan.config, plan.target
        if not problem.has_product:
            return None
        if target.vendor == "amd":
            return codegen.MFMA if target.capability("mfma").available else codegen.WMMA
        if problem.dtype == "fp32" and problem.precision == "ieee":
            return None
        if _uses_wgmma(plan):
            return codegen.WGMMA
        if target.capability("tcgen05").available and config.block_m >= 64 and config.num_warps in (4, 8):
            return codegen.TCGEN05
        return codegen.MMA

    # Launch arguments

    def _common_arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Arguments that both forms take: sizes, output, scales, bias and the constexpr switches of the epilogue."""
        problem, config = plan.problem, plan.config
        scaled, addmm = problem.op == "scaled_mm", problem.op == "addmm"
        bias = problem.operand("bias") if problem.reads_bias else None
        # alpha == 0 ignores the product, NaN included: the kernel is told that there is no K at all.
        sizes = {"M": problem.M, "N": problem.N, "K": problem.K if problem.has_product else 0}
        if plan.variant.static:
            sizes = {name: tl.constexpr(size) for name, size in sizes.items()}
        return {
            "c_ptr": tensors["out"],
            "scale_a_ptr": tensors.get("scale_a"),
            "scale_b_ptr": tensors.get("scale_b"),
            "bias_ptr": tensors["bias"] if bias else None,
            **sizes,
            "stride_cm": problem.output.strides[0],
            "stride_cn": problem.output.strides[1],
            "stride_scale_a": _step(tensors, "scale_a", 0) if scaled else 0,
            "stride_scale_b": _step(tensors, "scale_b", 1) if scaled else 0,
            "stride_bias_m": _broadcast_strides(bias)[0] if bias else 0,
            "stride_bias_n": _broadcast_strides(bias)[1] if bias else 0,
            "alpha": problem.alpha,
            "beta": problem.beta,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "GROUP_M": config.group_m,
            "WIDE_INDEX": any(operand.span >= 2**31 for operand in (*problem.operands, problem.output)),
            "PRECISION": problem.precision if problem.dtype == "fp32" else "ieee",
            "PROMOTE": self.promotion(plan),
            "SCALED": scaled,
            "HAS_BIAS": bias is not None,
            "ADDMM": addmm,
        }


def _step(tensors: Mapping[str, Tensor], name: str, dim: int) -> int:
    """Stride from one scale to the next; 0 for a scale of the whole tensor."""
    scale = tensors[name]
    return 0 if scale.numel() == 1 else scale.stride(dim)


def _broadcast_strides(bias: Operand) -> tuple[int, int]:
    """Row and column stride of the bias as an M x N matrix: 0 along a dimension in which it is one element wide."""
    if len(bias.shape) == 1:
        return (0, bias.strides[0])
    rows, columns = bias.shape
    return (bias.strides[0] if rows != 1 else 0, bias.strides[1] if columns != 1 else 0)


class PointerGemm(GemmKernel):
    """One tile per program, pointer loads and stores, any strides."""

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        if variant.tma_store or variant.descriptors == "host" or variant.epilogue_subtile != 1:
            detail = f"{self.name} has no descriptors and no subtiles, '{variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        return super()._config(problem, config, target, variant)

    def grid(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> tuple[int, ...]:
        return (_tiles(problem, config),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        check_tensors(self.name, plan.problem, tensors)
        problem, config = plan.problem, plan.config
        a, b = problem.operand("a"), problem.operand("b")
        arguments = {
            **self._common_arguments(plan, tensors),
            "a_ptr": tensors["a"],
            "b_ptr": tensors["b"],
            "stride_am": a.strides[0],
            "stride_ak": a.strides[1],
            "stride_bk": b.strides[0],
            "stride_bn": b.strides[1],
            # Only a size known when compiling says that there is no tail for every later launch too.
            "EVEN_K": plan.variant.static and problem.K % config.block_k == 0,
        }
        return Launch(gemm_pointer, plan.grid, arguments, config.options)

    def features(self, plan: Plan) -> tuple[frozenset[codegen.Feature], frozenset[codegen.Feature]]:
        required = {codegen.POINTER_STORE}
        if plan.problem.has_product:
            required.add(codegen.POINTER_LOAD)
        if unit := self._matrix_unit(plan):
            required.add(unit)
        return frozenset(required), frozenset({codegen.TENSOR_DESCRIPTOR, codegen.TMA_LOAD, codegen.TMA_STORE})


class PersistentTmaGemm(GemmKernel):
    """Descriptor loads, one program per SM looping over tiles, pointer or descriptor store."""

    persistent = True
    descriptors = True

    def _config(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> Reason | None:
        for name in ("tma", "tensor-descriptor" if variant.descriptors == "device" else "host-descriptor"):
            capability = target.capability(name)
            if not capability.available:
                return Reason(ReasonCode.CAPABILITY, name, f"{target.id}: {capability.why}")
        if config.block_n // variant.epilogue_subtile < 16:
            detail = f"{config.id} in {variant.epilogue_subtile} subtiles: a stored block needs at least 16 columns"
            return Reason(ReasonCode.CONFIG, "epilogue_subtile", detail)
        if (problem.dtype, problem.precision) == ("fp32", "tf32") and target.capability("tcgen05").available:
            # sums leave tensor memory by way of shared memory, whatever the loop is
            variant = replace(variant, flatten=True)
        return self._descriptors(problem, config, variant) or super()._config(problem, config, target, variant)

    def _shared_memory(self, problem: Gemm, config: Config, variant: Variant) -> int:
        """Blocks of C lie beside the operand tiles: one that a descriptor stores, and one (in fp32 if a bias is added)
        whose layout changes while the tiles of the next are being loaded already: in a flattened loop, or in one whose
        length the compiler knows."""
        result = itemsize(problem.output_dtype)
        staged = result if variant.tma_store else 0
        if variant.flatten or variant.static:
            staged += 4 if problem.reads_bias else 0 if variant.tma_store else result
        block = config.block_m * config.block_n // variant.epilogue_subtile
        return super()._shared_memory(problem, config, variant) + block * staged + BARRIER_BYTES

    def _descriptors(self, problem: Gemm, config: Config, variant: Variant) -> Reason | None:
        """What the descriptor of each operand, and of the output if it is stored through one, demands of memory."""
        described = [problem.operand("a"), problem.operand("b")] if problem.has_product else []
        if variant.tma_store:
            if problem.output.strides[1] != 1:
                detail = f"out has strides {problem.output.strides}: a descriptor store needs unit stride along N"
                return Reason(ReasonCode.LAYOUT, "out", detail)
            described.append(problem.output)
        for operand in described:
            if operand.numel and (reason := _undescribable(operand)):
                return reason
        extent = problem.N * itemsize(problem.output_dtype)
        if variant.tma_store and extent % TMA_BYTES:
            detail = (
                f"rows of out end after {extent} bytes: a descriptor store writes whole multiples of {TMA_BYTES} bytes "
                "and would overwrite what follows. Use the pointer store or pad N"
            )
            return Reason(ReasonCode.ALIGNMENT_EXTENT, "out", detail)
        inner = config.block_n // variant.epilogue_subtile * itemsize(problem.output_dtype)
        if variant.tma_store and inner < TMA_BYTES:
            detail = f"{config.id}: a stored block is {inner} bytes wide, {TMA_BYTES} are required: use fewer subtiles"
            return Reason(ReasonCode.BLOCK_BYTES, "out", detail)
        return None

    def grid(self, problem: Gemm, config: Config, target: Target, variant: Variant) -> tuple[int, ...]:
        available = (variant.sms or target.limits.multiprocessors or 1) - carveout.current()
        return (min(max(available, 1), _tiles(problem, config)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        check_tensors(self.name, plan.problem, tensors)
        problem, variant = plan.problem, plan.variant
        a, b = problem.operand("a"), problem.operand("b")
        arguments = {
            **self._common_arguments(plan, tensors),
            "A_ROW_MAJOR": _row_major(a),
            "B_ROW_MAJOR": _row_major(b),
            "HAS_PRODUCT": problem.has_product,
            "TMA_STORE": variant.tma_store,
            "EPILOGUE_SUBTILE": variant.epilogue_subtile,
            "FLATTEN": variant.flatten,
        }
        if variant.descriptors == "host":
            function = gemm_persistent_host_descriptors
            arguments |= self._host_descriptors(plan, tensors)
        else:
            function = gemm_persistent_device_descriptors
            arguments |= {"a_ptr": tensors["a"], "b_ptr": tensors["b"], "lda": _leading(a), "ldb": _leading(b)}
        return Launch(function, plan.grid, arguments, plan.config.options)

    def _host_descriptors(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        from triton.tools.tensor_descriptor import TensorDescriptor

        problem, config = plan.problem, plan.config
        made: dict[str, Any] = {"a_desc": None, "b_desc": None, "c_desc": None}
        if problem.has_product and 0 not in plan.grid:
            blocks = {"a": [config.block_m, config.block_k], "b": [config.block_k, config.block_n]}
            for name, block in blocks.items():
                operand = problem.operand(name)
                order = slice(None) if _row_major(operand) else slice(None, None, -1)
                shape = list(operand.shape)
                made[f"{name}_desc"] = TensorDescriptor(
                    tensors[name], shape[order], [_leading(operand), 1], block[order]
                )
        if plan.variant.tma_store and 0 not in plan.grid:
            block = [config.block_m, config.block_n // plan.variant.epilogue_subtile]
            strides = [problem.output.strides[0], 1]
            made["c_desc"] = TensorDescriptor(tensors["out"], list(problem.output.shape), strides, block)
        return made

    def features(self, plan: Plan) -> tuple[frozenset[codegen.Feature], frozenset[codegen.Feature]]:
        problem, stored = plan.problem, plan.variant.tma_store
        required = {codegen.TMA_STORE if stored else codegen.POINTER_STORE}
        forbidden = {codegen.POINTER_STORE if stored else codegen.TMA_STORE}
        if problem.has_product:
            required |= {codegen.TMA_LOAD, codegen.TENSOR_DESCRIPTOR}
        else:
            forbidden.add(codegen.TMA_LOAD)
        if not problem.reads_bias and problem.scaling is None:
            forbidden.add(codegen.POINTER_LOAD)
        if unit := self._matrix_unit(plan):
            required.add(unit)
        return frozenset(required), frozenset(forbidden)


def _row_major(operand: Operand) -> bool:
    """Whether the last dimension has unit stride; an operand with both strides 1 counts as row-major."""
    return operand.strides[1] == 1


def _leading(operand: Operand) -> int:
    """Stride in elements between rows of the operand as it lies in memory.

    With a single row it is never used, but a descriptor must still hold a valid one: the row's own length, rounded up.
    """
    outer = 0 if _row_major(operand) else 1
    if operand.shape[outer] > 1:
        return operand.strides[outer]
    step = TMA_BYTES // itemsize(operand.dtype)
    return -(-max(operand.strides[outer], 1) // step) * step


def _undescribable(operand: Operand) -> Reason | None:
    """Why a descriptor cannot cover ``operand``: unit inner stride, aligned base and pitch, sizes below 2**31."""
    size = itemsize(operand.dtype)
    if 1 not in operand.strides:
        detail = f"{operand.name} has strides {operand.strides}: a descriptor needs unit stride in one dimension"
        return Reason(ReasonCode.LAYOUT, operand.name, detail)
    base = operand.offset * size % BASE_ALIGNMENT
    if base % TMA_BYTES:
        detail = (
            f"{operand.name} starts {base % TMA_BYTES} bytes past a {TMA_BYTES}-byte boundary: a descriptor needs its "
            f"base on one. Copy the operand or use a pointer kernel"
        )
        return Reason(ReasonCode.ALIGNMENT_BASE, operand.name, detail)
    pitch = _leading(operand) * size
    if pitch % TMA_BYTES:
        detail = (
            f"rows of {operand.name} are {pitch} bytes apart: a descriptor needs a multiple of {TMA_BYTES}. "
            f"Pad the leading dimension or use a pointer kernel"
        )
        return Reason(ReasonCode.ALIGNMENT_PITCH, operand.name, detail)
    if max(operand.shape) >= 2**31 or pitch >= 2**40:
        detail = (
            f"{operand.name} is {operand.shape} with a pitch of {pitch} bytes: sizes must be below 2**31, pitches 2**40"
        )
        return Reason(ReasonCode.EXTENT, operand.name, detail)
    return None


KERNELS: tuple[GemmKernel, ...] = (
    PointerGemm("mm", "mm", "mm"),
    PointerGemm("addmm", "addmm", "mm"),
    PointerGemm("scaled_mm", "scaled_mm", "scaled_mm"),
    PersistentTmaGemm("mm_persistent_tma", "mm", "persistent_mm"),
    PersistentTmaGemm("addmm_persistent_tma", "addmm", "persistent_mm"),
    PersistentTmaGemm("scaled_mm_persistent_tma", "scaled_mm", "persistent_fp8"),
)
