"""Answers what a suite asks ``torch.cuda`` and ``torch.accelerator``, by the facts of the target.

Streams and events do nothing, because everything runs at once. Nothing is timed: ``elapsed_time`` gives 1 ms.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.deviceless import capability, properties
from conformance.inductor.compile.rocm_registration import ASSUMED
from conformance.targets import Target
from conformance.watching.not_taken import NotTaken
from conformance.watching.torch_modes import DEVICE, is_device

#: Bytes that the device seems to have.
TOTAL_MEMORY = 80 << 30


class Stream:
    """A stream of the device: what is given to it is done at once."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0
    device = DEVICE

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        """Returns at once."""

    def wait_event(self, event: Any) -> None:
        """Returns at once."""

    def synchronize(self) -> None:
        """Returns at once."""

    def record_event(self, event: Any = None) -> Any:
        return event or Event()

    def query(self) -> bool:
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Event:
    """An event of the device, which has happened."""

    cuda_event = 0
    device = DEVICE

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Returns at once."""

    def wait(self, stream: Any = None) -> None:
        """Returns at once."""

    def synchronize(self) -> None:
        """Returns at once."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0


def _no(what: str) -> type:
    """Returns a class that ends the test when it is called, because it asks for ``what``. Libraries use such names in
    annotations, so a function will not do."""

    class Refused:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            raise NotTaken("device", what, f"{what} needs a device")

    return Refused


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **options: value


class _Generator(torch.Generator):
    """Torch's generator; one of the device is the CPU's."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        new: Any = super().__new__
        generator: _Generator = new(cls, "cpu" if is_device(device) else device)
        return generator


def _facts(target: Target) -> SimpleNamespace:
    facts = properties(target)
    facts.total_memory = TOTAL_MEMORY
    facts.L2_cache_size = 50 << 20
    facts.is_integrated = facts.is_multi_gpu_board = 0
    return facts


def answers(target: Target) -> dict[str, Any]:
    """Returns what stands for each name of ``torch.cuda``."""
    facts, stream = _facts(target), Stream()

    def seeds(seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    return {
        "is_available": _constant(True),
        "is_initialized": _constant(True),
        "init": _constant(None),
        "_lazy_init": _constant(None),
        "device_count": _constant(1),
        "current_device": _constant(0),
        "set_device": _constant(None),
        "_exchange_device": _constant(0),
        "_maybe_exchange_device": _constant(0),
        "device": contextlib.nullcontext,
        "device_of": contextlib.nullcontext,
        "_DeviceGuard": contextlib.nullcontext,
        "synchronize": _constant(None),
        "get_device_name": _constant(target.architecture.product or target.id),
        "get_device_capability": _constant(capability(target)),
        "get_device_properties": _constant(facts),
        "get_arch_list": _constant([target.id]),
        "is_bf16_supported": _constant(True),
        "is_tf32_supported": _constant(target.vendor == "nvidia"),
        "can_device_access_peer": _constant(False),
        "current_stream": _constant(stream),
        "default_stream": _constant(stream),
        "stream": contextlib.nullcontext,
        "set_stream": _constant(None),
        "Stream": Stream,
        "ExternalStream": Stream,
        "Event": Event,
        "empty_cache": _constant(None),
        "ipc_collect": _constant(None),
        "mem_get_info": _constant((TOTAL_MEMORY, TOTAL_MEMORY)),
        "memory_allocated": _constant(0),
        "max_memory_allocated": _constant(0),
        "memory_reserved": _constant(0),
        "max_memory_reserved": _constant(0),
        "reset_peak_memory_stats": _constant(None),
        "reset_max_memory_allocated": _constant(None),
        "memory_stats": _constant({}),
        "manual_seed": seeds,
        "manual_seed_all": seeds,
        "get_rng_state": lambda device="cuda": torch.random.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.random.set_rng_state(state),
        "get_rng_state_all": lambda: [torch.random.get_rng_state()],
        "set_rng_state_all": lambda states: torch.random.set_rng_state(states[0]),
        "initial_seed": torch.random.initial_seed,
        "is_current_stream_capturing": _constant(False),
        "graph": _no("torch.cuda.graph"),
        "CUDAGraph": _no("torch.cuda.CUDAGraph"),
        "make_graphed_callables": _no("torch.cuda.make_graphed_callables"),
        "_sleep": _constant(None),
    }


_OF_ACCELERATOR: dict[str, Any] = {
    "is_available": _constant(True),
    "device_count": _constant(1),
    "current_accelerator": _constant(torch.device("cuda")),
    "current_device_index": _constant(0),
    "current_device_idx": _constant(0),
    "set_device_index": _constant(None),
    "set_device_idx": _constant(None),
    "current_stream": _constant(Stream()),
    "set_stream": _constant(None),
    "synchronize": _constant(None),
    "empty_cache": _constant(None),
    "memory_allocated": _constant(0),
    "max_memory_allocated": _constant(0),
    "reset_peak_memory_stats": _constant(None),
}


@contextmanager
def answering(target: Target) -> Iterator[None]:
    """Inside, ``torch.cuda`` and ``torch.accelerator`` answer for ``target``."""
    version = "hip" if target.vendor == "amd" else "cuda"
    with contextlib.ExitStack() as stack:
        for name, value in answers(target).items():
            stack.enter_context(mock.patch.object(torch.cuda, name, value, create=True))
        for name, value in _OF_ACCELERATOR.items():
            if hasattr(torch, "accelerator") and hasattr(torch.accelerator, name):
                stack.enter_context(mock.patch.object(torch.accelerator, name, value))
        random = torch.cuda.random
        for name in ("manual_seed", "manual_seed_all", "get_rng_state", "set_rng_state"):
            stack.enter_context(mock.patch.object(random, name, answers(target)[name]))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        if getattr(torch.version, version) is None:
            # Libraries choose their code by the version that torch was built for.
            stack.enter_context(mock.patch.object(torch.version, version, "12.8" if version == "cuda" else ASSUMED))
        yield
