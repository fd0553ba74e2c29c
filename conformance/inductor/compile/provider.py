"""Compiles programs: on a real device, or without one in a process of the compile pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from conformance.execution.compile.compilation import CompilePools, CompileResult, Task
from conformance.inductor.compile.program import Generated, Launches, Program, Unsupported
from conformance.records import Status
from conformance.targets import Target

#: What a process that generates code imports; it takes seconds.
PRELOADED = ("torch._inductor.compile_fx", "torch._inductor.select_algorithm", "torch._inductor.lowering")


def preloaded_for(target: Target) -> tuple[str, ...]:
    """Returns the names of what a process imports and calls that generates code for ``target``. For AMD it is another
    process."""
    prepared = ("conformance.inductor.compile.rocm_registration:prepare",) if target.vendor == "amd" else ()
    return (*prepared, *PRELOADED)


@dataclass(frozen=True)
class CompiledProgram:
    """A program and its results. ``function`` is the compiled function where there is a device."""

    program: Program
    generated: Generated
    function: Callable[..., Any] | None = None

    def call(
        self, tensors: Sequence[Tensor], executor: Any, *, number: int = 0, observe: bool = True
    ) -> tuple[tuple[Tensor, ...], Launches]:
        """Returns the outputs over ``tensors``, and what was launched if that was observed. Without a device the module
        that was generated for call ``number`` of the program is replayed in the interpreter.

        Raises ``conformance.inductor.replay.replay.ReplayUnsupported`` for a module that the interpreter cannot run.
        """
        if self.function is not None:
            from conformance.inductor.compile.on_device import call

            operands = (self.program.operands, *self.program.calls)[number]
            return call(self.function, operands, tensors, observe=observe)
        from conformance.inductor.replay.replay import replay

        invocation = self.generated.invocations[number]
        arguments = [tensors[value] if kind == "operand" else value for kind, value in invocation.inputs]
        return replay(self.generated.modules[invocation.module], arguments, executor)


def compile_program(program: Program, target: Target, pool: CompilePools) -> CompiledProgram:
    """``program`` compiled for ``target``. Raises Unsupported where that cannot be, and CompileFailure if the process
    that compiled did not survive."""
    if target.is_device:
        from conformance.inductor.compile.on_device import compile_here

        return CompiledProgram(program, *compile_here(program, target))
    return _by(
        Task("conformance.inductor.compile.deviceless_worker:generate", program, target, preloaded_for(target)), pool
    )


def generate_for_xpu(program: Program, any_target: Target, pool: CompilePools) -> CompiledProgram:
    """``program`` generated for a GPU of Intel's and not compiled, see :mod:`~conformance.inductor.compile.xpu`. A task
    has a target, for which this one has no use. Raises as :func:`compile_program`."""
    return _by(Task("conformance.inductor.compile.xpu:generate", program, any_target, PRELOADED), pool)


def _by(task: Task, pool: CompilePools) -> CompiledProgram:
    result: CompileResult = pool.submit(task).result()
    if result.reason is not None:
        raise Unsupported(result.reason)
    if result.status is not Status.PASS:
        raise result.failure()
    return CompiledProgram(task.payload, result.value)
