"""mm and scaled mm through the experimental descriptors of Triton 3.2 and 3.3. Later releases have none of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.gemm.refusals import DESCRIBED_VARIANT
from conformance.kernels import carveout
from conformance.kernels.device.legacy_tma import (
    TENSORMAP_BYTES,
    gemm_legacy_descriptors,
    gemm_legacy_device_tensormaps,
    gemm_legacy_host_tensormaps,
)
from conformance.kernels.gemm import output_tiles
from conformance.kernels.kernel import Features, Plan
from conformance.kernels.launch import Launch, workspace
from conformance.kernels.persistent_tma import PersistentTmaGemm, leading, row_major
from conformance.problems import Operand, itemsize
from conformance.records import Reason, ReasonCode

#: Bytes that the inner dimension of a tensor map's block has at least: the narrowest swizzle.
LEAST_INNER_BYTES = 32


class HostTensormap:
    """A host descriptor where there is no device on which it could be made: what the compiler asks of one."""

    def tma_desc_cpu_ptr(self) -> int:
        """Asked for at a launch only."""
        raise RuntimeError("this descriptor was made without a device: it can be compiled for, not launched")


class LegacyTmaGemm(PersistentTmaGemm):
    """Loads by ``tl._experimental_descriptor_load`` from tensor maps that the host makes, or each program in a
    workspace. They have no pitch: what is described must be contiguous."""

    limits = dataclasses.replace(
        PersistentTmaGemm.limits,
        variant=DESCRIBED_VARIANT - {"flatten", "epilogue_subtile"},
        makers={"device": "device-tensormap", "host": "host-tensormap"},
        bias=False,
        pitch=False,
        block_bytes=dict.fromkeys(("a", "b", "out"), LEAST_INNER_BYTES),
    )
    weight = 1
    #: the name in ``triton.language`` without which there is no such kernel
    api = "_experimental_descriptor_load"

    def __init__(self, name: str, operation: str, table: str, *, persistent: bool) -> None:
        super().__init__(name, operation, table)
        self.persistent = persistent
        self.offered = hasattr(tl, self.api)

    def _config(self, plan: Plan) -> Reason | None:
        variant, config = plan.variant, plan.config
        if reason := super()._config(plan):
            return reason
        if variant.flatten or variant.epilogue_subtile != 1:
            detail = f"{self.name} has one loop in another and whole tiles, '{variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        if plan.problem.reads_bias:
            detail = f"{self.name} adds no bias: use a pointer kernel, or leave the bias out"
            return Reason(ReasonCode.BIAS, "bias", detail)
        blocks = dict(zip("ab", self._blocks(plan), strict=True)) if plan.problem.has_product else {}
        inner = {name: block[1] * itemsize(plan.problem.operand(name).dtype) for name, block in blocks.items()}
        if variant.tma_store:
            inner["out"] = config.block_n * itemsize(plan.problem.output_dtype)
        for name, size in inner.items():
            if size < LEAST_INNER_BYTES:
                detail = f"{config.id}: a block of {name} is {size} bytes wide, {LEAST_INNER_BYTES} are required"
                return Reason(ReasonCode.BLOCK_BYTES, name, detail)
        return None

    def _descriptors(self, plan: Plan) -> Reason | None:
        """See :class:`PersistentTmaGemm`; and rows that lie side by side."""
        problem = plan.problem
        described = [problem.operand("a"), problem.operand("b")] if problem.has_product else []
        described += [problem.output] if plan.variant.tma_store else []
        if reason := super()._descriptors(plan):
            return reason
        for operand in described if not self.limits.pitch else ():
            rows, length = operand.shape if row_major(operand) else operand.shape[::-1]
            if operand.numel and rows > 1 and leading(operand) != length:
                detail = (
                    f"rows of {operand.name} are {length} elements long and {leading(operand)} apart: a tensor map of "
                    "this API has no pitch. Copy the operand or use a pointer kernel"
                )
                return Reason(ReasonCode.LAYOUT, operand.name, detail)
        return None

    def _blocks(self, plan: Plan) -> tuple[tuple[int, int], tuple[int, int]]:
        """Returns the blocks of A and B as they lie in memory."""
        config = plan.config
        blocks = {"a": (config.block_m, config.block_k), "b": (config.block_k, config.block_n)}
        a, b = (
            block if row_major(plan.problem.operand(name)) else (block[1], block[0]) for name, block in blocks.items()
        )
        return a, b

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile, or at most one per SM if they are persistent."""
        tiles = output_tiles(plan)
        return (min(carveout.available_sms(plan), tiles) if self.persistent else tiles,)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: tensor maps are made by the host or by each program, as the variant says."""
        if plan.variant.descriptors == "host":
            return Launch(
                gemm_legacy_host_tensormaps,
                plan.grid,
                self._shared(plan, tensors) | self._host_tensormaps(plan, tensors),
                plan.config.options,
            )
        size = max(plan.grid[0], 1) * 3 * TENSORMAP_BYTES.value
        arguments = self._shared(plan, tensors) | {"workspace_ptr": workspace((size,), torch.uint8, tensors["out"])}
        return Launch(gemm_legacy_device_tensormaps, plan.grid, arguments, plan.config.options)

    def _shared(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns the arguments that all forms have."""
        problem = plan.problem
        arguments = self._arguments(plan, tensors)  # checks the tensors
        epilogue = self._epilogue_arguments(plan, tensors)
        unknown = ("bias_ptr", "stride_bias_m", "stride_bias_n", "alpha", "beta", "HAS_BIAS", "ADDMM")
        return {
            **arguments,
            **{name: value for name, value in epilogue.items() if name not in unknown},
            "a_ptr": tensors["a"],
            "b_ptr": tensors["b"],
            "A_ROW_MAJOR": row_major(problem.operand("a")),
            "B_ROW_MAJOR": row_major(problem.operand("b")),
            "HAS_PRODUCT": problem.has_product,
            "TMA_STORE": plan.variant.tma_store,
            "PERSISTENT": self.persistent,
        }

    def _host_tensormaps(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Tensor maps of A, B and C; None for one that is not needed, or that would describe no memory."""
        problem, config = plan.problem, plan.config
        described: dict[str, tuple[Operand, tuple[int, int]]] = {}
        if problem.has_product and 0 not in plan.grid:
            a, b = self._blocks(plan)
            described = {"a": (problem.operand("a"), a), "b": (problem.operand("b"), b)}
        if plan.variant.tma_store and 0 not in plan.grid:
            described["c"] = (problem.output, (config.block_m, config.block_n))
        tensormaps = {
            f"{name}_desc": _host_tensormap(tensors[to.name], to, block) for name, (to, block) in described.items()
        }
        return {"a_desc": None, "b_desc": None, "c_desc": None, **tensormaps}

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the persistent kernel, and tensor maps made where the variant says."""
        features = super().features(plan)
        used = plan.problem.has_product or plan.variant.tma_store
        made_on_device = {codegen.TENSORMAP} if used and plan.variant.descriptors == "device" else set()
        return Features(
            features.required - {codegen.TENSOR_DESCRIPTOR} | made_on_device,
            features.forbidden | ({codegen.TENSORMAP} - made_on_device),
        )


class LegacyDescriptorGemm(LegacyTmaGemm):
    """The same by Triton 3.3's ``tl._experimental_make_tensor_descriptor``, whose descriptors have a pitch."""

    limits = dataclasses.replace(
        LegacyTmaGemm.limits,
        variant=LegacyTmaGemm.limits.variant - {"descriptors"},
        needs=("tma", "experimental-descriptor"),
        makers={"device": "experimental-descriptor"},
        pitch=True,
    )
    api = "_experimental_make_tensor_descriptor"

    def _config(self, plan: Plan) -> Reason | None:
        if reason := super()._config(plan):
            return reason
        if plan.variant.descriptors == "host":
            detail = f"{self.name} makes its descriptors on the device, '{plan.variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        return None

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: what is loaded from is an object, too."""
        features = super().features(plan)
        kept = {codegen.TENSOR_DESCRIPTOR} if plan.problem.has_product else set()
        return Features(features.required | kept, features.forbidden)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        scaling = ("scale_a_ptr", "scale_b_ptr", "stride_scale_a", "stride_scale_b", "SCALED", "PROMOTE", "PERSISTENT")
        arguments = {name: value for name, value in self._shared(plan, tensors).items() if name not in scaling}
        pitches = {f"ld{name}": leading(plan.problem.operand(name)) for name in "ab"}
        return Launch(gemm_legacy_descriptors, plan.grid, arguments | pitches, plan.config.options)


def _host_tensormap(tensor: Tensor, operand: Operand, block: tuple[int, int]) -> Any:
    """Returns the descriptor of ``operand`` as it lies in memory, in blocks of ``block``; a stand-in without a
    device."""
    if tensor.device.type in ("cpu", "meta"):
        return HostTensormap()
    from triton.tools.experimental_descriptor import create_2d_tma_descriptor

    rows, columns = operand.shape if row_major(operand) else operand.shape[::-1]
    return create_2d_tma_descriptor(tensor.data_ptr(), rows, columns, *block, itemsize(operand.dtype))


KERNELS: tuple[LegacyTmaGemm, ...] = (
    LegacyTmaGemm("mm_legacy_tma", "mm", "persistent_mm", persistent=False),
    LegacyTmaGemm("mm_legacy_tma_persistent", "mm", "persistent_mm", persistent=True),
    LegacyTmaGemm("scaled_mm_legacy_tma_persistent", "scaled_mm", "persistent_fp8", persistent=True),
    LegacyDescriptorGemm("mm_legacy_descriptor_persistent", "mm", "persistent_mm", persistent=True),
)
