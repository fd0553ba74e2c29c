"""mm, addmm and scaled mm by tensor descriptors: persistent programs that loop over tiles."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.gemm.refusals import DESCRIBED_VARIANT, MAKERS, GemmLimits
from conformance.kernels.device.persistent_tma import (
    gemm_persistent_device_descriptors,
    gemm_persistent_host_descriptors,
)
from conformance.kernels.gemm import GemmKernel
from conformance.kernels.kernel import Features, Plan
from conformance.kernels.launch import INDEX_LIMIT, Launch
from conformance.problems import BASE_ALIGNMENT, PRECISIONS, SPLIT_PRECISIONS, Operand, itemsize
from conformance.records import Reason, ReasonCode

#: Barriers of the load pipeline and descriptors, at most.
BARRIER_BYTES = 1024

#: TMA moves multiples of this many bytes: bases, leading strides and the inner extent of a stored tensor.
TMA_BYTES = 16

#: A descriptor's pitch, in bytes, must be below this.
PITCH_LIMIT = 2**40


class PersistentTmaGemm(GemmKernel):
    """Descriptor loads, one program per SM looping over tiles, pointer or descriptor store."""

    limits = GemmLimits(variant=DESCRIBED_VARIANT, needs=("tma",), makers=MAKERS, described=("a", "b"))
    persistent = True
    descriptors = True
    banded_tiles = True
    zero_sign = "ieee"

    def _config(self, plan: Plan) -> Reason | None:
        config, variant = plan.config, plan.variant
        if reason := self.lacking(plan):
            return reason
        if config.block_n // variant.epilogue_subtile < 16:
            detail = f"{config.id} in {variant.epilogue_subtile} subtiles: a stored block needs at least 16 columns"
            return Reason(ReasonCode.CONFIG, "epilogue_subtile", detail)
        return self._descriptors(plan) or super()._config(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`. Blocks of C lie next to the operand tiles.

        One is what a descriptor stores. Another, in fp32 if a bias is added, changes its layout while the next tile's
        operands are loaded. That happens in a flattened loop, or in one whose length the compiler knows.
        """
        problem, config, variant = plan.problem, plan.config, plan.variant
        result = itemsize(problem.output_dtype)
        staged = result if variant.tma_store else 0
        # tcgen05's sums of tf32 products leave tensor memory by way of shared memory, whatever the loop is
        tf32 = (problem.dtype, problem.precision) == ("fp32", "tf32")
        if variant.flatten or variant.static or (tf32 and plan.target.capability("tcgen05").available):
            staged += 4 if problem.reads_bias else 0 if variant.tma_store else result
        block = config.block_m * config.block_n // variant.epilogue_subtile
        return int(super().shared_memory(plan) + block * staged + BARRIER_BYTES)

    def _descriptors(self, plan: Plan) -> Reason | None:
        """Returns the reason why memory does not meet the demands of an operand's descriptor, or of the output's if it
        is stored through one. Returns None if it does."""
        problem, config, variant = plan.problem, plan.config, plan.variant
        described = [problem.operand("a"), problem.operand("b")] if problem.has_product else []
        for operand in described:
            if operand.numel and (reason := undescribable(operand)):
                return reason
        if variant.tma_store and (reason := unstorable(problem.output)):
            return reason
        inner = config.block_n // variant.epilogue_subtile * itemsize(problem.output_dtype)
        if variant.tma_store and inner < TMA_BYTES:
            detail = f"{config.id}: a stored block is {inner} bytes wide, {TMA_BYTES} are required: use fewer subtiles"
            return Reason(ReasonCode.BLOCK_BYTES, "out", detail)
        return None

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: descriptors are built by the host or by each program, as the variant says."""
        problem, variant = plan.problem, plan.variant
        a, b = problem.operand("a"), problem.operand("b")
        arguments = {
            **self._arguments(plan, tensors),
            **self._epilogue_arguments(plan, tensors),
            "A_ROW_MAJOR": row_major(a),
            "B_ROW_MAJOR": row_major(b),
            "HAS_PRODUCT": problem.has_product,
            "TMA_STORE": variant.tma_store,
            "EPILOGUE_SUBTILE": variant.epilogue_subtile,
            "FLATTEN": variant.flatten,
            "WARP_SPECIALIZE": False,
            "STORE_COUNTER": False,
        }
        if variant.descriptors == "host":
            function = gemm_persistent_host_descriptors
            arguments |= self._host_descriptors(plan, tensors)
        else:
            function = gemm_persistent_device_descriptors
            arguments |= {"a_ptr": tensors["a"], "b_ptr": tensors["b"], "lda": leading(a), "ldb": leading(b)}
        return Launch(function, plan.grid, arguments, plan.config.options)

    def _host_descriptors(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Descriptors of A, B and C; None for one that is not needed, or that would describe no memory."""
        problem, config = plan.problem, plan.config
        descriptors: dict[str, Any] = {"a_desc": None, "b_desc": None, "c_desc": None}
        if problem.has_product and 0 not in plan.grid:
            for name, block in (("a", (config.block_m, config.block_k)), ("b", (config.block_k, config.block_n))):
                descriptors[f"{name}_desc"] = host_descriptor(tensors[name], problem.operand(name), block)
        if plan.variant.tma_store and 0 not in plan.grid:
            block = (config.block_m, config.block_n // plan.variant.epilogue_subtile)
            descriptors["c_desc"] = host_descriptor(tensors["out"], problem.output, block)
        return descriptors

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: loads by TMA, and stores by TMA exactly where the variant says so."""
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
        return Features(frozenset(required), frozenset(forbidden))


def row_major(operand: Operand) -> bool:
    """True if the last dimension has unit stride; an operand with both strides 1 counts as row-major."""
    return operand.strides[-1] == 1


def leading(operand: Operand) -> int:
    """Stride in elements between rows of the operand, or of each matrix of a batch, as they lie in memory.

    With a single row it is never used, but a descriptor must still hold a valid one: the row's own length, rounded up.
    """
    outer = -2 if row_major(operand) else -1
    if operand.shape[outer] > 1:
        return operand.strides[outer]
    step = TMA_BYTES // itemsize(operand.dtype)
    return int(triton.cdiv(max(operand.strides[outer], 1), step)) * step


def matrices_apart(operand: Operand) -> int:
    """Stride in elements between the matrices of a batch. That of a single matrix may be anything, and a descriptor
    must still hold a valid one: the matrix's own size."""
    outer = -2 if row_major(operand) else -1
    return operand.strides[0] if operand.shape[0] > 1 else max(operand.shape[outer], 1) * leading(operand)


def undescribable(operand: Operand) -> Reason | None:
    """Returns the reason why a descriptor cannot cover ``operand``: unit inner stride, aligned base and pitch, sizes
    below 2**31."""
    size = itemsize(operand.dtype)
    if 1 not in operand.strides[-2:]:
        detail = f"{operand.name} has strides {operand.strides}: a descriptor needs unit stride in one dimension"
        return Reason(ReasonCode.LAYOUT, operand.name, detail)
    base = operand.offset * size % BASE_ALIGNMENT
    if base % TMA_BYTES:
        detail = (
            f"{operand.name} starts {base % TMA_BYTES} bytes past a {TMA_BYTES}-byte boundary: a descriptor needs its "
            f"base on one. Copy the operand or use a pointer kernel"
        )
        return Reason(ReasonCode.ALIGNMENT_BASE, operand.name, detail)
    apart = operand.strides[0] * size if len(operand.shape) == 3 and operand.shape[0] > 1 else 0
    pitch = leading(operand) * size
    if pitch % TMA_BYTES or apart % TMA_BYTES:
        what = f"rows of {operand.name} are {pitch}" if pitch % TMA_BYTES else f"matrices of {operand.name} are {apart}"
        detail = (
            f"{what} bytes apart: a descriptor needs a multiple of {TMA_BYTES}. "
            f"Pad the leading dimension or use a pointer kernel"
        )
        return Reason(ReasonCode.ALIGNMENT_PITCH, operand.name, detail)
    if max(operand.shape) >= INDEX_LIMIT or max(pitch, apart) >= PITCH_LIMIT:
        detail = (
            f"{operand.name} is {operand.shape} with a pitch of {max(pitch, apart)} bytes: sizes must be below 2**31, "
            "pitches 2**40"
        )
        return Reason(ReasonCode.EXTENT, operand.name, detail)
    return None


def unstorable(out: Operand) -> Reason | None:
    """Returns the reason why a descriptor cannot store to ``out``. It demands unit stride along N, rows of whole units
    of the copy engine, and what :func:`undescribable` says."""
    if out.strides[-1] != 1:
        detail = f"out has strides {out.strides}: a descriptor store needs unit stride along N"
        return Reason(ReasonCode.LAYOUT, "out", detail)
    if out.numel and (reason := undescribable(out)):
        return reason
    extent = out.shape[-1] * itemsize(out.dtype)
    if extent % TMA_BYTES:
        detail = (
            f"rows of out end after {extent} bytes: a descriptor store writes whole multiples of {TMA_BYTES} bytes "
            "and would overwrite what follows. Use the pointer store or pad N"
        )
        return Reason(ReasonCode.ALIGNMENT_EXTENT, "out", detail)
    return None


def begins_within_unit(problem: Any, operand: Operand, axes: str) -> Reason | None:
    """Returns the reason why no descriptor can read the groups of ``operand``, whose dimensions are ``axes``. If a box
    begins within 16 bytes along the unit stride, the copy engine raises an illegal instruction (measured on an H200).
    """
    axis = -1 if row_major(operand) else -2
    if axes[axis] != problem.ragged:
        return None
    width = operand.shape[axis] * itemsize(operand.dtype)
    for end, size in zip(itertools.accumulate(problem.sizes), problem.sizes, strict=True):
        begin = (end - size) * width // max(problem.extent(problem.ragged), 1)
        if size and begin % TMA_BYTES:
            detail = (
                f"a group of {operand.name} begins at {problem.ragged} = {end - size}, {begin} bytes into a row: a "
                f"descriptor reads from multiples of {TMA_BYTES} bytes. Pad the groups or load by pointers"
            )
            return Reason(ReasonCode.ALIGNMENT_BASE, operand.name, detail)
    return None


def host_descriptor(tensor: Tensor, operand: Operand, block: tuple[int, int]) -> Any:
    """Returns a descriptor, made by the host, of a matrix or a batch of them, with blocks of ``block`` rows and columns
    of a matrix. That of a column-major operand is of its transpose."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    order = (-2, -1) if row_major(operand) else (-1, -2)
    sides = [(operand.shape[dim], block[dim]) for dim in order]
    batch = [(operand.shape[0], matrices_apart(operand), 1)] if len(operand.shape) == 3 else []
    dims = [*batch, (sides[0][0], leading(operand), sides[0][1]), (sides[1][0], 1, sides[1][1])]
    shape, strides, blocks = (list(values) for values in zip(*dims, strict=True))
    return TensorDescriptor(tensor, shape, strides, blocks)


class PersistentTmaMm(PersistentTmaGemm):
    """mm, which takes every precision."""

    limits = dataclasses.replace(PersistentTmaGemm.limits, precisions=(*PRECISIONS, *SPLIT_PRECISIONS))
    zero_sign = "ieee"


KERNELS: tuple[PersistentTmaGemm, ...] = (
    PersistentTmaMm("mm_persistent_tma", "mm", "persistent_mm"),
    PersistentTmaGemm("addmm_persistent_tma", "addmm", "persistent_mm", weight=2),
    PersistentTmaGemm("scaled_mm_persistent_tma", "scaled_mm", "persistent_fp8"),
)
