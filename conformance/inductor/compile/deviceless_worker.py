"""Generates code with ``torch.compile`` for a target without a device, and cross-compiles every Triton kernel of it.

Meant for a compile process (:mod:`conformance.execution.compile.compilation`): it overrides what torch says of the
device for a while, and must not run where ``TRITON_INTERPRET`` is set.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from conformance.execution.compile.compilation import Artefact
from conformance.execution.compile.compile_worker import artefact_of, named
from conformance.inductor.compile import observation
from conformance.inductor.compile.deviceless import DevicelessUnsupported, GeneratedOnly, deviceless
from conformance.inductor.compile.program import Failure, Generated, GeneratedKernel, Invocation, Program
from conformance.inductor.source.source_checks import function_of, kernels_of, kind_of
from conformance.problems import DTYPES, Operand
from conformance.targets import Target

#: What cannot be done without a device; an option that the installed torch does not have is left out.
FIXED: Mapping[str, Any] = {
    **observation.ALWAYS,
    "force_disable_caches": True,
    "shape_padding": False,  # it measures
    "benchmark_epilogue_fusion": False,  # it measures; the later name is next
    "benchmark_template_fusion": False,
}


def generate(program: Program, target: Target) -> Generated:
    """Runs ``torch.compile`` of ``program`` for ``target`` and returns the results, with every Triton kernel compiled
    to a binary.

    Of several choices that the program's filter leaves, the first is taken, for nothing is measured. Of a kernel with
    several configs, such as a pointwise one, the first is compiled; ``counters["configs_not_compiled"]`` counts the
    others. What ``torch.compile`` raises is the result's ``failure``. Raises ValueError for a setting, operand or
    target that cannot be, and DevicelessUnsupported where the installed torch needs a device. RuntimeError is raised if
    Triton interprets kernels in this process.
    """
    from torch._inductor.utils import clear_caches

    options = observation.settings(program, FIXED)
    with deviceless(target), observation.compiling(program, options) as log:
        try:
            failure = compile_all(program, log, "cuda:0")
            counters = observation.counted(log)
        finally:
            torch._dynamo.reset()
        clear_caches()  # a module that was loaded before would hold kernels that are compiled already
        kernels = tuple(
            _kernel(name, source, target, counters)
            for module in log.modules
            for name, source in kernels_of(module).items()
        )
    return log.generated(kernels, failure, counters)


# --- compiling --------------------------------------------------------------------------------------------------------


def compile_all(program: Program, log: observation.CompilationLog, device: str) -> Failure | None:
    """Calls the compiled function with every set of operands on ``device``, until one fails."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    function = named(program.graph)
    compiled = torch.compile(function, dynamic=program.dynamic)
    mode = FakeTensorMode()
    for operands in (program.operands, *program.calls):
        with mode:
            tensors = [_tensor(operand, device) for operand in operands]
        observation.mark(program, tensors)
        try:
            compiled(*tensors, **dict(program.arguments))
        except GeneratedOnly as ready:
            log.invocations.append(_invocation(ready, log, tensors))
        except DevicelessUnsupported:
            raise
        except Exception as error:
            return observation.failure_of(error)
        if not log.first:
            log.first = observation.graphs()
    return None


def _tensor(operand: Operand, device: str) -> torch.Tensor:
    """Returns a fake tensor for ``operand``."""
    dtype = DTYPES[operand.dtype]
    if not operand.offset:  # no view: the base of a view would be guarded too
        return torch.empty_strided(operand.shape, operand.strides, dtype=dtype, device=device)
    storage = torch.empty(operand.offset + operand.span, dtype=dtype, device=device)
    return storage.as_strided(operand.shape, operand.strides, operand.offset)


def _invocation(ready: GeneratedOnly, log: observation.CompilationLog, tensors: list[torch.Tensor]) -> Invocation:
    """The module that would have run, and the operands that are its inputs."""
    inputs: list[tuple[str, int]] = []
    for value in ready.inputs:
        number = next((number for number, tensor in enumerate(tensors) if tensor is value), None)
        if number is not None:
            inputs.append(("operand", number))
        elif isinstance(value, (int, torch.SymInt)):
            inputs.append(("size", int(value)))
        else:
            raise AssertionError(f"an input of the generated module is {type(value).__name__}, and no operand")
    return Invocation(log.modules.index(ready.source), tuple(inputs))


# --- kernels ----------------------------------------------------------------------------------------------------------


def _kernel(name: str, source: str, target: Target, counters: dict[str, int]) -> GeneratedKernel:
    """Returns the kernel compiled for ``target`` with the metadata that Inductor gives it."""
    kind = kind_of(source)
    try:
        artefact, others = _cross_compile(source, target)
    except Exception as error:  # whatever the compiler raises is this kernel's result
        return GeneratedKernel(name, kind, source, error=str(observation.failure_of(error)))
    counters["configs_not_compiled"] = counters.get("configs_not_compiled", 0) + others
    return GeneratedKernel(name, kind, source, artefact)


def _cross_compile(source: str, target: Target) -> tuple[Artefact, int]:
    """Returns the artefact of the kernel's first config, and the number of its other configs."""
    from torch._inductor.codecache import PyCodeCache

    before = time.time()
    kernel = getattr(PyCodeCache.load(source), function_of(source))
    others = len(kernel.configs) - 1
    kernel.configs = kernel.configs[:1]
    kernel.precompile(warm_cache_only=True)
    compiled = kernel.compile_results[0].kernel
    architecture = (target.backend, target.arch)
    if (compiled.metadata.target.backend, compiled.metadata.target.arch) != architecture:
        raise AssertionError(f"compiled for {compiled.metadata.target}, asked for {target.id}")
    return artefact_of(compiled, target, compiled.hash, before), others
