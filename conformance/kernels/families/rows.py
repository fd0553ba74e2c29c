"""The base of the kernels of functions of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.draw import Draw
from conformance.families.examples import FLOATS
from conformance.families.limits import KernelLimits
from conformance.families.rows.problem import RowFunction, RowProblem
from conformance.families.rows.refusals import RowLimits
from conformance.kernels.kernel import Features, Kernel, Plan, Variant, check_tensors, lacking
from conformance.kernels.launch import Launch, size_arguments, spans_wide
from conformance.numerics.contract import FMA, Contract
from conformance.records import ExecutorName, Reason, ReasonCode


class RowFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.rows.problem.RowProblem`, all of one ``function``. A
    third-party kernel needs only this base and its ``launch``."""

    problems: type[Any] = RowProblem
    weight = 1
    family = "rows"
    dtypes = FLOATS
    limits: KernelLimits | None = None
    #: what it computes
    function: RowFunction

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: nothing is multiplied in tf32."""
        return list(self.dtypes)

    def problem(self, dtype: str, rows: int, columns: int, **fields: Any) -> RowProblem:
        """Returns a problem of the kernel's function; ``fields`` are those of the problem's class."""
        problem: RowProblem = self.problems(self.function, rows, columns, dtype, **fields)
        return problem

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, variant, dtype and blocks in this order."""
        if reason := self.foreign(plan) or self.other_variant(plan):
            return reason
        if reason := lacking(plan, *plan.problem.narrow_dtypes, code=ReasonCode.DTYPE):
            return reason
        if any(block < 1 or block & (block - 1) for block in plan.config.tile):
            detail = f"{plan.config.id}: blocks must be powers of two. Use such a config"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        least = self.limits.least_columns if isinstance(self.limits, RowLimits) else 1
        if plan.config.block_n < least:
            detail = f"{plan.config.id}: a block needs {least} columns at least. Use such a config"
            return Reason(ReasonCode.CONFIG, "block size", detail)
        return None

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: a program for each block of rows."""
        return (triton.cdiv(plan.problem.rows, plan.config.block_m),)

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: sizes as constants, or not."""
        return Variant(static=draw.chance(0.5))

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: fp32 arithmetic. Devices may flush subnormal results."""
        return Contract(plan.problem.output_dtype, FMA, flushes_subnormals=executor == "device")

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: pointer loads and stores, nothing of descriptors."""
        required = frozenset({codegen.POINTER_LOAD, codegen.POINTER_STORE})
        return Features(required, frozenset({codegen.TENSOR_DESCRIPTOR, codegen.TMA_LOAD, codegen.TMA_STORE}))

    def multiply_adds(self, problem: Any, config: Any) -> int:
        """See :class:`Kernel`: no product is unrolled."""
        return 0


class PlainRowKernel(RowFamily):
    """A kernel of this package: its device ``code`` takes all operands and outputs, sizes, eps, strides and
    ``constants``. The strides are those of the first operand, and of the first output if it is a matrix.

    ``after``: the code of a second launch, with a program for each block of columns, that takes the same.
    ``least_columns``: the fewest columns of a block.
    """

    def __init__(
        self,
        function: RowFunction,
        code: Any,
        configs: tuple[Any, ...],
        after: Any = None,
        *,
        least_columns: int = 1,
        **constants: Any,
    ) -> None:
        self.limits = RowLimits(least_columns=least_columns)
        self.name, self.function = function.name, function
        self.operations = frozenset({function.name})
        self.configs, self._code, self._after, self._constants = configs, code, after, constants

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        strides = {"x": problem.operands[0].strides, "o": problem.outputs[0].strides}
        matrices = {name: both for name, both in strides.items() if len(both) == 2}
        arguments = {
            **{f"{part.name}_ptr": tensors[part.name] for part in problem.tensors},
            **size_arguments({"rows": problem.rows, "columns": problem.columns}, plan.variant.static),
            "eps": problem.eps,
            **{
                f"stride_{name}{axis}": stride
                for name, both in matrices.items()
                for axis, stride in zip("mn", both, strict=True)
            },
            **self._constants,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "WIDE_INDEX": spans_wide(problem),
        }
        if self._after is None:
            return Launch(self._code, plan.grid, arguments, config.options)
        columns = (triton.cdiv(problem.columns, config.block_n),)
        after = Launch(self._after, columns, _of(self._after, arguments), config.options)
        return Launch(self._code, plan.grid, _of(self._code, arguments), config.options, after=(after,))


def _of(code: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that ``code`` takes."""
    return {name: arguments[name] for name in code.arg_names}
