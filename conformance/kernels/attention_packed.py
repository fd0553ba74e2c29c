"""Attention forward of sequences of any lengths that lie one behind the other, or whose keys and values lie in pages.

Pages of a cache lie in any order. Triton's pipeline loads the number of a page and then the page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance.families.attention.problem import Mask, Score
from conformance.families.attention.refusals import AttentionLimits
from conformance.families.draw import Draw
from conformance.heuristics.configs import AnyConfig, FlexConfig
from conformance.kernels.attention import Forward
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch

#: Tiles of large and of small matrix instructions, with and without a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    FlexConfig(64, 32, 2, 4),
    FlexConfig(32, 32, 3, 4),
    FlexConfig(16, 64, 1, 4),
    FlexConfig(128, 64, 2, 8),
)

#: Blocks of keys within one page of 64, and over several of 16; for few queries and for many.
PAGED_CONFIGS: tuple[AnyConfig, ...] = (
    FlexConfig(16, 32, 2, 4),
    FlexConfig(64, 64, 2, 4),
    FlexConfig(32, 16, 3, 2),
)

#: Keys of a page, in an example and in what is timed.
PAGE, TIMED_PAGE = 16, 64

#: Sequences of an example.
SEQUENCES = 4


class PackedForward(Forward):
    """One block of queries of one sequence and head per program; see :class:`Forward`. The host knows no lengths: each
    sequence may have all queries, and a program behind the last query of its own does nothing."""

    limits = AttentionLimits(packed=True)
    family = "packed-attention"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Any:
        """See :class:`Kernel`: the usual number of sequences."""
        problem = super().example(dtype, config, shape)
        return dataclasses.replace(problem, mask=_mask(problem.mask.kind == "causal", SEQUENCES))

    def timed(self, dtype: str) -> Any:
        problem = super().timed(dtype)
        queries, keys = problem.batch * problem.queries, problem.batch * problem.keys
        return dataclasses.replace(problem, batch=1, queries=queries, keys=keys, mask=_mask(True, problem.batch))

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: any number of sequences, also one and more than queries."""
        problem = super().draw_problem(draw)
        score = Score() if problem.score.kind == "alibi" else problem.score
        mask = _mask(draw.chance(0.5), draw.pick((1, 2, 4, 9)))
        return dataclasses.replace(problem, batch=1, kv_batch=None, mask=mask, score=score)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (blocks of queries, sequences, heads)."""
        problem = plan.problem
        return (triton.cdiv(problem.queries, plan.config.block_m), problem.mask.size, problem.heads)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`. A sequence begins rows behind the first, where the base has a batch."""
        launch, problem = super().launch(plan, tensors), plan.problem
        rows = {"stride_qb": "stride_qm", "stride_kb": "stride_kn", "stride_vb": "stride_vn", "stride_ob": "stride_om"}
        own = {name: launch.arguments[row] for name, row in rows.items()}
        own |= {f"{name}_ptr": tensors.get(name) for name in ("query_starts", "key_starts")}
        own |= {"PACKED": True, "MASK": "causal" if problem.mask.kind == "packed-causal" else "full", "window": 0}
        return dataclasses.replace(launch, arguments={**launch.arguments, **own})


def _mask(causal: bool, sequences: int) -> Mask:
    return Mask("packed-causal" if causal else "packed", sequences)


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


KERNELS = (PackedForward("attention_packed", None, CONFIGS), PagedForward("attention_paged", None, PAGED_CONFIGS))
