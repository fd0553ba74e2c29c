"""Products of block-scaled operands by tensor descriptors: persistent, and warp-specialised for Blackwell."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.gemm.refusals import DESCRIBED_VARIANT, MAKERS
from conformance.families.microscaled.problem import SWIZZLED_BLOCKS, SWIZZLED_LINES, MicroscaledGemm
from conformance.families.microscaled.refusals import MicroscaledLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.blackwell_ws import TCGEN05_ROWS, TCGEN05_WARPS, specialises
from conformance.kernels.device.microscaled_persistent_tma import (
    gemm_microscaled_device_descriptors,
    gemm_microscaled_host_descriptors,
)
from conformance.kernels.gemm import output_tiles
from conformance.kernels.kernel import Features, Plan, Variant, check_tensors
from conformance.kernels.launch import Launch
from conformance.kernels.microscaled_mm import MicroscaledMm, scale_arguments, tile_arguments
from conformance.kernels.persistent_tma import TMA_BYTES, host_descriptor, leading, row_major, undescribable, unstorable
from conformance.problems import BASE_ALIGNMENT, Layout, itemsize
from conformance.records import Reason, ReasonCode

#: Tiles of the scaled unit of Blackwell and of those of fewer rows; loops with pipelines of two and three stages,
#: and without one.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(128, 64, 128, 3, 8),
    Config(64, 128, 128, 3, 4, group_m=2),
    Config(32, 64, 64, 1, 4),
)

#: The same for tcgen05, which takes scales with 128 rows only; a pipeline of one stage is not specialised.
BLACKWELL_CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(128, 256, 128, 2, 8, group_m=2),
    Config(64, 128, 128, 3, 4),
    Config(128, 64, 256, 1, 4),
)

#: Tiles with whole tiles of scales, of which those for 16 k are 64 deep.
SCALE_CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(128, 256, 128, 2, 8, group_m=2),
    Config(128, 128, 256, 1, 8),
)

#: tcgen05 reads four-bit codes that meet eight-bit ones from shared memory in which the copy unit leaves a gap after
#: each 8 bytes (CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B). Such a descriptor needs bases and pitches of so many bytes, and
#: rows of so many codes.
PADDED_BYTES, PADDED_CODES = 32, 128


class MicroscaledPersistentTma(MicroscaledMm):
    """Codes by descriptors, scales by pointers; one program per SM, which loops over tiles; pointer or descriptor
    store."""

    limits = MicroscaledLimits(
        variant=DESCRIBED_VARIANT - {"epilogue_subtile", "static", "splits"} | {"implied_dtype"},
        needs=("scaled-packing", "tma"),
        makers=MAKERS,
        described=("a", "b"),
        matrices="one",
    )
    persistent = True
    descriptors = True
    dtypes = ("e4m3", "uint8")
    configs = CONFIGS
    zero_sign = "ieee"

    def problem(self, formats: tuple[str, str], M: int, N: int, K: int, **fields: Any) -> MicroscaledGemm:
        """See :class:`MicroscaledMm`. Rows of A and B that nothing is said about are padded, so that descriptors
        can have their pitch."""
        plain = super().problem(formats, M, N, K, **fields)
        for name, field in (("a", "layout_a"), ("b", "layout_b")):
            operand, layout = plain.operand(name), getattr(plain, field)
            if field not in fields:  # one row needs no pitch, but leading() gives it one
                step = PADDED_BYTES // itemsize(operand.dtype)
                pad = -(operand.strides[-2] if layout.order == "row" else operand.strides[-1]) % step
                fields[field] = dataclasses.replace(layout, pad=pad)
        return super().problem(formats, M, N, K, **fields)

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, target, then what the pointer kernel refuses, then descriptors."""
        return super().refusal(plan) or self._descriptors(plan)

    def _variant(self, plan: Plan) -> Reason | None:
        variant = plan.variant
        if not variant.static and variant.epilogue_subtile == 1 and variant.splits is None:
            return None
        detail = f"{self.name} takes its sizes at run time and stores whole tiles, '{variant.id}' was asked for"
        return Reason(ReasonCode.CONFIG, "variant", detail)

    def _batch(self, plan: Plan) -> Reason | None:
        batch = plan.problem.batch
        if batch is None:
            return None
        detail = f"a batch of {batch}: {self.name} has descriptors of one matrix. Use microscaled_mm_batch_descriptors"
        return Reason(ReasonCode.EXTENT, "batch", detail)

    def _descriptors(self, plan: Plan) -> Reason | None:
        """Returns the reason why memory does not meet the demands of the descriptors; None if it does."""
        problem = plan.problem
        described = [problem.operand("a"), problem.operand("b")] if problem.has_product else []
        for operand in described:
            if operand.numel and (reason := undescribable(operand)):
                return reason
        if described and problem.output.numel and (reason := self._padded(plan)):
            return reason
        return unstorable(problem.output) if plan.variant.tma_store else None

    def _padded(self, plan: Plan) -> Reason | None:
        """Returns the reason why memory does not meet the demands of a descriptor with gaps, where the unit
        needs one."""
        problem = plan.problem
        if not padded_codes(plan, self.multiplies_scaled(plan)):
            return None
        operand = next(problem.operand(name) for name in "ab" if problem.format_of(name).per_byte == 2)
        codes = 2 * operand.shape[-1 if row_major(operand) else -2]
        apart = operand.strides[0] if len(operand.shape) == 3 and operand.shape[0] > 1 else 0
        if operand.offset % BASE_ALIGNMENT % PADDED_BYTES:
            code, what = ReasonCode.ALIGNMENT_BASE, f"starts at byte {operand.offset}"
        elif leading(operand) % PADDED_BYTES:
            code, what = ReasonCode.ALIGNMENT_PITCH, f"has rows {leading(operand)} bytes apart"
        elif apart % PADDED_BYTES:
            code, what = ReasonCode.ALIGNMENT_PITCH, f"has matrices {apart} bytes apart"
        elif codes % PADDED_CODES:
            code, what = ReasonCode.ALIGNMENT_EXTENT, f"has rows of {codes} codes"
        else:
            return None
        detail = (
            f"{operand.name} {what}: together with eight-bit codes tcgen05 needs a base and a pitch of multiples of "
            f"{PADDED_BYTES} bytes and rows of multiples of {PADDED_CODES} codes. Pad it or use microscaled_mm"
        )
        return Reason(code, operand.name, detail)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per SM, or per tile if there are fewer."""
        return (min(carveout.available_sms(plan), output_tiles(plan)),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: descriptors are built by the host or by each program, as the variant says."""
        problem, variant = plan.problem, plan.variant
        check_tensors(self.name, problem, tensors)
        a, b = problem.operand("a"), problem.operand("b")
        scales = scale_arguments(problem, "a", tensors) | scale_arguments(problem, "b", tensors)
        arguments = {
            **{name: value for name, value in scales.items() if not name.endswith("z")},
            **tile_arguments(problem, plan.config),
            "c_ptr": tensors["out"],
            "stride_cm": problem.output.strides[0],
            "stride_cn": problem.output.strides[1],
            "A_ROW_MAJOR": row_major(a),
            "B_ROW_MAJOR": row_major(b),
            "HAS_PRODUCT": problem.has_product,
            "TMA_STORE": variant.tma_store,
            "FLATTEN": variant.flatten,
            "WARP_SPECIALIZE": self.specialises(plan),
            **self._scales(plan, tensors),
        }
        if variant.descriptors == "host":
            arguments |= host_descriptors(plan, tensors, arguments)
            return Launch(gemm_microscaled_host_descriptors, plan.grid, arguments, plan.config.options)
        arguments |= {"a_ptr": tensors["a"], "b_ptr": tensors["b"], "lda": leading(a), "ldb": leading(b)}
        return Launch(gemm_microscaled_device_descriptors, plan.grid, arguments, plan.config.options)

    def _scales(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """The arguments that say how scales are loaded, where that is not by pointers."""
        return {}

    def specialises(self, plan: Plan) -> bool:
        """True if warps have different work."""
        return False

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: the matrix instruction of the pointer kernel, codes by TMA, scales by pointers, and
        stores as the variant says."""
        stored, moves = plan.variant.tma_store, {codegen.POINTER_LOAD, codegen.POINTER_STORE}
        required = set(super().features(plan).required) - moves
        required |= {codegen.TMA_STORE if stored else codegen.POINTER_STORE}
        forbidden = {codegen.POINTER_STORE if stored else codegen.TMA_STORE}
        if plan.problem.has_product:
            required |= {codegen.TMA_LOAD, codegen.TENSOR_DESCRIPTOR, codegen.POINTER_LOAD}
        else:
            forbidden |= {codegen.TMA_LOAD, codegen.POINTER_LOAD}
        if plan.problem.has_product and self.specialises(plan):
            required |= {codegen.WARP_SPECIALIZED}
        return Features(frozenset(required), frozenset(forbidden))

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: one matrix, whose rows descriptors can have."""
        problem = super().draw_problem(draw)
        fields = {"batch": None, "layout_a": _padded_layout(problem, "a"), "layout_b": _padded_layout(problem, "b")}
        return dataclasses.replace(problem, **fields)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: descriptors and loops of both kinds, on few programs."""
        descriptors, flatten = draw.pick(("device", "host")), draw.chance(0.5)
        return Variant(descriptors, flatten=flatten, sms=draw.pick((None, 2, 3)))


class ScalesByTma(MicroscaledPersistentTma):
    """Scales by descriptors, too: those in the tiles that tcgen05 reads. A tile of the product has whole ones."""

    limits = dataclasses.replace(MicroscaledPersistentTma.limits, swizzled=True)
    configs = SCALE_CONFIGS
    described_scales = True
    zero_sign = "ieee"

    def problem(self, formats: tuple[str, str], M: int, N: int, K: int, **fields: Any) -> MicroscaledGemm:
        """See :class:`MicroscaledPersistentTma`: with swizzled scales, unless ``fields`` say otherwise."""
        return super().problem(formats, M, N, K, **{"swizzled": True, **fields})

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: also scales that do not lie in tiles, and parts of such tiles."""
        return super().refusal(plan) or self._whole_tiles(plan)

    def _whole_tiles(self, plan: Plan) -> Reason | None:
        problem, config = plan.problem, plan.config
        for name, lines in (("a", config.block_m), ("b", config.block_n)):
            form = problem.format_of(name)
            if form.scale is None:
                continue
            if not problem.swizzled or problem.layout_scale.offset % TMA_BYTES:
                detail = f"scale_{name} does not lie in tiles at multiples of {TMA_BYTES} bytes: use microscaled_mm"
                return Reason(ReasonCode.LAYOUT, f"scale_{name}", detail)
            depth = SWIZZLED_BLOCKS * form.block
            if lines % SWIZZLED_LINES or config.block_k % depth:
                detail = f"{config.id}: tiles of scales have {SWIZZLED_LINES} lines and {depth} k, use multiples"
                return Reason(ReasonCode.CONFIG, "tiles of scales", detail)
        return None

    def _scales(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        arguments: dict[str, Any] = {"SWIZZLED": "described"}
        if plan.variant.descriptors == "host" and plan.problem.has_product and 0 not in plan.grid:
            for name, lines in (("a", plan.config.block_m), ("b", plan.config.block_n)):
                if plan.problem.format_of(name).scale is not None:
                    arguments[f"scale_{name}_ptr"] = _scale_descriptor(plan, tensors, name, lines)
        return arguments

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: nothing is loaded by pointers."""
        features, pointers = super().features(plan), {codegen.POINTER_LOAD}
        return Features(features.required - pointers, features.forbidden | pointers)


def _scale_descriptor(plan: Plan, tensors: Mapping[str, Tensor], name: str, lines: int) -> Any:
    """Returns a descriptor of swizzled scales made by the host: of tiles in two halves."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    operand = plan.problem.operand(f"scale_{name}")
    half = SWIZZLED_LINES * SWIZZLED_BLOCKS // 2
    deep = plan.config.block_k // plan.problem.format_of(name).block // SWIZZLED_BLOCKS
    shape, strides = [*operand.shape[:-3], 2, half], [*operand.strides[:-3], half, 1]
    block = [lines // SWIZZLED_LINES, deep, 2, half]
    batch = [1] * (len(shape) - len(block))
    return TensorDescriptor(tensors[f"scale_{name}"], shape, strides, batch + block)


def padded_codes(plan: Plan, scaled: bool) -> bool:
    """True if the unit multiplies four-bit codes by eight-bit ones, of which tcgen05 reads the former with gaps."""
    widths = {form.per_byte for form in plan.problem.formats}
    return scaled and len(widths) == 2 and bool(plan.target.capability("tcgen05").available)


def _padded_layout(problem: MicroscaledGemm, name: str) -> Layout:
    layout: Layout = getattr(problem, f"layout_{name}")
    operand = dataclasses.replace(problem, batch=None).dense.operand(name)
    inner = operand.shape[1] if layout.order == "row" else operand.shape[0]
    return Layout(layout.order, pad=-max(inner, 1) % (PADDED_BYTES // itemsize(operand.dtype)))


def host_descriptors(plan: Plan, tensors: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Descriptors of A, B and C; None for one that is not needed, or that would describe no memory."""
    problem, config = plan.problem, plan.config
    descriptors: dict[str, Any] = {"a_desc": None, "b_desc": None, "c_desc": None}
    if problem.has_product and 0 not in plan.grid:
        descriptors |= code_descriptors(plan, tensors, arguments)
    if plan.variant.tma_store and 0 not in plan.grid:
        descriptors["c_desc"] = host_descriptor(tensors["out"], problem.output, (config.block_m, config.block_n))
    return descriptors


def code_descriptors(plan: Plan, tensors: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Descriptors of the codes of A and B, made by the host. ``arguments`` are those of :func:`tile_arguments`."""
    config = plan.config
    block_a = (config.block_m // arguments["A_ALONG_M"], config.block_k // arguments["A_ALONG_K"])
    block_b = (config.block_k // arguments["B_ALONG_K"], config.block_n // arguments["B_ALONG_N"])
    return {
        "a_desc": host_descriptor(tensors["a"], plan.problem.operand("a"), block_a),
        "b_desc": host_descriptor(tensors["b"], plan.problem.operand("b"), block_b),
    }


class MicroscaledBlackwell(MicroscaledPersistentTma):
    """The same for tcgen05, with warps of different work."""

    limits = dataclasses.replace(
        MicroscaledPersistentTma.limits, needs=("scaled-packing", "tma", "tcgen05", "warp-specialization")
    )
    configs = BLACKWELL_CONFIGS
    zero_sign = "ieee"
    specialised = True

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: also tiles that tcgen05 does not take."""
        reason, config = super().refusal(plan), plan.config
        if reason is None and (config.block_m < TCGEN05_ROWS or config.num_warps % TCGEN05_WARPS):
            detail = f"{config.id}: tcgen05 needs BLOCK_M >= {TCGEN05_ROWS} and a multiple of {TCGEN05_WARPS} warps"
            return Reason(ReasonCode.CONFIG, "tcgen05", detail)
        return reason

    def specialises(self, plan: Plan) -> bool:
        """True if warps have different work: in a pipelined loop."""
        return specialises(plan.config)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: always nested. The id of a random case does not say so, and an expected failure of the
        flattened loop could not name it."""
        return dataclasses.replace(super().draw_variant(draw), flatten=False)


KERNELS: tuple[MicroscaledPersistentTma, ...] = (
    MicroscaledPersistentTma("microscaled_mm_persistent_tma"),
    MicroscaledBlackwell("microscaled_mm_blackwell_ws"),
    ScalesByTma("microscaled_mm_scales_persistent_tma"),
)
