"""Lets ``torch.compile`` generate Triton kernels for the device that stands in, and launches them through its driver.

Dynamo is told that marked tensors lie on the device, so Inductor generates the device's code. What it generates runs
over the memory here. Modules, and functions that need gradients, run as they are written: autograd would ask for a
stream of the device.
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
from torch.utils._pytree import tree_flatten

from conformance.inductor.compile import deviceless
from conformance.targets import Target
from conformance.watching.device_memory import DeviceMemory
from conformance.watching.torch_modes import DEVICE, plain
from conformance.watching.triton_driver import StandInDriver

#: Overrides of :mod:`~conformance.inductor.compile.deviceless` for fake tensors, and for what is never run.
_OF_FAKE = ("compile_to_module", "align_inputs_from_check_idxs")
#: Options of Inductor: kernels are compiled here, by Triton, and none comes from a cache.
_OPTIONS = {
    "compile_threads": 1,
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


class CompiledFunctions:
    """Compiles functions for ``target``. ``notes`` has a sentence for each function and module of a test that
    runs as it is written."""

    def __init__(self, target: Target, memory: DeviceMemory, driver: StandInDriver) -> None:
        self._target, self._memory, self._driver = target, memory, driver
        self.notes: list[str] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Inside, ``torch.compile`` compiles for the device. Modules, and what cannot be compiled, run as written."""
        compile_function = torch.compile

        def compile(model: Any = None, **options: Any) -> Any:  # noqa: A001  # torch's name
            if model is None:
                return lambda function: compile(function, **options)
            compiled = compile_function(model, **options)
            if isinstance(model, torch.nn.Module):
                self.notes.append(f"{type(model).__name__} runs as it is written: it is a module")
                return compiled
            if options.get("backend", "inductor") != "inductor":
                return compiled
            return self._callable(model, compiled)

        with torch.compiler.set_stance("force_eager"), mock.patch.object(torch, "compile", compile):
            yield

    def _callable(self, function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            launches = self._driver.launches
            try:
                if why := self._objection(args, kwargs):
                    raise _NotCompiled(why)
                with self._compiling():
                    result = compiled(*args, **kwargs)
            except Exception as error:  # whatever Dynamo and Inductor raise
                if self._driver.launches != launches:  # its effects may not happen twice
                    raise
                first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
                self.notes.append(f"{getattr(function, '__name__', 'a function')} ran as it is written: {first_line}")
                return function(*args, **kwargs)
            with plain():
                for tensor in _tensors(result):
                    self._memory.mark(tensor)
            return result

        return call

    def _objection(self, args: Sequence[Any], kwargs: Any) -> str:
        """Returns why a call is not compiled; "" if nothing is known against it."""
        given = _tensors((args, kwargs))
        if not any(map(self._memory.has, given)):
            return "no tensor of the device is given to it"
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
            return "its gradients need a device"
        return "" if self._target.vendor == "nvidia" else f"Inductor was not imported for {self._target.id}"

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Inside, Dynamo and Inductor take marked tensors for the device's."""
        from torch._inductor import config
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

        guards: Any = torch._C._dynamo.guards
        with ExitStack() as stack:
            stack.enter_context(plain())
            stack.enter_context(torch.compiler.set_stance("default"))
            deviceless.prepare()
            stack.callback(deviceless.forget)
            stack.enter_context(deviceless.device_guard())
            for override in deviceless.OVERRIDES:
                of_torch_cuda = override.name.startswith("torch.cuda.")  # these are answered already
                if not of_torch_cuda and not override.name.endswith(_OF_FAKE):
                    owner, name = deviceless.place(override.name)
                    stack.enter_context(mock.patch.object(owner, name, override.stands(self._target)))
            deviceless.forget()
            stack.enter_context(mock.patch.object(MetaTensorDescriber, "describe_tensor", described))
            stack.enter_context(mock.patch.object(guards, "_empty_strided_cuda", empty))
            stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", _default_stream, create=True))
            stack.enter_context(mock.patch.object(CachingAutotuner, "bench", _untimed))
            options = {name: value for name, value in _OPTIONS.items() if hasattr(config, name)}
            stack.enter_context(config.patch(options))
            yield


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]
