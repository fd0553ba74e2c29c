"""``torch.compile`` on a real device: the compiled function, what was generated for it, and what it launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.utils.dlpack
from torch import Tensor

from conformance.execution.compile.compile_worker import artefact_of, named
from conformance.execution.device.executor import kernel_events
from conformance.inductor.compile import observation
from conformance.inductor.compile.program import Failure, Generated, GeneratedKernel, Launches, Program
from conformance.inductor.source.source_checks import kernels_of, kind_of
from conformance.problems import DTYPES, Operand, itemsize
from conformance.targets import Target


def compile_here(program: Program, target: Target) -> tuple[Generated, Callable[..., Any]]:
    """Compiles ``program`` on the device of ``target`` and returns the results, and the compiled function.

    The function is compiled when it runs: once on each set of the program's operands, which are zeros. What
    ``torch.compile`` or a run raises is the result's ``failure``. Raises ValueError for a setting that the installed
    torch does not have.
    """
    file_time = time.time()
    compiled = torch.compile(named(program.graph), dynamic=program.dynamic)

    def function(*tensors: Tensor) -> Any:
        return compiled(*tensors, **dict(program.arguments))

    with observation.compiling(program, observation.settings(program, {})) as log, _loading() as loaded:
        failure = _run_once(program, function, target, log)
        kernels = _kernels(log.modules, loaded, target, file_time)
        generated = log.generated(kernels, failure, observation.counted(log))
    return generated, function


def _run_once(
    program: Program, function: Callable[..., Any], target: Target, log: observation.CompilationLog
) -> Failure | None:
    """Calls ``function`` with every set of operands; the failure of the first call that fails."""
    try:
        for operands in (program.operands, *program.calls):
            tensors = [_tensor(operand, target) for operand in operands]
            observation.mark(program, tensors)
            function(*tensors)
            torch.accelerator.synchronize()
            log.first = log.first or observation.graphs()
    except Exception as error:  # whatever it is, the program did not compile or run
        return observation.failure_of(error)
    return None


def _tensor(operand: Operand, target: Target) -> Tensor:
    """Memory for ``operand`` on the device, filled with zeros: every function of a suite accepts them."""
    device = torch.device(f"cuda:{target.device_index}")
    size = itemsize(operand.dtype)
    memory = torch.zeros((operand.offset + max(operand.span, 1)) * size, dtype=torch.uint8, device=device)
    return _over(memory, operand)


def without_base(view: Tensor, operand: Operand) -> Tensor:
    """A tensor over the memory of ``view``, which stands for ``operand``, that has no base.

    Dynamo guards the base of a view too, and the bases of two views always differ.
    """
    size = itemsize(operand.dtype)
    length = (operand.offset + max(operand.span, 1)) * size
    first = (view.storage_offset() - operand.offset) * size
    storage = view.untyped_storage()
    part = torch.empty(0, dtype=torch.uint8, device=view.device).set_(storage, first, (length,), (1,))
    return _over(torch.utils.dlpack.from_dlpack(part), operand)  # its storage begins where the part does


def _over(memory: Tensor, operand: Operand) -> Tensor:
    """``operand`` over the bytes of ``memory``, whose storage begins where it does."""
    empty = torch.empty(0, dtype=DTYPES[operand.dtype], device=memory.device)
    return empty.set_(memory.untyped_storage(), operand.offset, operand.shape, operand.strides)


@contextmanager
def _loading() -> Iterator[dict[str, Any]]:
    """Every module that Inductor loads meanwhile, by its text: where its caches are off, it forgets them at once."""
    from torch._inductor.codecache import PyCodeCache

    loaded: dict[str, Any] = {}
    load = PyCodeCache.load_by_key_path

    def loading(key: str, path: str, *arguments: Any, **options: Any) -> Any:
        module = load(key, path, *arguments, **options)
        loaded[Path(path).read_text()] = module
        return module

    with mock.patch.object(PyCodeCache, "load_by_key_path", staticmethod(loading)):
        yield loaded


def _kernels(
    modules: Sequence[str], loaded: Mapping[str, Any], target: Target, before: float
) -> tuple[GeneratedKernel, ...]:
    """Returns the Triton kernels of ``modules`` as they were compiled after ``before`` and ``loaded``."""
    kernels: list[GeneratedKernel] = []
    for text in modules:
        for name, source in kernels_of(text).items():
            kernel = getattr(loaded.get(text), name, None)
            results = getattr(kernel, "compile_results", None)
            if not results:
                error = "it was not compiled or not loaded"
                kernels.append(GeneratedKernel(name, kind_of(source), source, error=error))
                continue
            compiled = results[0].kernel
            artefact = artefact_of(compiled, target, compiled.hash, before)
            kernels.append(GeneratedKernel(name, kind_of(source), source, artefact))
    return tuple(kernels)


def call(
    function: Callable[..., Any], operands: Sequence[Operand], views: Sequence[Tensor], *, observe: bool
) -> tuple[tuple[Tensor, ...], Launches]:
    """Returns the outputs of the compiled ``function`` over ``views``, which stand for ``operands``.

    With ``observe`` also the (name, grid) of every kernel that it launched. Raises AssertionError if the function was
    compiled again: what ran is then not what was pinned.
    """
    tensors = [without_base(view, operand) for view, operand in zip(views, operands, strict=True)]
    compiled = observation.graphs()
    if observe:
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            result = function(*tensors)
            torch.accelerator.synchronize()
        launches = tuple((event["name"], tuple(event["args"]["grid"])) for event in kernel_events(profiler))
    else:
        result = function(*tensors)
        torch.accelerator.synchronize()
        launches = ()
    if observation.graphs() != compiled:
        raise AssertionError("the function was compiled again for tensors that it had been compiled for")
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return outputs, launches
