"""Lets ``torch.compile`` generate code for an NVIDIA or AMD GPU on a machine without one. Torch's questions about the
device are answered from a target's facts.

``torch.compile`` is then given fake cuda tensors. It generates its modules and neither loads nor runs them: calling a
compiled function raises :class:`GeneratedOnly` once its module has been handed to
``torch._inductor.graph.GraphLowering.save_output_code``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from conformance.execution.compile.compile_worker import StubDriver
from conformance.inductor.compile.program import Unsupported
from conformance.records import Reason, ReasonCode
from conformance.targets import KIB, Target


class DevicelessUnsupported(Unsupported):
    """The installed torch or Triton lacks a name that must be overridden, or a fact of the target is unknown."""


class GeneratedOnly(Exception):
    """Raised in place of running a generated module, which needs a device: its ``source``, and the ``inputs`` that it
    was called with."""

    def __init__(self, source: str, inputs: Sequence[Any]) -> None:
        super().__init__("the module was generated; running it needs a device")
        self.source = source
        self.inputs = list(inputs)


@dataclass(frozen=True)
class Override:
    """An attribute by its dotted ``name``, what ``stands`` in for it given the target, and ``why`` it must."""

    name: str
    stands: Callable[[Target], Any]
    why: str


@contextmanager
def deviceless(target: Target) -> Iterator[None]:
    """Inside, ``torch.compile`` generates code for ``target`` from fake cuda tensors, on a machine without a GPU.

    ``target`` is an architecture of NVIDIA's, or of AMD's in a process for which
    :mod:`~conformance.inductor.compile.rocm_registration` has prepared Inductor; ValueError is raised for any other.
    :class:`DevicelessUnsupported` is raised if its number of multiprocessors is unknown, or a name of
    :data:`OVERRIDES` does not exist. On exit everything is as it was, and what torch remembers of the device's facts is
    forgotten, so that other targets can follow.
    """
    vendor = "amd" if torch.version.hip else "nvidia"
    if target.vendor != vendor:
        raise ValueError(f"target {target.id} is of vendor {target.vendor}: Inductor was imported for {vendor} here")
    if target.limits.multiprocessors is None:
        detail = (
            f"the number of multiprocessors of {target.id} is not known, and Inductor asks for it: "
            f"assume one, such as --target {target.id}:256"
        )
        raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "multiprocessors", detail))
    prepare()
    places = [(*place(override.name), override) for override in OVERRIDES]
    with contextlib.ExitStack() as stack:
        stack.callback(forget)
        stack.enter_context(device_guard())
        stack.enter_context(_triton_driver(target))
        for owner, name, override in places:
            stack.enter_context(mock.patch.object(owner, name, override.stands(target)))
        forget()
        yield


# --- the overrides ----------------------------------------------------------------------------------------------------


def _constant(value: object) -> Callable[[Target], Any]:
    """A function that returns ``value`` whatever it is asked."""
    return lambda target: lambda *arguments, **options: value


def properties(target: Target) -> SimpleNamespace:
    """Returns the properties of ``target`` as ``torch.cuda.get_device_properties`` has them; sizes in bytes.

    The registers are those of the CUDA programming guide's table, which are the same for each capability, and those
    that HIP reports of AMD's GPUs.
    """
    major, minor = capability(target)
    return SimpleNamespace(
        name=target.name or target.id,
        # A torch without CUDA takes this for the name.
        gcnArchName=target.id if target.vendor == "amd" else target.name or target.id,
        major=major,
        minor=minor,
        multi_processor_count=target.limits.multiprocessors,
        warp_size=target.warp_size,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=target.architecture.threads,
        max_threads_per_block=1024,
        shared_memory_per_block=48 * KIB if target.vendor == "nvidia" else target.limits.shared_memory,
        shared_memory_per_block_optin=target.limits.shared_memory,
        shared_memory_per_multiprocessor=target.limits.shared_memory + (KIB if target.vendor == "nvidia" else 0),
    )


def capability(target: Target) -> tuple[int, int]:
    """Major and minor number: (9, 0) for sm_90, (9, 4) for gfx942, whose last digit is a stepping."""
    if target.vendor == "nvidia":
        return divmod(int(target.arch), 10)
    digits = str(target.arch).removeprefix("gfx")
    return int(digits[:-2]), int(digits[-2], 16)


def _interfaces(target: Target) -> dict[str, Any]:
    from torch._dynamo import device_interface

    answers: Any = properties(target)

    class TargetInterface(device_interface.CudaInterface):
        current_device = staticmethod(lambda: 0)
        device_count = staticmethod(lambda: 1)
        get_device_properties = staticmethod(lambda device=None: answers)
        exchange_device = staticmethod(lambda device: 0)
        maybe_exchange_device = staticmethod(lambda device: 0)

    return {**device_interface.device_interfaces, "cuda": TargetInterface, "cuda:0": TargetInterface}


def _worker(target: Target) -> SimpleNamespace:
    return SimpleNamespace(current_device=lambda: 0, get_device_properties=lambda device=None: properties(target))


def _first_is_fastest(target: Target) -> Any:
    """Replaces the function that measures choices. For a hint of a size another choice is the first."""

    def make_benchmark_fn(*arguments: Any, hint_override: int | None = None, **options: Any) -> Callable[[Any], Any]:
        first = (hint_override or 0).bit_length()
        return lambda choices: {
            choice: float((number - first) % len(choices) + 1) for number, choice in enumerate(choices)
        }

    return staticmethod(make_benchmark_fn)


def _compile_to_module(target: Target) -> Callable[[Any], Any]:
    """Generates the module's source and hands it on as torch does; the module itself is one that cannot run."""
    from torch._inductor.codecache import PyCodeCache

    def compile_to_module(graph: Any) -> Any:
        source = graph.codegen()[0].value
        if type(graph).save_output_code is not None:
            type(graph).save_output_code(source)
        graph.cache_key, graph.cache_path = PyCodeCache.write(source)
        graph.cache_linemap = []

        def call(inputs: Sequence[Any]) -> Any:
            raise GeneratedOnly(source, inputs)

        return SimpleNamespace(call=call, runner=None, __file__=graph.cache_path)

    return compile_to_module


