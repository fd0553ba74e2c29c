"""Makes torch believe in a device of type "cuda" whose memory lies here: two modes, which see every call of torch.

:class:`DeviceFunctions` sees what the user writes. It gives ``device="cuda"``, ``.to("cuda")`` and ``.cuda()`` memory
of :class:`~conformance.watching.device_memory.DeviceMemory`, and answers ``.device`` and ``.is_cuda`` by it.
:class:`DeviceOperations` sees each operation, also those of autograd: what it computes of the device's memory is the
device's. The numbers are those of torch's operations on the CPU.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map

from conformance.watching.device_memory import DeviceMemory
from conformance.watching.mixed_devices import mixed
from conformance.watching.not_taken import NotTaken
from conformance.watching.registered_kernels import DeviceKernels

#: The device that stands in.
DEVICE = torch.device("cuda", 0)
_CPU = torch.device("cpu")
#: Messages of torch about an operation that a CPU lacks.
_LACKING = re.compile(r"not implemented for|not supported on CPU|Could not run '|only (works|supported) on CUDA|CUDA")


_NARROW = (torch.float16, torch.bfloat16)
#: Operations whose sums GPUs make in fp32, and how many of their outputs have the narrow dtype of the inputs.
_SUMMED_WIDE = {
    "aten::mm": 1,
    "aten::bmm": 1,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "aten::native_layer_norm": 1,
    "aten::native_layer_norm_backward": 3,
    "aten::native_group_norm": 1,
    "aten::native_group_norm_backward": 3,
    "aten::convolution": 1,
    "aten::convolution_backward": 3,
}
#: Functions that give memory in which nothing was written.
_EMPTY = (torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty, Tensor.new_empty_strided)
#: The byte that such memory holds on the device: NaN in every float format.
_UNWRITTEN = 0xFF


def is_device(value: Any) -> bool:
    """True if ``value`` names the device: "cuda", "cuda:0", or torch's object."""
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return isinstance(value, torch.device) and value.type == "cuda"


def plain() -> AbstractContextManager[Any]:
    """Returns a context in which torch's functions are torch's own."""
    stack = ExitStack()
    stack.enter_context(torch._C.DisableTorchFunction())
    stack.enter_context(_disable_current_modes())
    return stack


@contextmanager
def also_in_backward(functions: TorchFunctionMode) -> Iterator[None]:
    """Inside, ``functions`` see what the backward functions of a user call: torch sets a mode aside while it carries
    out a call such as ``Tensor.backward``."""
    engine: Any = torch.autograd
    run = engine._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        with functions:
            return run(*args, **kwargs)

    with mock.patch.object(engine, "_engine_run_backward", run_backward):
        yield


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, Tensor)]


#: Torch's own answers, before a mode sees the question.
_DEVICE_OF: Any = vars(torch._C.TensorBase)["device"].__get__
_IS_CUDA: Any = vars(torch._C.TensorBase)["is_cuda"].__get__
_IS_CPU: Any = vars(torch._C.TensorBase)["is_cpu"].__get__


class DeviceOperations(TorchDispatchMode):
    """Marks what is computed of marked memory. Raises NotTaken for an operation that a CPU lacks, and torch's error for
    one that a GPU refuses, because its tensors lie on both devices. ``kernels`` are what libraries registered for the
    device; they run with ``functions`` in place."""

    def __init__(
        self, memory: DeviceMemory, kernels: DeviceKernels | None = None, functions: DeviceFunctions | None = None
    ) -> None:
        super().__init__()
        self.memory, self._kernels, self._functions = memory, kernels or DeviceKernels(), functions

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        given = _tensors((args, kwargs))
        marked = any(map(self.memory.has, given))
        if marked and (kernel := self._kernels.find(func)) is not None:
            with self, self._functions or nullcontext():
                return kernel(*args, **kwargs)
        if marked and len(given) > 1 and (refused := mixed(func, args, given, self.memory)):
            raise RuntimeError(refused)
        try:
            result = self._result(func, args, kwargs, given if marked else [])
        except (NotImplementedError, RuntimeError) as error:
            if marked and (isinstance(error, NotImplementedError) or _LACKING.search(str(error))):
                raise NotTaken("operation", str(func), f"torch has no {func} for tensors here: {error}") from error
            raise
        if marked or (not given and self._functions is not None and self._functions.is_for_device()):
            own = {id(tensor) for tensor in given}
            for tensor in _tensors(result):
                if id(tensor) not in own:
                    self.memory.mark(tensor)
        return result

    def _result(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], marked: list[Tensor]) -> Any:
        """Returns the result of ``func``. What GPUs sum in fp32 is summed so, also where the CPU's operation sums
        narrower numbers."""
        narrow = next((tensor.dtype for tensor in marked if tensor.dtype in _NARROW), None)
        outputs = _SUMMED_WIDE.get(func._overloadpacket._qualified_op_name)
        if narrow is None or outputs is None or not func._schema.name.startswith("aten::") or func._schema.is_mutable:
            return func(*args, **kwargs)
        wide = tree_map(lambda leaf: leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in _NARROW else leaf, args)
        result = func(*wide, **kwargs)
        if isinstance(result, Tensor):
            return result.to(narrow)
        return tuple(
            each.to(narrow) if isinstance(each, Tensor) and place < outputs else each
            for place, each in enumerate(result)
        )


