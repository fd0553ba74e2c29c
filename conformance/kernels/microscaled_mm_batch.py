"""Batches of products of block-scaled operands by tensor descriptors, on every target."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.device.microscaled_mm_batch import gemm_microscaled_batch
from conformance.kernels.gemm import output_tiles
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch
from conformance.kernels.microscaled_mm import scale_arguments, tile_arguments
from conformance.kernels.microscaled_persistent_tma import MicroscaledPersistentTma, ScalesByTma, host_descriptors
from conformance.kernels.persistent_tma import leading, matrices_apart, row_major
from conformance.records import Reason, ReasonCode

#: Tiles for the scaled unit of Blackwell and for units of fewer rows, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(64, 128, 128, 3, 4, group_m=2),
    Config(32, 64, 64, 1, 4),
)

#: Tiles with whole tiles of scales.
SCALE_CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(128, 128, 256, 1, 8),
)


class MicroscaledBatch(MicroscaledPersistentTma):
    """Codes by descriptors of three dimensions, one of them for the batch; scales by pointers. Each program loops over
    tiles of all matrices. Where the target moves no tiles, Triton rewrites descriptors to pointers."""

    limits = dataclasses.replace(MicroscaledPersistentTma.limits, needs=("scaled-packing",), matrices="batch")
    configs = CONFIGS
    batched = True
    matrices = 2
    zero_sign = "ieee"

    def _batch(self, plan: Plan) -> Reason | None:
        if plan.problem.batch is not None:
            return None
        detail = (
            f"one product without a batch: {self.name} has descriptors of a batch. Use microscaled_mm_persistent_tma"
        )
        return Reason(ReasonCode.EXTENT, "batch", detail)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per SM, or per tile of all matrices if there are fewer."""
        return (min(carveout.available_sms(plan), output_tiles(plan) * plan.problem.batch),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: descriptors are built by the host or by each program, as the variant says."""
        problem, variant = plan.problem, plan.variant
        check_tensors(self.name, problem, tensors)
        a, b, out = problem.operand("a"), problem.operand("b"), problem.output
        arguments: dict[str, Any] = {
            **scale_arguments(problem, "a", tensors),
            **scale_arguments(problem, "b", tensors),
            **tile_arguments(problem, plan.config),
            "a_ptr": tensors["a"],
            "b_ptr": tensors["b"],
            "c_ptr": tensors["out"],
            "a_desc": None,
            "b_desc": None,
            "c_desc": None,
            "lda": leading(a),
            "ldb": leading(b),
            "ldc": leading(out),
            "stride_az": matrices_apart(a),
            "stride_bz": matrices_apart(b),
            "stride_cz": matrices_apart(out),
            "stride_cm": out.strides[1],
            "stride_cn": out.strides[2],
            "batch": problem.batch,
            "DESCRIPTORS": variant.descriptors,
            "A_ROW_MAJOR": row_major(a),
            "B_ROW_MAJOR": row_major(b),
            "HAS_PRODUCT": problem.has_product,
            "TMA_STORE": variant.tma_store,
            "FLATTEN": variant.flatten,
            **self._scales(plan, tensors),
        }
        if variant.descriptors == "host":
            arguments |= host_descriptors(plan, tensors, arguments)
        return Launch(gemm_microscaled_batch, plan.grid, arguments, plan.config.options)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`. Where the target moves no tiles, no descriptor is left and pointers load and store."""
        features = super().features(plan)
        if any(plan.target.capability(unit).available for unit in ("tma", "tdm")):
            return features
        moves = {codegen.TENSOR_DESCRIPTOR, codegen.TMA_LOAD, codegen.TMA_STORE}
        pointers = {codegen.POINTER_STORE} | ({codegen.POINTER_LOAD} if plan.problem.has_product else set())
        return Features(features.required - moves | pointers, features.forbidden - pointers | moves)

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: one matrix or several, whose rows descriptors can have."""
        return dataclasses.replace(super().draw_problem(draw), batch=draw.pick((1, 2, 3)))


class BatchOfScales(MicroscaledBatch, ScalesByTma):
    """Scales by descriptors, too, which have five dimensions: the batch, and those of tiles that tcgen05 reads."""

    limits = dataclasses.replace(MicroscaledBatch.limits, swizzled=True)
    configs = SCALE_CONFIGS
    zero_sign = "ieee"


KERNELS: tuple[MicroscaledBatch, ...] = (
    MicroscaledBatch("microscaled_mm_batch_descriptors"),
    BatchOfScales("microscaled_mm_batch_scales_descriptors"),
)
