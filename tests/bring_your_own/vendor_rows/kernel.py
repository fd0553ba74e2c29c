"""The kernel of scaled rows, with shape classes of its own."""

from __future__ import annotations

import os

import triton

from conformance import codegen_checks as codegen
from conformance.heuristics.configs import Config
from conformance.kernels.kernel import Features, Kernel, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import FMA, Contract
from conformance.records import Reason, ReasonCode
from vendor_rows.device import scale_rows
from vendor_rows.problem import ScaledRows

#: Set by the test that plants a fault: the kernel then leaves out the last columns.
SKIPPED_COLUMNS = int(os.environ.get("VENDOR_SKIPPED_COLUMNS", "0"))


SHAPES = {
    "one-row": "a single row of two blocks",
    "three-blocks": "three blocks of rows, the last with one row",
}


class ScaledRowsKernel(Kernel):
    name = "scaled_rows"
    family = "rows"
    operations = frozenset({"scaled_rows"})
    dtypes = ("fp32",)
    configs = (Config(16, 32, 16, 1, 4), Config(32, 16, 16, 1, 4))
    shapes = SHAPES
    usual_shape = "three-blocks"

    def dtype_names(self):
        return ["fp32"]  # nothing is multiplied in tf32

    def example(self, dtype, config, shape="three-blocks"):
        rows = {"one-row": 1, "three-blocks": 2 * config.block_m + 1}[shape]
        return ScaledRows(rows, config.block_n + 3, pad=5)

    def refusal(self, plan):
        if plan.problem.op != "scaled_rows":
            return Reason(ReasonCode.OPERATION, plan.problem.op, "scaled_rows scales rows and nothing else")
        return None

    def grid(self, plan):
        problem, config = plan.problem, plan.config
        return (triton.cdiv(problem.rows, config.block_m), triton.cdiv(problem.columns, config.block_n))

    def launch(self, plan, tensors):
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        arguments = {
            "x_ptr": tensors["x"],
            "scale_ptr": tensors["scale"],
            "out_ptr": tensors["out"],
            "rows": problem.rows,
            "columns": problem.columns,
            "stride_x": problem.operand("x").strides[0],
            "stride_out": problem.output.strides[0],
            "skipped": SKIPPED_COLUMNS,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
        }
        return Launch(scale_rows, plan.grid, arguments, config.options)

    def contract(self, plan, executor):
        return Contract("fp32", FMA)

    def features(self, plan):
        return Features(required=frozenset({codegen.POINTER_STORE}), forbidden=frozenset({codegen.TMA_STORE}))


SCALED_ROWS = ScaledRowsKernel()
