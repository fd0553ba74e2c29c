"""Lets ``torch.compile`` generate Triton kernels for the device that stands in, and launches them through its driver.

Dynamo is told that marked tensors lie on the device, so Inductor generates the device's code. What it generates runs
over the memory here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from conformance.inductor.compile import deviceless
from conformance.targets import Target
from conformance.watching import accelerator
from conformance.watching.device_memory import DeviceMemory
from conformance.watching.torch_modes import DEVICE, is_device, plain
from conformance.watching.triton_driver import StandInDriver

#: Overrides of :mod:`~conformance.inductor.compile.deviceless` for fake tensors, and for what is never run.
_OF_FAKE = ("compile_to_module", "align_inputs_from_check_idxs")
#: Characters of an error that a note keeps.
REASON_CHARACTERS = 200
#: Options of Inductor: kernels are compiled here, by Triton, and none comes from a cache.
_OPTIONS = {
    "compile_threads": 1,
    "benchmark_epilogue_fusion": False,  # it measures; the later name is next
    "benchmark_template_fusion": False,
    "fx_graph_cache": False,
    "fx_graph_remote_cache": False,
    "use_static_cuda_launcher": False,
    "use_static_triton_launcher": False,
}


class _NotCompiled(Exception):
    """Says why a call is not compiled."""


def _default_stream(device: int) -> int:
    return 0


def _untimed(*arguments: Any, **options: Any) -> float:
    """Returns the time of each of Inductor's configs: the first of equal ones is taken."""
    return 1.0


class _ConstantsHere(TorchDispatchMode):
    """Gives constants of the device, which Inductor works out when it compiles, memory of the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if is_device(kwargs.get("device")):
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)


class CompiledFunctions:
    """Compiles functions and modules for ``target``. ``notes`` has a sentence for each of a test that runs as it is
    written."""

    def __init__(self, target: Target, memory: DeviceMemory, driver: StandInDriver) -> None:
        self._target, self._memory, self._driver = target, memory, driver
        self.notes: list[str] = []
        self._lasting = ExitStack()  # a backward function runs when its forward has returned

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, ``torch.compile`` compiles for the device. What cannot be compiled runs as it is written."""
        compile_function = torch.compile

        def compile(model: Any = None, **options: Any) -> Any:  # noqa: A001  # torch's name
            if model is None:
                return lambda function: compile(function, **options)
            compiled: Any = compile_function(model, **options)
            if options.get("backend", "inductor") != "inductor":
                return compiled
            if not isinstance(model, torch.nn.Module):
                return self._callable(model, compiled)
            compiled.forward = self._callable(model, compiled.forward)
            return compiled

        with self._lasting, torch.compiler.set_stance("force_eager"), mock.patch.object(torch, "compile", compile):
            yield

    def _callable(self, function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Returns ``compiled``; what cannot be compiled of a call is run by ``function``."""
        name = getattr(function, "__name__", type(function).__name__)

        def call(*args: Any, **kwargs: Any) -> Any:
            launches = self._driver.launches
            try:
                if why := self._objection(function, args, kwargs):
                    raise _NotCompiled(why)
                with self._compiling():
                    result = compiled(*args, **kwargs)
            except Exception as error:  # whatever Dynamo and Inductor raise
                if self._driver.launches != launches:  # its effects may not happen twice
                    raise
                words = " ".join(str(error).split()) or type(error).__name__
                self.notes.append(f"{name} ran as it is written: {words[:REASON_CHARACTERS]}")
                return function(*args, **kwargs)
            with plain():
                for tensor in _tensors(result):
                    self._memory.mark(tensor)
            return result

        return call if isinstance(function, torch.nn.Module) else functools.wraps(function)(call)

    def _objection(self, model: Any, args: Sequence[Any], kwargs: Any) -> str:
        """Returns why a call of ``model`` is not compiled; "" if nothing is known against it."""
        parameters = [*model.parameters()] if isinstance(model, torch.nn.Module) else []
        given = [*_tensors((args, kwargs)), *parameters]
        if not any(map(self._memory.has, given)):
            return "no tensor of the device is given to it"
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given) and not accelerator.prepare():
            return "its gradients need a device"
        return ""

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Inside, Dynamo and Inductor take marked tensors for the device's."""
        from torch._functorch import config as functorch
        from torch._inductor import config
        from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
        from torch._subclasses.meta_utils import MetaTensorDescriber

        describe = MetaTensorDescriber.describe_tensor

        def described(describer: Any, tensor: Tensor, **options: Any) -> Any:
            description = describe(describer, tensor, **options)
            on_device = self._memory.has(tensor)
            return dataclasses.replace(description, device=DEVICE) if on_device else description

        def empty(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
            tensor = torch.empty_strided(size, stride, dtype=dtype)
            self._memory.mark(tensor)
            return tensor

        fold = UniformValueConstantFolder.run

        def folded(folder: Any, *args: Any, **kwargs: Any) -> Any:
            with _ConstantsHere():
                return fold(folder, *args, **kwargs)

        guards: Any = torch._C._dynamo.guards
        with ExitStack() as stack:
            stack.enter_context(plain())
            stack.enter_context(torch.compiler.set_stance("default"))
            deviceless.prepare()
            stack.callback(deviceless.forget)
            stack.enter_context(deviceless.device_guard())
            stack.enter_context(accelerator.accelerator())
            for override in deviceless.OVERRIDES:
                of_torch_cuda = override.name.startswith("torch.cuda.")  # these are answered already
                if not of_torch_cuda and not override.name.endswith(_OF_FAKE):
                    owner, name = deviceless.place(override.name)
                    stack.enter_context(mock.patch.object(owner, name, override.stands(self._target)))
            deviceless.forget()
            stack.enter_context(mock.patch.object(MetaTensorDescriber, "describe_tensor", described))
            stack.enter_context(mock.patch.object(UniformValueConstantFolder, "run", folded))
            stack.enter_context(mock.patch.object(guards, "_empty_strided_cuda", empty))
            stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", _default_stream, create=True))
            if CachingAutotuner.bench is not _untimed:
                self._lasting.enter_context(mock.patch.object(CachingAutotuner, "bench", _untimed))
            options = {name: value for name, value in _OPTIONS.items() if hasattr(config, name)}
            stack.enter_context(config.patch(options))
            stack.enter_context(mock.patch.object(functorch, "force_non_lazy_backward_lowering", True))
            yield


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]
