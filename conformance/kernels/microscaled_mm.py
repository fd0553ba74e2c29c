"""Products of block-scaled operands (mxfp8, mxfp4, nvfp4) by ``tl.dot_scaled``, by pointer loads and stores."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.gemm.problem import mm
from conformance.families.microscaled.examples import EXAMPLES
from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.families.microscaled.refusals import MicroscaledLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.device.microscaled_mm import gemm_microscaled
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Kernel, Plan, Variant, check_tensors, lacking
from conformance.kernels.launch import GRID_LIMIT, Launch, size_arguments, spans_wide
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles for units of every size: tcgen05's scaled product takes 128 rows, mma.sync's and AMD's fewer.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(128, 128, 128, 2, 4),
    Config(128, 64, 128, 3, 4),
    Config(64, 128, 128, 2, 8),
    Config(32, 64, 64, 2, 4),
)


class MicroscaledMm(Kernel):
    """One tile of one matrix per program, operands of any strides."""

    problems = MicroscaledGemm
    weight = 1
    family = "microscaled"
    specialised = False
    #: whether each of its problems is a batch, and of how many matrices if it does not say
    batched = False
    matrices: int | None = None
    #: whether scales are loaded by descriptors
    described_scales = False
    operations = frozenset({"microscaled_mm"})
    dtypes = tuple(EXAMPLES)
    limits = MicroscaledLimits(variant=frozenset({"static"}), needs=("scaled-packing",))
    #: Triton 3.2 and 3.3 cannot say along which dimension codes are packed, see "scaled-packing" of targets.py
    offered = "lhs_k_pack" in inspect.signature(tl.dot_scaled).parameters
    configs = CONFIGS
    zero_sign = "ieee"

    def __init__(self, name: str) -> None:
        self.name = name
        self._converted = PointerGemm(name, "mm", dtypes=("bf16",), configs=CONFIGS)

    def problem(self, formats: tuple[str, str], M: int, N: int, K: int, **fields: Any) -> MicroscaledGemm:
        """Returns a product of A and B in these ``formats``; ``fields`` are those of
        :class:`~conformance.families.microscaled.problem.MicroscaledGemm`."""
        if fields.get("batch") is None:
            fields["batch"] = self.matrices
        return MicroscaledGemm(*formats, M, N, K, **fields)

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, Triton, variant, dtypes and blocks are checked in this order."""
        problem, config = plan.problem, plan.config
        if reason := self.foreign(plan) or self.lacking(plan) or self._variant(plan):
            return reason
        names = {form.codes for form in problem.formats} | {form.scale for form in problem.formats}
        if reason := lacking(plan, *sorted(names & {"e4m3", "e5m2", "bf16", "fp16"}), code=ReasonCode.DTYPE):
            return reason
        blocks = {form.block for form in problem.formats if form.scale is not None}
        if len(blocks) > 1:
            detail = f"{problem.a_format} and {problem.b_format} have scales for {sorted(blocks)} k: both must be alike"
            return Reason(ReasonCode.SCALE, "scale_b", detail)
        if config.block_k < 64 or min(config.block_m, config.block_n) < 32:
            detail = f"{config.id}: scaled products need BLOCK_M and BLOCK_N >= 32 and BLOCK_K >= 64"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        return self._batch(plan)

    def _batch(self, plan: Plan) -> Reason | None:
        """Returns the reason why the kernel does not take this number of matrices; None if it does."""
        batch = plan.problem.batch
        if (batch or 0) > GRID_LIMIT:
            detail = f"a batch of {batch} is more than the {GRID_LIMIT} programs of a grid's second dimension"
            return Reason(ReasonCode.EXTENT, "batch", detail)
        return None

    def _variant(self, plan: Plan) -> Reason | None:
        """Returns the reason why the kernel does not work as the plan's variant says; None if it does."""
        return self.other_variant(plan)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per tile, and per matrix of a batch."""
        problem, config = plan.problem, plan.config
        tiles = triton.cdiv(problem.M, config.block_m) * triton.cdiv(problem.N, config.block_n)
        return (tiles,) if problem.batch is None else (tiles, problem.batch)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: sizes as constants, or not."""
        return Variant(static=draw.chance(0.5))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        check_tensors(self.name, problem, tensors)
        arguments = {
            **pointed_arguments(plan, tensors),
            "EVEN_K": plan.variant.static and problem.K % plan.config.block_k == 0,
        }
        return Launch(gemm_microscaled, plan.grid, arguments, plan.config.options)

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`. A unit that takes scales holds codes times scales exactly, and so does bf16, to which
        Triton converts elsewhere. How a unit with scales sums has not been measured."""
        problem, unit = plan.problem, plan.target.matrix_unit
        if executor == ExecutorName.INTERPRETER:
            return Contract(problem.out_dtype, FMA, zero_sign=self.declared_zero_sign)
        scaled = self.multiplies_scaled(plan)
        accumulator = Accumulator(
            alignment_bits=unit.alignment_bits, chunk=unit.products[1 if scaled else 2], assumed=unit.assumed or scaled
        )
        return Contract(problem.out_dtype, accumulator, flushes_subnormals=plan.target.vendor == "amd")

    def multiplies_scaled(self, plan: Plan) -> bool:
        """True if the target's matrix unit takes the plan's operands with their scales, so that none is converted.

        tcgen05 and the units of gfx950 and gfx1250 take every pair of scaled formats. gfx950 takes no scales of e4m3,
        tcgen05 takes these with contiguous k only. sm_120 takes pairs of one width with contiguous k.
        """
        problem, target = plan.problem, plan.target
        formats = problem.formats
        if None in (formats[0].scale, formats[1].scale):
            return False
        if target.vendor == "amd":
            return bool(target.arch == "gfx1250" or (target.arch == "gfx950" and formats[0].scale == "uint8"))
        along_k = (problem.packed_a, problem.packed_b) == ("k", "k")
        if target.capability("tcgen05").available:
            return bool(plan.config.block_m >= 128 and (along_k or formats[0].scale == "uint8"))
        return bool(target.arch == 120 and formats[0].per_byte == formats[1].per_byte and along_k)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the product of bf16 operands to which Triton converts. If the unit has the
        product with scales, that replaces the matrix instruction."""
        problem, config = plan.problem, plan.config
        product = mm(problem.M, problem.N, problem.K, "bf16", out_dtype=problem.out_dtype)
        if problem.formats[0].scale is None:  # Triton multiplies the transposed operands, so that A has the scales
            config = dataclasses.replace(config, block_m=config.block_n, block_n=config.block_m)
        single = dataclasses.replace(plan, problem=product, config=config, variant=Variant())
        features = self._converted.features(single)
        if not problem.has_product or not self.multiplies_scaled(plan):
            return features
        own = {codegen.POINTER_LOAD, codegen.POINTER_STORE, codegen.SCALED_MMA}
        return dataclasses.replace(features, required=frozenset(own))


def code_arguments(name: str, tensor: Tensor, strides: tuple[int, ...], axes: str) -> dict[str, Any]:
    """Returns a tensor, and its strides with that of the batch, 0 without one, as ``stride_az``, ``stride_am``, ..."""
    batch = strides[0] if len(strides) == 3 else 0
    steps = zip(("z", *axes), (batch, *strides[-2:]), strict=True)
    return {f"{name}_ptr": tensor, **{f"stride_{name}{axis}": stride for axis, stride in steps}}


def scale_arguments(problem: Any, name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns the scales of operand ``name`` and their strides, of swizzled ones those of tiles; None where it has
    none."""
    scale, axes = tensors.get(f"scale_{name}"), {"a": "mk", "b": "nk"}[name]
    if scale is None:
        return code_arguments(f"scale_{name}", scale, (0, 0), axes)  # type: ignore[arg-type]
    strides = problem.operand(f"scale_{name}").strides
    return code_arguments(f"scale_{name}", scale, strides[:-3] if problem.swizzled else strides, axes)


def pointed_arguments(plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Returns all tensors with their strides, and :func:`tile_arguments`: what kernels without descriptors share."""
    problem = plan.problem
    return {
        **code_arguments("a", tensors["a"], problem.operand("a").strides, "mk"),
        **code_arguments("b", tensors["b"], problem.operand("b").strides, "kn"),
        **code_arguments("c", tensors["out"], problem.output.strides, "mn"),
        **scale_arguments(problem, "a", tensors),
        **scale_arguments(problem, "b", tensors),
        **tile_arguments(problem, plan.config, plan.variant.static),
    }


def tile_arguments(problem: Any, config: Config, static: bool = False) -> dict[str, Any]:
    """Sizes, formats, packing and blocks: the arguments that every kernel of block-scaled products has. The sizes are
    constants if ``static``."""
    form_a, form_b = problem.formats
    return {
        **size_arguments({"M": problem.M, "N": problem.N, "K": problem.K}, static),
        "A_CODES": form_a.codes,
        "B_CODES": form_b.codes,
        "A_ALONG_M": form_a.per_byte if problem.packed_a == "m" else 1,
        "A_ALONG_K": form_a.per_byte if problem.packed_a == "k" else 1,
        "B_ALONG_K": form_b.per_byte if problem.packed_b == "k" else 1,
        "B_ALONG_N": form_b.per_byte if problem.packed_b == "n" else 1,
        "SCALED_A": form_a.scale is not None,
        "SCALED_B": form_b.scale is not None,
        "SCALE_BLOCK_A": form_a.block,
        "SCALE_BLOCK_B": form_b.block,
        "SWIZZLED": problem.swizzled,
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "BLOCK_K": config.block_k,
        "GROUP_M": config.group_m,
        "WIDE_INDEX": spans_wide(problem),
    }


KERNELS: tuple[MicroscaledMm, ...] = (MicroscaledMm("microscaled_mm"),)
