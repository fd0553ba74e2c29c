"""Lets ``torch.compile`` generate code for a GPU of Intel's, Inductor's device "xpu", on a machine without one.

The installed Triton has no backend for it. So nothing is compiled: what comes of a program are its modules, which the
interpreter runs. See :mod:`~conformance.inductor.compile.deviceless` for the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from conformance.execution.compile.compile_worker import StubDriver
from conformance.inductor.compile import deviceless, deviceless_worker, observation
from conformance.inductor.compile.program import Generated, GeneratedKernel, Program
from conformance.inductor.source.source_checks import kernels_of, kind_of
from conformance.targets import KIB, Target

#: c10::DeviceType of xpu.
XPU = 12

#: What ``torch.xpu.get_device_properties`` is assumed to say of one stack of a Data Center GPU Max 1550.
FACTS = SimpleNamespace(
    name="Intel(R) Data Center GPU Max 1550",
    gpu_subslice_count=64,
    max_work_group_size=1024,
    sub_group_sizes=[16, 32],
    local_mem_size=128 * KIB,
    has_fp64=True,
)

#: Overrides for other vendors that hold here, too.
SHARED = (
    "torch.accelerator.is_available",
    "torch._subclasses.fake_tensor.FakeTensorMode.avoid_device_init",
    "torch._subclasses.fake_tensor.init_gpu_context",
    "torch._inductor.runtime.triton_helpers.set_driver_to_gpu",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.make_benchmark_fn",
    "torch._inductor.select_algorithm.AlgorithmSelectorCache.make_precompile_fn",
    "torch._inductor.graph.GraphLowering.compile_to_module",
    "torch._inductor.output_code.align_inputs_from_check_idxs",
    "torch._inductor.compile_fx.align_inputs_from_check_idxs",
)


def generate(program: Program, target: Target) -> Generated:
    """Runs ``torch.compile`` of ``program`` and returns the results; its kernels are not compiled. ``target`` has no
    use. Raises as :func:`conformance.inductor.compile.deviceless_worker.generate`."""
    options = observation.settings(program, deviceless_worker.FIXED)
    with _xpu(target), observation.compiling(program, options) as log:
        try:
            failure = deviceless_worker.compile_all(program, log, "xpu:0")
            counters = observation.counted(log)
        finally:
            torch._dynamo.reset()
    kernels = tuple(
        GeneratedKernel(name, kind_of(source), source, error="the installed Triton has no backend for Intel's GPUs")
        for module in log.modules
        for name, source in kernels_of(module).items()
    )
    return log.generated(kernels, failure, counters)


@contextmanager
def _xpu(target: Target) -> Iterator[None]:
    """Inside, there seems to be a GPU of Intel's."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    deviceless.prepare()
    shared = {override.name: override.stands(target) for override in deviceless.OVERRIDES if override.name in SHARED}
    with contextlib.ExitStack() as stack:
        stack.callback(deviceless.forget)
        stack.enter_context(deviceless.device_guard(XPU))
        stack.enter_context(mock.patch.dict(vars(driver)))
        driver.set_active(StubDriver(GPUTarget("xpu", 0, 32), 0))
        for name, stand_in in {**shared, **_answers()}.items():
            stack.enter_context(mock.patch.object(*deviceless.place(name), stand_in))
        deviceless.forget()
        yield


def _answers() -> Mapping[str, Any]:
    """Returns the answers to torch's questions about a device of Intel's, by the dotted name of the question."""
    from torch._dynamo import device_interface

    interface: Any = device_interface.XpuInterface

    class XpuInterface(interface):
        is_available = staticmethod(lambda: True)
        raise_if_triton_unavailable = staticmethod(lambda device=None: None)
        current_device = staticmethod(lambda: 0)
        device_count = staticmethod(lambda: 1)
        get_device_properties = staticmethod(lambda device=None: FACTS)
        get_compute_capability = staticmethod(lambda device=None: None)
        exchange_device = staticmethod(lambda device: 0)
        maybe_exchange_device = staticmethod(lambda device: 0)

        class Worker:
            current_device = staticmethod(lambda: 0)
            get_device_properties = staticmethod(lambda device=None: FACTS)

    return {
        "torch.xpu.is_available": lambda: True,
        "torch.xpu.current_device": lambda: 0,
        "torch.xpu.device_count": lambda: 1,
        "torch.xpu.get_device_properties": lambda device=None: FACTS,
        "torch.xpu.get_rng_state": lambda device="xpu": torch.random.get_rng_state(),
        "torch.xpu._exchange_device": lambda device: 0,
        "torch.xpu._maybe_exchange_device": lambda device: 0,
        # It would ask Triton for a backend.
        "torch.utils._triton.triton_hash_with_backend": lambda: "none",
        "torch._dynamo.device_interface.device_interfaces": {
            **device_interface.device_interfaces,
            **dict.fromkeys(("xpu", "xpu:0"), XpuInterface),
        },
    }
