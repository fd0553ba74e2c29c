"""bmm by tensor descriptors: of all matrices by the host, or made for each matrix by the device."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.families.draw import Draw
from conformance.kernels import carveout
from conformance.kernels.device.grouped_mm import gemm_grouped
from conformance.kernels.gemm import output_tiles
from conformance.kernels.grouped_mm import CONFIGS, batch_arguments
from conformance.kernels.kernel import Plan, Variant
from conformance.kernels.launch import Launch, dot_precision
from conformance.kernels.mm_descriptors import EveryTarget
from conformance.problems import FP8
from conformance.records import Reason, ReasonCode


class BatchedDescriptors(EveryTarget):
    """The loop of the grouped kernel over the tiles of all matrices. One matrix for the whole batch is described by the
    device alone, because no tensor map has a stride of 0."""

    zero_sign = "ieee"

    def _layout(self, plan: Plan) -> Reason | None:
        for name in "ab" if plan.variant.descriptors == "host" else "":
            if plan.problem.operand(name).strides[0] == 0:
                detail = f"{name} is one matrix for all: a descriptor of the host needs a stride from one to the next"
                return Reason(ReasonCode.LAYOUT, name, detail)
        return super()._layout(plan)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per SM, or per tile of all matrices if there are fewer."""
        return (min(carveout.available_sms(plan), output_tiles(plan) * plan.problem.batch),)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        arguments = self._arguments(plan, tensors) | batch_arguments(plan, tensors)
        arguments |= {"PRECISION": dot_precision(plan.problem), "PROMOTE": self.promotion(plan)}
        return Launch(gemm_grouped, plan.grid, arguments, plan.config.options)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: descriptors of both kinds, on few programs."""
        return Variant(draw.pick(("device", "host")), draw.chance(0.5), sms=draw.pick((None, 2, 3)))


KERNELS = (
    BatchedDescriptors("bmm_descriptors", "bmm", configs=CONFIGS),
    BatchedDescriptors("fp8_bmm_descriptors", "bmm", dtypes=FP8, configs=CONFIGS),
)