def _model_itself(target: Target) -> Callable[..., Any]:
    return lambda model, *arguments, **options: model


def _differentiated_on_the_cpu(target: Target) -> Callable[..., Any]:
    """Differentiates a modification of attention's scores with scalars of the CPU in place of the device's. The graph
    is the same: it holds no device."""
    module = importlib.import_module("torch._higher_order_ops.flex_attention")
    differentiate = module.create_fw_bw_graph
    indexed = importlib.import_module("torch._dynamo._trace_wrapped_higher_order_op").TransformGetItemToIndex

    def on_cpu(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        empty = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="cpu")
        return empty.requires_grad_(value.requires_grad)

    def create_fw_bw_graph(modification: Any, scalars: Sequence[Any], buffers: Sequence[Any]) -> Any:
        # What is computed of them on the way is made in the current mode. A captured tensor that a scalar indexes must
        # not ask for the scalar's value.
        with scalars[0].fake_mode, indexed():
            return differentiate(modification, tuple(map(on_cpu, scalars)), tuple(map(on_cpu, buffers)))

    return create_fw_bw_graph


OVERRIDES: tuple[Override, ...] = (
    Override("torch.cuda.is_available", _constant(True), "Triton, its templates and their choices depend on it"),
    Override("torch.cuda.current_device", _constant(0), "which device's facts are asked, such as its shared memory"),
    Override(
        "torch.cuda.get_device_properties",
        lambda target: lambda device=None: properties(target),
        "capability, multiprocessors and shared memory decide which choices are offered",
    ),
    Override(
        "torch.cuda.get_rng_state",
        lambda target: lambda device="cuda": torch.random.get_rng_state(),
        "Dynamo saves the generator of an available device",
    ),
    Override(
        "torch.cuda.is_current_stream_capturing", _constant(False), "Dynamo asks it before it saves the generator"
    ),
    Override("torch.accelerator.is_available", _constant(False), "Dynamo would take its current stream"),
    Override("torch.cuda._exchange_device", _constant(0), "the compiler makes the tensors' device current"),
    Override("torch.cuda._maybe_exchange_device", _constant(0), "the compiler makes the tensors' device current"),
    Override(
        "torch._dynamo.device_interface.device_interfaces",
        _interfaces,
        "the interface holds torch.cuda's functions as they were when it was imported",
    ),
    Override(
        "torch._dynamo.device_interface.CudaInterface.Worker",
        _worker,
        "whether Triton can be used is asked through it; it counts the devices",
    ),
    Override(
        "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
        lambda target: property(lambda mode: True),
        "constants on the device must stay fake although a device seems to be available",
    ),
    Override(
        "torch._subclasses.fake_tensor.init_gpu_context",
        _constant(None),
        "in some releases, the first fake tensor on an available device allocates a real one",
    ),
    Override(
        "torch._inductor.runtime.triton_helpers.set_driver_to_gpu",
        _constant(None),
        "a kernel's module would start the driver of a real device",
    ),
    Override(
        "torch._inductor.select_algorithm.AlgorithmSelectorCache.make_benchmark_fn",
        _first_is_fastest,
        "nothing can be measured: of several choices the first is taken, of those for a hint another",
    ),
    Override(
        "torch._inductor.select_algorithm.AlgorithmSelectorCache.make_precompile_fn",
        lambda target: lambda cache, *arguments, **options: lambda *_, **__: {},
        "choices are compiled only to be measured, and loaded onto the device; some Pythons skip this by themselves",
    ),
    Override(
        "torch._inductor.graph.GraphLowering.compile_to_module",
        _compile_to_module,
        "a generated module imports functions of a CUDA build and loads its kernels onto the device",
    ),
    Override(
        "torch._higher_order_ops.flex_attention.create_fw_bw_graph",
        _differentiated_on_the_cpu,
        "autograd's engine would ask the tensors' device for its current stream",
    ),
    Override("torch._inductor.output_code.align_inputs_from_check_idxs", _model_itself, "fake tensors have no address"),
    Override("torch._inductor.compile_fx.align_inputs_from_check_idxs", _model_itself, "fake tensors have no address"),
)

