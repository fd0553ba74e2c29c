"""mm by tensor descriptors where the target has no TMA: by AMD's tensor data mover, or rewritten to pointers. And what
kernels share that use descriptors on every target."""

from __future__ import annotations

import dataclasses

from conformance import codegen_checks as codegen
from conformance.families.gemm.refusals import DESCRIBED_VARIANT
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.kernel import Features, Plan
from conformance.kernels.persistent_tma import PersistentTmaGemm
from conformance.records import Reason, ReasonCode

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(32, 32, 64, 1, 2),
    Config(128, 64, 32, 3, 8),
    Config(64, 32, 64, 2, 4, group_m=1),
)


class DescriptorGemm(PersistentTmaGemm):
    """The code of the persistent TMA kernel on targets without TMA; that of a kernel for all targets, without
    :attr:`without_tma`."""

    limits = dataclasses.replace(PersistentTmaGemm.limits, needs=(), avoids=("tma",))
    family = "loads"
    weight = 1
    #: whether it leaves targets with TMA to other kernels
    without_tma = True
    zero_sign = "ieee"

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. That the target has a TMA comes first."""
        if self.without_tma and plan.target.capability("tma").available:
            detail = f"{plan.target.id} has a TMA: mm_persistent_tma is the same code for it"
            return Reason(ReasonCode.CAPABILITY, "tma", detail)
        return super().refusal(plan)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`. Where the target moves no tiles, no descriptor is left and pointers load and store."""
        if any(plan.target.capability(unit).available for unit in ("tma", "tdm")):
            return super().features(plan)
        required = {codegen.POINTER_STORE} | ({codegen.POINTER_LOAD} if plan.problem.has_product else set())
        if unit := self._matrix_unit(plan):
            required.add(unit)
        forbidden = {codegen.TENSOR_DESCRIPTOR, codegen.TMA_LOAD, codegen.TMA_STORE}
        return Features(frozenset(required), frozenset(forbidden))


class EveryTarget(DescriptorGemm):
    """A product by descriptors, whatever moves the tiles: sizes at run time, nested loops and whole tiles."""

    limits = dataclasses.replace(
        PersistentTmaGemm.limits, needs=(), variant=DESCRIBED_VARIANT - {"static", "flatten", "epilogue_subtile"}
    )
    without_tma = False
    zero_sign = "ieee"

    def _config(self, plan: Plan) -> Reason | None:
        variant = plan.variant
        if variant.static or variant.flatten or variant.epilogue_subtile != 1:
            detail = f"{self.name} takes its sizes at run time and stores whole tiles, '{variant.id}' was asked for"
            return Reason(ReasonCode.CONFIG, "variant", detail)
        return super()._config(plan)


KERNELS = (DescriptorGemm("mm_descriptors", "mm", configs=CONFIGS),)
