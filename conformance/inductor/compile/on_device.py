"""``torch.compile`` on a real device: the compiled function, what was generated for it, and what it launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.utils.dlpack
from torch import Tensor

from conformance.execution.compile_worker import artefact_of, named
from conformance.execution.device import kernel_events
from conformance.inductor.compile.deviceless import replaced
from conformance.inductor.compile.observation import compiling, counted, failure_of, graphs, mark, settings
from conformance.inductor.compile.program import Failure, Generated, GeneratedKernel, Launches, Program
from conformance.inductor.source.generated_modules import kernels_of, kind_of
from conformance.problems import DTYPES, Operand, itemsize
from conformance.targets import Target


def compile_here(program: Program, target: Target) -> tuple[Generated, Callable[..., Any]]:
    """Compiles ``program`` and runs it once on each set of its operands, on the device of ``target``: what came of it,
    and the compiled function.

    What ``torch.compile`` or that run raises is the result's ``failure``. Raises ValueError for a setting or mode that
    the installed torch does not have.
    """
    started = time.perf_counter()
    before = time.time()
    function = torch.compile(named(program.graph), dynamic=program.dynamic)
    failure: Failure | None = None
    with compiling(program, settings(program, {})) as seen, _loading() as loaded:
        try:
            for operands in (program.operands, *program.calls):
                tensors = [_tensor(operand, target) for operand in operands]
                mark(program, tensors)
                function(*tensors, **dict(program.arguments))
                torch.accelerator.synchronize()
                seen.first = seen.first or graphs()
        except Exception as error:  # whatever it is, the program did not compile or run
            failure = failure_of(error)
        kernels = _kernels(seen.modules, loaded, target, before)
        counters = counted(seen)
    generated = Generated(
        modules=tuple(seen.modules),
        selections=tuple(seen.selections),
        kernels=kernels,
        failure=failure,
        counters=counters,
        notes=tuple(seen.notes),
        seconds=time.perf_counter() - started,
    )
    arguments = dict(program.arguments)
    return generated, lambda *tensors: function(*tensors, **arguments)


def _tensor(operand: Operand, target: Target) -> Tensor:
    """Memory for ``operand``: zeros, which no function of a suite takes amiss."""
    device = torch.device(f"cuda:{target.device_index}")
    size = itemsize(operand.dtype)
    memory = torch.zeros((operand.offset + max(operand.span, 1)) * size, dtype=torch.uint8, device=device)
    return _over(memory, operand)


def without_base(view: Tensor, operand: Operand) -> Tensor:
    """A tensor over the memory of ``view``, which stands for ``operand``, that is a view of nothing: Dynamo guards the
    base of a view too, and no two guarded tensors have bases alike."""
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

    with replaced(PyCodeCache, "load_by_key_path", staticmethod(loading)):
        yield loaded


def _kernels(
    modules: Sequence[str], loaded: Mapping[str, Any], target: Target, before: float
) -> tuple[GeneratedKernel, ...]:
    """The Triton kernels of ``modules`` as they were compiled and ``loaded``."""
    found: list[GeneratedKernel] = []
    for text in modules:
        for name, source in kernels_of(text).items():
            kernel = getattr(loaded.get(text), name, None)
            results = getattr(kernel, "compile_results", None)
            if not results:
                found.append(GeneratedKernel(name, kind_of(source), source, error="it was not compiled or not loaded"))
                continue
            compiled = results[0].kernel
            artefact = artefact_of(compiled, target, compiled.hash, before)
            found.append(GeneratedKernel(name, kind_of(source), source, artefact))
    return tuple(found)


def call(
    function: Callable[..., Any], operands: Sequence[Operand], views: Sequence[Tensor], *, observe: bool
) -> tuple[tuple[Tensor, ...], Launches]:
    """The outputs of the compiled ``function`` over ``views``, which stand for ``operands``, and (name, grid) of every
    kernel if it is to be observed.

    Raises AssertionError if the function was compiled anew: what would be judged is not what was pinned.
    """
    tensors = [without_base(view, operand) for view, operand in zip(views, operands, strict=True)]
    compiled = graphs()
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
    if graphs() != compiled:
        raise AssertionError("the function was compiled anew for tensors that it had been compiled for")
    outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    return outputs, launches