#: Modules whose functions remember what the device said. All their ``functools`` caches are cleared.
REMEMBERING = (
    "torch.utils._triton",
    "torch._inductor.utils",
    "torch._inductor.codecache",
    "torch._inductor.kernel.mm",
    "torch._inductor.runtime.hints",
    "torch._inductor.codegen.cuda.cuda_env",
    "torch._inductor.codegen.cutlass.cuda_env",
    "torch._inductor.template_heuristics.triton",
    "torch._inductor.heuristics.template.triton",
)
#: Of these modules, the functions whose cache says that something has been done; it must not be done twice.
ONCE = ("lazy_register_extern_choice",)


def prepare() -> None:
    """Imports what is overridden and lets torch register its interfaces, which would count devices later."""
    for name in ("torch._dynamo.device_interface", "torch._inductor.compile_fx", "torch._inductor.select_algorithm"):
        importlib.import_module(name)
    interfaces, name = place("torch._dynamo.device_interface.get_registered_device_interfaces")
    getattr(interfaces, name)()


def place(dotted: str) -> tuple[Any, str]:
    """Returns the module or class that has the attribute ``dotted`` names, and the attribute's own name."""
    path, _, name = dotted.rpartition(".")
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            owner: Any = importlib.import_module(".".join(parts[:count]))
            for part in parts[count:]:
                owner = getattr(owner, part, None)
            if hasattr(owner, name):
                return owner, name
            break
    raise DevicelessUnsupported(
        Reason(
            ReasonCode.CAPABILITY,
            dotted,
            f"generating code without a device overrides {dotted}, which torch {torch.__version__} does not have: "
            "use a torch that has it, or a device",
        )
    )


def forget() -> None:
    """Clears what torch remembers of a device."""
    for module in filter(None, map(sys.modules.get, REMEMBERING)):
        own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
        for owner in (module, *own):
            for name, attribute in vars(owner).items():
                cached = attribute.__func__ if isinstance(attribute, (staticmethod, classmethod)) else attribute
                if isinstance(cached, functools._lru_cache_wrapper) and name not in ONCE:
                    cached.cache_clear()
    from torch._inductor.utils import clear_caches

    clear_caches()


# --- below Python -----------------------------------------------------------------------------------------------------

#: c10::DeviceType, and the symbol of c10's table of device guards, one pointer for each device type.
CUDA, META = 1, 14
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"


@contextmanager
def device_guard(kind: int = CUDA) -> Iterator[None]:
    """A device guard for the ``kind`` of devices, without which none of their fake tensors can be sliced.

    In a torch without CUDA the slot of cuda is empty and gets the guard of meta tensors, which does nothing. A torch
    with CUDA has a guard, and replaces it by one that does nothing if there is no device.
    """
    try:
        slots = (ctypes.c_void_p * (META + 1)).in_dll(ctypes.CDLL("libc10.so"), GUARDS)
    except (OSError, ValueError) as error:
        detail = f"torch {torch.__version__} has no table of device guards ({error}): use a device"
        raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, GUARDS, detail)) from None
    before = slots[kind]
    if before is None:
        slots[kind] = slots[META]
    elif kind == CUDA and hasattr(torch._C, "_ensureCUDADeviceGuardSet"):
        torch._C._ensureCUDADeviceGuardSet()
    try:
        yield
    finally:
        slots[kind] = before


class _DevicelessDriver(StubDriver):
    """A stub with the properties that Inductor asks for."""

    def __init__(self, target: Target) -> None:
        from triton.backends.compiler import GPUTarget

        super().__init__(GPUTarget(target.backend, target.arch, target.warp_size), 0)
        facts = {
            "max_shared_mem": target.limits.shared_memory,
            "multiprocessor_count": target.limits.multiprocessors,
            "warpSize": target.warp_size,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda device: facts)


@contextmanager
def _triton_driver(target: Target) -> Iterator[None]:
    """A driver of ``target`` as Triton's active one, which would look for libcuda."""
    from triton.runtime import driver

    with mock.patch.dict(vars(driver)):
        driver.set_active(_DevicelessDriver(target))
        yield
