"""Small programs for the tests of generated code; the child processes import their functions by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from conformance.execution.compile.compilation import CompileResult, Task
from conformance.inductor.compile.program import Generated, Program
from conformance.problems import Operand
from conformance.records import Status
from conformance.targets import Target, find

SM90 = find("sm_90")


def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def mm_relu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(a @ b)


def broken(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b.reshape(7, 7)


def scaled(a: torch.Tensor, b: torch.Tensor, *, factor: float) -> torch.Tensor:
    return a * factor + b


#: Only Triton's templates, with TMA where the hardware has it.
TMA = {
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "triton.enable_persistent_tma_matmul": True,
}


def operand(name: str, rows: int, columns: int, dtype: str = "fp16", pad: int = 0, offset: int = 0) -> Operand:
    return Operand(name, (rows, columns), (columns + pad, 1), dtype, offset)


def product(m: int = 256, n: int = 128, k: int = 192, graph: str = "mm", **fields: Any) -> Program:
    """``graph`` of an M x K and a K x N matrix, with templates that use TMA."""
    program = Program(
        f"{__name__}:{graph}", (operand("a", m, k), operand("b", k, n)), settings=tuple(TMA.items()), templates="mm"
    )
    return dataclasses.replace(program, **fields)


def submit(program: Program, target: Target) -> CompileResult:
    """Returns the answer of a process of the compile pool about generating ``program``'s code for ``target``."""
    from tests.execution.sample_kernels import pool

    result: CompileResult = pool().submit(task("generate", program, target)).result()
    return result


def generated(program: Program, target: Target = SM90) -> Generated:
    result = submit(program, target)
    assert result.status is Status.PASS, result.error
    assert isinstance(result.value, Generated)
    return result.value


def task(
    function: str, payload: Any, target: Target, module: str = "conformance.inductor.compile.deviceless_worker"
) -> Task:
    """A call of ``function`` of ``module`` in a process of the compile pool."""
    return Task(f"{module}:{function}", payload, target)
