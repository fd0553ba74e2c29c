"""mm whose programs multiply equal shares of the blocks of K of all tiles (stream-K), with pointer loads and stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
import triton
from torch import Tensor

from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels import carveout
from conformance.kernels.device.split_k import gemm_stream_k
from conformance.kernels.gemm import PointerGemm, output_tiles
from conformance.kernels.kernel import Plan, Variant, check_tensors
from conformance.kernels.launch import Launch, dot_precision, workspace

#: Tiles of large and of small matrix instructions, loops with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(64, 64, 32, 2, 4, group_m=4),
    Config(16, 32, 64, 1, 2),
    Config(32, 16, 32, 3, 4, group_m=2),
    Config(128, 64, 32, 3, 8),
)


class StreamKGemm(PointerGemm):
    """The pointer kernel on min(SMs - carveout, blocks of K) programs, of which several may share a tile. The parts of
    a tile are added in the order of k, so that equal inputs on as many programs give equal bits."""

    weight = 1
    family = "split-k"
    persistent = True
    #: whether programs share the blocks of K of all tiles, so that there may be more of them than tiles
    shares_k = True
    banded_tiles = False
    zero_sign = "ieee"

    def example_variant(self) -> Variant:
        """See :class:`Kernel`: three programs, which share tiles of most examples."""
        return dataclasses.replace(self.usual_variant, sms=3)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: fewer programs than tiles, or more."""
        return Variant(static=draw.chance(0.5), sms=draw.pick((1, 2, 3, 5, 8, 13)))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: one program per SM, or per block of K if there are fewer of all tiles."""
        depth = max(triton.cdiv(plan.problem.K, plan.config.block_k), 1)
        return (min(carveout.available_sms(plan), output_tiles(plan) * depth),)

    def order(self, plan: Plan) -> None:
        """See :class:`Kernel`: which blocks are summed together depends on the number of programs and on the tile."""
        return

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`GemmKernel`: the staged tiles, or one of fp32 sums, whose layout changes while they are there."""
        return int(max(super().shared_memory(plan), 4 * plan.config.block_m * plan.config.block_n))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the workspace has one tile of fp32 and one flag for each program."""
        check_tensors(self.name, plan.problem, tensors)
        config, programs, like = plan.config, plan.grid[0], tensors["out"]
        more = {
            "parts_ptr": workspace((programs, config.block_m, config.block_n), torch.float32, like),
            "ready_ptr": workspace((programs,), torch.int32, like),
            "PRECISION": dot_precision(plan.problem),
        }
        return self._launch(gemm_stream_k, plan, tensors, **more)


KERNELS = (StreamKGemm("mm_stream_k", "mm", configs=CONFIGS),)
