"""Attention forward of sequences whose keys and values lie in pages of a cache, in any order.

Triton's pipeline loads the number of a page and then the page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from conformance.families.attention.refusals import AttentionLimits
from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig, FlexConfig
from conformance.kernels.attention_packed import PackedForward
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch

#: Blocks of keys within one page of 64, and over several of 16; for few queries and for many.
CONFIGS: tuple[AnyConfig, ...] = (
    FlexConfig(16, 32, 2, 4),
    FlexConfig(64, 64, 2, 4),
    FlexConfig(32, 16, 3, 2),
)

#: Keys of a page, in an example and in what is timed.
PAGE, TIMED_PAGE = 16, 64


class PagedForward(PackedForward):
    """See :class:`PackedForward`. A program finds each key by the row of the page table that is its sequence's."""

    limits = AttentionLimits(packed=True, paged=True)
    family = "paged-attention"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Any:
        return dataclasses.replace(super().example(dtype, config, shape), page=PAGE)

    def timed(self, dtype: str) -> Any:
        return dataclasses.replace(super().timed(dtype), page=TIMED_PAGE)

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: also pages that are no power of two."""
        return dataclasses.replace(super().draw_problem(draw), page=draw.pick((1, 16, 24, 64)))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`. Pages are what a batch is to other kernels, and all sequences share them."""
        launch, problem = super().launch(plan, tensors), plan.problem
        table = problem.operand("page_table")
        own: dict[str, Any] = {f"{name}_ptr": tensors[name] for name in ("key_lengths", "page_table")}
        own |= {"stride_kb": 0, "stride_vb": 0, "stride_table": table.strides[0], "PAGE": problem.page}
        own |= {f"stride_{name}p": problem.operand(name).strides[0] for name in "kv"}
        return dataclasses.replace(launch, arguments={**launch.arguments, **own})


KERNELS = (PagedForward("attention_paged", None, CONFIGS),)
