"""mm by pointers with persistent programs: each loops over tiles, as many as there are SMs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from torch import Tensor

from conformance.families.draw import Draw
from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, Config, TemplateConfig
from conformance.kernels.device.pointer import gemm_persistent_pointers
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch, dot_precision
from conformance.problems import itemsize
from conformance.records import Reason

#: Tiles of large and of small matrix instructions, loops with and without a pipeline, nested and flattened into one.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(16, 32, 64, 1, 2),
    TemplateConfig(64, 64, 32, 3, 8),
)


class PersistentPointerGemm(PointerGemm):
    """The pointer kernel in a loop over tiles, with strides of any kind, on min(SMs - carveout, tiles) programs.
    ``Variant.flatten`` makes one loop of those over tiles and over K."""

    limits = GemmLimits(needs=("flat-loop",))
    weight = 1
    persistent = True
    zero_sign = "ieee"

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`. The kernel names ``flatten`` where it is false, too."""
        return self.lacking(plan) or super().refusal(plan)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: any number of programs, sizes and loops of both kinds."""
        variant = super().draw_variant(draw)
        return dataclasses.replace(variant, flatten=draw.chance(0.5), static=draw.chance(0.5))

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`. In one loop, loads of the next tile begin before a tile is stored. So the tile of C
        changes its layout while the operands are there."""
        config, operands = plan.config, super().shared_memory(plan)
        if not plan.variant.flatten:
            return operands
        return int(operands + config.block_m * config.block_n * itemsize(plan.problem.output_dtype))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        more = {"PRECISION": dot_precision(plan.problem), "FLATTEN": plan.variant.flatten}
        return self._launch(gemm_persistent_pointers, plan, tensors, **more)


KERNELS = (PersistentPointerGemm("mm_persistent", "mm", configs=CONFIGS),)
