"""Gather and scatter of rows, sorted rows, and dropout: each program has a block of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.rows import dropout, indexing, ordering
from conformance.heuristics.configs import AnyConfig, RowConfig
from conformance.kernels.device import indexing as device
from conformance.kernels.device.dropout import dropout_rows
from conformance.kernels.device.ordering import order_rows
from conformance.kernels.families.rows import PlainRowKernel
from conformance.kernels.kernel import Features, Plan
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Contract
from conformance.records import ExecutorName

#: One row and several, one warp and several, a few columns and many.
CONFIGS: tuple[AnyConfig, ...] = (
    RowConfig(4, 32, 1, 1),
    RowConfig(1, 256, 2, 4),
    RowConfig(16, 64, 3, 4),
)


class ScatterAdd(PlainRowKernel):
    """Atomic additions in any order, after a launch that zeroes all entries."""

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`. On a device programs add in any order, and ``atom.add.f32`` takes subnormals for 0."""
        contract = dataclasses.replace(super().contract(plan, executor), stores_once=False)
        if executor == ExecutorName.INTERPRETER:
            return contract
        return dataclasses.replace(contract, deterministic=False, flushes_subnormals=True)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the launch before the main one zeroes the output."""
        main = super().launch(plan, tensors)
        entries = plan.problem.output.shape[0]
        arguments = {name: main.arguments[name] for name in device.zero_rows.arg_names if name != "entries"}
        grid = (triton.cdiv(entries, plan.config.block_m),)
        before = Launch(device.zero_rows, grid, {**arguments, "entries": entries}, plan.config.options)
        return dataclasses.replace(main, before=(before,))

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: the main launch adds atomically and stores nothing."""
        features = super().features(plan)
        required = features.required - {codegen.POINTER_STORE} | {codegen.ATOMIC_ADD}
        return Features(required, features.forbidden | {codegen.POINTER_STORE})


KERNELS = (
    PlainRowKernel(indexing.GATHER, device.gather_rows, CONFIGS),
    ScatterAdd(indexing.SCATTER_ADD, device.scatter_add_rows, CONFIGS),
    PlainRowKernel(ordering.SORT, order_rows, CONFIGS, PLACES=0, DESCENDING=False),
    PlainRowKernel(ordering.TOP_K, order_rows, CONFIGS, PLACES=ordering.K, DESCENDING=True),
    PlainRowKernel(dropout.DROPOUT, dropout_rows, CONFIGS),
)