class DeviceFunctions(TorchFunctionMode):
    """Answers what asks for the device, or about it."""

    def __init__(self, memory: DeviceMemory) -> None:
        super().__init__()
        self.memory = memory
        self._calls: list[tuple[Any, Any]] = []  # the arguments of the calls of torch that have not returned
        self._answers: dict[Any, Callable[..., Any]] = {
            _DEVICE_OF: lambda tensor: DEVICE if memory.has(tensor) else _DEVICE_OF(tensor),
            _IS_CUDA: memory.has,
            _IS_CPU: lambda tensor: not memory.has(tensor) and _IS_CPU(tensor),
            Tensor.get_device: lambda tensor: 0 if memory.has(tensor) else -1,
            torch.get_device: lambda tensor: 0 if memory.has(tensor) else -1,
            Tensor.cuda: lambda tensor, *_, **__: self._on_device(tensor),
            Tensor.cpu: lambda tensor, *_, **__: self._on_cpu(tensor),
            Tensor.to: self._to,
            Tensor.pin_memory: self._pinned,
            Tensor.is_pinned: lambda tensor, *_: memory.is_pinned(tensor),
            Tensor.record_stream: lambda tensor, *_: None,
            Tensor.__repr__: self._text,
            Tensor.__deepcopy__: self._like(Tensor.__deepcopy__),
            Tensor.new_tensor: self._like(Tensor.new_tensor),
        }

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if (answer := self._answers.get(func)) is not None:
            return answer(*args, **kwargs)
        result = self._called(func, args, kwargs)
        if func in _EMPTY and self.memory.has(result):
            storage = result.untyped_storage()
            ctypes.memset(storage.data_ptr(), _UNWRITTEN, storage.nbytes())
        return result

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.pop("pin_memory", False):
            return self._pinned(self._called(func, args, kwargs))
        device = kwargs.get("device")
        if device is None:
            self._calls.append((args, kwargs))
            try:
                return func(*args, **kwargs)
            finally:
                self._calls.pop()
        if isinstance(device, int):
            device = torch.device("cuda", device)
        asked = is_device(device)
        kwargs["device"] = _CPU if asked else device
        result = func(*args, **kwargs)
        for tensor in _tensors(result):
            if any(tensor is each for each in _tensors((args, kwargs))):
                continue
            if asked:
                self.memory.mark(tensor)
            elif self.memory.has(tensor):
                self.memory.unmark(tensor)
        return result

    def is_for_device(self) -> bool:
        """True if the innermost call that runs was given a tensor of the device. Memory that torch takes in it for a
        result, without a tensor as an example, is the device's."""
        return bool(self._calls) and any(map(self.memory.has, _tensors(self._calls[-1])))

    def _on_device(self, tensor: Tensor) -> Tensor:
        if self.memory.has(tensor):
            return tensor
        copy = tensor.clone()
        self.memory.mark(copy)
        return copy

    def _pinned(self, tensor: Tensor, *_: Any) -> Tensor:
        """Returns ``tensor`` in memory of the CPU that the device reaches: a copy, unless it is there."""
        if self.memory.is_pinned(tensor):
            return tensor
        copy = tensor.clone()
        self.memory.pin(copy)
        return copy

    def _on_cpu(self, tensor: Tensor) -> Tensor:
        if not self.memory.has(tensor):
            return tensor
        copy = tensor.clone()
        self.memory.unmark(copy)
        return copy

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Does what ``Tensor.to`` does, in each of its forms."""
        words = list(args)
        if "other" in kwargs:
            words.insert(0, kwargs.pop("other"))
        if words and isinstance(words[0], Tensor):  # the device and the dtype of another tensor
            words[:1] = [DEVICE if self.memory.has(words[0]) else _DEVICE_OF(words[0]), words[0].dtype]
        elif words and isinstance(words[0], torch.dtype):
            words.insert(0, None)
        given = dict(zip(("device", "dtype", "non_blocking", "copy"), words, strict=False)) | kwargs
        device, dtype, copy = (given.get(name) for name in ("device", "dtype", "copy"))
        on_device = is_device(device) or isinstance(device, int)
        if device is not None and not on_device and torch.device(device).type != "cpu":
            return Tensor.to(tensor, *args, **kwargs)
        result = tensor
        if dtype is not None or given.get("memory_format") is not None:
            form = given.get("memory_format") or torch.preserve_format
            result = Tensor.to(tensor, dtype=dtype or tensor.dtype, memory_format=form)
        if device is not None:
            result = self._on_device(result) if on_device else self._on_cpu(result)
        return tensor.clone() if copy and result is tensor else result

    def _like(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Returns ``function``, a method of a tensor. Its result is where the tensor is, unless a device is given."""

        def method(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            device = kwargs.pop("device", None)
            result = function(tensor, *args, **kwargs)
            if is_device(device) if device is not None else self.memory.has(tensor):
                self.memory.mark(result)
            return result

        return method

    def _text(self, tensor: Tensor, **options: Any) -> str:
        text = Tensor.__repr__(tensor, **options)
        return f"{text[:-1]}, device='{DEVICE}')" if self.memory.has(tensor) and text.endswith(")") else text
