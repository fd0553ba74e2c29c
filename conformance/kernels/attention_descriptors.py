"""Attention forward by tensor descriptors, whose loops over keys may give warps different work.

A descriptor lies over the rows of one batch and head. Targets without a TMA rewrite it to pointers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.attention.refusals import AttentionLimits
from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig, SpecialisedFlexConfig
from conformance.kernels.attention import Forward
from conformance.kernels.kernel import Features, Plan, Variant, lacking
from conformance.kernels.launch import Launch
from conformance.kernels.mm_specialised import loop_refusal
from conformance.kernels.persistent_tma import BARRIER_BYTES, TMA_BYTES, leading, undescribable
from conformance.problems import Operand, itemsize
from conformance.records import Reason, ReasonCode

#: One loop and several, specialised and not; tiles of large and of small matrix instructions. On Hopper only one loop
#: of four warps is ever specialised.
CONFIGS: tuple[AnyConfig, ...] = (
    SpecialisedFlexConfig(64, 32, 2, 4, merged=True),
    SpecialisedFlexConfig(32, 32, 2, 4, specialised=False),
    SpecialisedFlexConfig(64, 64, 3, 4),
    SpecialisedFlexConfig(128, 64, 2, 4, merged=True),
    SpecialisedFlexConfig(128, 64, 2, 8),
)


class DescribedForward(Forward):
    """q, k and v by descriptors, and the output too if the variant says so; see :class:`Forward`."""

    limits = AttentionLimits(
        variant=frozenset({"tma_store", "sms", "splits"}), described=("q", "k", "v"), needs=("tensor-descriptor",)
    )

    #: tensors that descriptors load, and that one stores if the variant says so
    described = ("q", "k", "v", "out")

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. What the target lacks comes before what is wrong with the problem."""
        if self.foreign(plan) is None:
            specialised = ("warp-specialization",) if _specialised(plan) else ()
            if reason := lacking(plan, *self.limits.needs, *specialised):
                return reason
        return super().refusal(plan) or self._precision(plan)

    @property
    def drawn_configs(self) -> tuple[AnyConfig, ...]:
        """See :class:`Kernel`: those without a specialised loop. The id of a random case does not say which loop it is,
        and an expected failure of one form could not name it."""
        return tuple(config for config in self.configs if not getattr(config, "specialised", False))

    def draw_variant(self, draw: Draw) -> Variant:
        return Variant(tma_store=draw.chance(0.5))

    def _shape(self, plan: Plan) -> Reason | None:
        problem, stored = plan.problem, plan.variant.tma_store
        operands = [problem.operand(name) for name in self.described[: 4 if stored else 3]]
        reasons = (reason for operand in operands for reason in _undescribable(operand))
        if (reason := next(reasons, None)) is not None:
            return reason
        extent = problem.values_dim * itemsize(problem.output_dtype)
        if stored and extent % TMA_BYTES:
            detail = (
                f"rows of out end after {extent} bytes: a descriptor store writes whole multiples of {TMA_BYTES} bytes "
                "and would overwrite what follows. Use the pointer store or pad value_dim"
            )
            return Reason(ReasonCode.ALIGNMENT_EXTENT, "out", detail)
        return None

    def _precision(self, plan: Plan) -> Reason | None:
        if _specialised(plan) and (plan.problem.dtype, plan.problem.precision) == ("fp32", "ieee"):
            detail = f"precision is ieee: the loops of {plan.config.id} feed a matrix unit. Use tf32"
            return Reason(ReasonCode.PRECISION, "ieee", detail)
        return None

    def _config(self, plan: Plan) -> Reason | None:
        config = plan.config
        if _specialised(plan) and (reason := loop_refusal(config)):
            return reason
        if plan.problem.block and config.merged:
            detail = f"{config.id}: one loop walks through a range of keys, and the problem has lists of blocks"
            return Reason(ReasonCode.CONFIG, "block", detail)
        return super()._config(plan)

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`AttentionKernel`: and barriers."""
        return super().shared_memory(plan) + BARRIER_BYTES

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        launch, problem = super().launch(plan, tensors), plan.problem
        pitches = {
            f"stride_{short}{row}": leading(_rows(problem.operand(name)))
            for name, short, row in (("q", "q", "m"), ("k", "k", "n"), ("v", "v", "n"), ("out", "o", "m"))
        }
        own = {"DESCRIBED": True, "STORED": plan.variant.tma_store, "SPECIALISED": _specialised(plan)}
        own["MERGED"] = getattr(plan.config, "merged", False)
        pitches = pitches if plan.variant.tma_store else {**pitches, "stride_om": problem.output.strides[2]}
        return dataclasses.replace(launch, arguments={**launch.arguments, **pitches, **own})

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: loads, and the store, as asked; where the target moves no tiles, by pointers."""
        features, problem, target = super().features(plan), plan.problem, plan.target
        if not (target.capability("tma").available or target.capability("tdm").available):
            return Features(features.required, features.forbidden | {codegen.TENSOR_DESCRIPTOR})
        loads = {codegen.TMA_LOAD, codegen.TENSOR_DESCRIPTOR}
        required, forbidden = features.required - {codegen.POINTER_LOAD} | loads, features.forbidden - loads
        if plan.variant.tma_store:
            required, forbidden = required | {codegen.TMA_STORE}, forbidden - {codegen.TMA_STORE}
        by_pointers = (
            problem.block or problem.scaled or problem.score.kind == "alibi" or problem.mask.kind == "document"
        )
        if not by_pointers:
            forbidden |= {codegen.POINTER_LOAD}
        # Triton takes an argument of 1 for a constant, and one key leaves no loop.
        if _specialised(plan) and problem.keys > 1:
            required |= {codegen.WARP_SPECIALIZED}
        return Features(required, forbidden)


def _specialised(plan: Plan) -> bool:
    return bool(plan.config.specialised)


def _rows(operand: Operand) -> Operand:
    """Returns the rows of one batch and head, which one descriptor lies over."""
    return dataclasses.replace(operand, shape=operand.shape[2:], strides=operand.strides[2:])


def _undescribable(operand: Operand) -> Iterator[Reason]:
    """Returns the reason why descriptors cannot lie over the rows of each batch and head of ``operand``."""
    if operand.strides[-1] != 1:
        detail = f"{operand.name} has strides {operand.strides}: a descriptor needs unit stride along its rows"
        yield Reason(ReasonCode.LAYOUT, operand.name, detail)
    if reason := undescribable(_rows(operand)):
        yield reason
    for extent, stride in zip(operand.shape[:2], operand.strides[:2], strict=True):
        apart = stride * itemsize(operand.dtype)
        if extent > 1 and apart % TMA_BYTES:
            detail = f"matrices of {operand.name} are {apart} bytes apart: a descriptor needs a multiple of {TMA_BYTES}"
            yield Reason(ReasonCode.ALIGNMENT_PITCH, operand.name, detail)


KERNELS = (DescribedForward("attention_descriptors", None, CONFIGS),)
